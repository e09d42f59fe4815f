#!/usr/bin/env python3
"""How often rules of decision call identical code changed, and which changes they find.

Usage: .venv/bin/python scripts/bench_decisions.py [--minutes N | --short | --score] [--docs]

Records step times for some minutes (nothing else should run), adds them to those that the
folder holds, lets all rules judge the same steps, and prints the tables.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from decisions_bench.peers import rules
from decisions_bench.picture import draw
from decisions_bench.recording import SETUPS, record
from decisions_bench.scoring import coverage, score
from decisions_bench.streams import BUDGET_ROUNDS, Stream, load_all, save
from decisions_bench.tables import Findings, markdown

from trainperf_mlflow.analysis.sequential import MIN_PROCESS_PAIRS

DOCS = Path(__file__).resolve().parents[1] / "docs"
PAGE, PICTURE = DOCS / "decisions-benchmark.md", DOCS / "decisions-benchmark.png"
STREAMS = Path("decisions-streams")
BEGIN, END = "<!-- findings: begin -->", "<!-- findings: end -->"
SHORT_STREAMS = Path("decisions-streams-short")
MINUTES = 11.0


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    how = parser.add_mutually_exclusive_group()
    how.add_argument(
        "--minutes", type=float, default=MINUTES, help="to record (default: %(default)g)"
    )
    how.add_argument(
        "--short",
        action="store_true",
        help="record three rounds of each stream, about 5 minutes: too few for any rate",
    )
    how.add_argument("--score", action="store_true", help="record nothing, judge what is there")
    parser.add_argument(
        "--streams",
        type=Path,
        default=None,
        help="folder of the recordings (default: decisions-streams, with --short one of its own)",
    )
    parser.add_argument(
        "--docs", action="store_true", help="put tables and picture into the page of the docs"
    )
    return parser.parse_args(words)


def record_all(folder: Path, minutes: float, least_rounds: int) -> None:
    for number, setup in enumerate(SETUPS):
        stream = record(setup, 60 * minutes * setup.share, least_rounds, note=say)
        name = re.sub(r"\W+", "-", f"{setup.condition} {setup.workload}")
        save(stream, folder / f"{time.strftime('%Y%m%d-%H%M%S')}-{number}-{name}.npz")


def findings_of(streams: list[Stream]) -> Findings:
    peers = rules()
    return Findings(streams, score(streams, peers, note=say), coverage(streams), peers)


def put_between(page: str, findings: str) -> str:
    """The page with new findings between its marks.

    Raises:
        ValueError: the page has no such marks.
    """
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page lacks {BEGIN} or {END}; put both where the tables belong")
    return f"{before}{BEGIN}\n{findings}\n{END}{after}"


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    given = arguments()
    folder = given.streams or (SHORT_STREAMS if given.short else STREAMS)
    if given.short:
        record_all(folder, 0.0, MIN_PROCESS_PAIRS)
    elif not given.score:
        record_all(folder, given.minutes, BUDGET_ROUNDS)
    streams = load_all(folder)
    if not streams:
        raise SystemExit(f"no recordings in {folder}; leave out --score to make some")
    findings = findings_of(streams)
    tables = markdown(findings)
    print(tables)
    if given.docs:
        picture = f"![False verdicts and found changes of each rule]({PICTURE.name})\n\n"
        PAGE.write_text(put_between(PAGE.read_text("utf-8"), picture + tables), "utf-8")
        PICTURE.write_bytes(draw(findings))


if __name__ == "__main__":
    main()
