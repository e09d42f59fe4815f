"""The whole chain of docs/chain.md on a CPU, by the commands that it shows: from a baseline to
the handoff.

The commands are those of the page, with the smallest sizes. The adjacent studies are recorded
instead of measured.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner
from closing_studies import record_closable
from recorded_studies import a_store, clean_surroundings

import trainperf_mlflow as tp
from trainperf_mlflow.cli import cli
from trainperf_mlflow.results.study import Workload
from trainperf_mlflow.tracking.store import Store

pytestmark = pytest.mark.usefixtures("warm_servers")

PAGE = Path(__file__).resolve().parent.parent / "docs" / "chain.md"
SMALL = ("--iters", "1", "--warmup", "1", "--blocks", "1", "--set", "batch_size=1")
ONCE = (*SMALL, "--set", "seq_len=16", "--repeats", "1")
LADDER = (*SMALL, "--ladder", "seq_len=8,16")  # with the three repeats that a verdict needs


def shown_commands() -> list[list[str]]:
    blocks = re.findall(r"^```sh\n(.*?)^```$", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    lines = "".join(blocks).replace("\\\n", " ").splitlines()
    return [shlex.split(line)[1:] for line in lines]


def adjacent(name: str) -> Workload:
    return Workload(
        digest=name.encode().hex().ljust(64, "0"), identity={"seed": 42}, device="cpu",
        name="quick", source="stdlib",
    )  # fmt: skip


def run(words: list[str], store: Store) -> None:
    """One command of the page, in the sizes of a test."""
    name = words[words.index("--study") + 1] if "--study" in words else ""
    if name in ("longer", "wider"):
        record_closable(store, name, explained=False, workload=adjacent(name))
        return
    if words[0] == "measure":
        words = [*words, *(LADDER if "--ladder" in words else ONCE)]
    done = CliRunner().invoke(cli, words)
    assert done.exit_code == 0, f"{words}: {done.output}"
    assert done.stdout.strip()


def test_the_chain_of_the_page_leads_from_a_baseline_to_the_handoff(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clean_surroundings(monkeypatch, tmp_path)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    store = a_store(tmp_path)
    for words in shown_commands():
        run(words, store)

    rows = tp.decisions().set_index("study")
    assert list(rows["kind"]).count("study") == 6
    assert rows.loc["checkpoint everywhere", "kind"] == "regression"
    assert rows.loc["activations", "kind"] == "scope"
    budget = tp.compare("budget")
    candidate = budget.candidates[0].evaluation
    assert budget.baseline_evaluation is not None
    assert candidate is not None
    assert budget.baseline_evaluation.status == "feasible"
    assert candidate.status == "feasible"

    regression = tp.show("checkpoint everywhere")
    studies = [rows.loc[name, "study_id"] for name in ("budget", "longer", "wider")]
    assert list(regression.studies) == studies  # type: ignore[union-attr]
    handoff = tp.load_handoff("budget")  # every hash of the evidence is verified
    assert handoff.study_id == studies[0]
    # Each link of the chain is there; what the page leaves out is told.
    missing = set(handoff.missing_evidence)
    assert "pressure_validation" in missing
    held = {"profile_trace", "phase_memory", "regression", "memory_budget"}
    assert not {*held, "activation_memory_scope"} & missing
    linked = {study.study_id for study in tp.lineage("budget").studies}
    gathered = [str(rows.loc[n, "study_id"]) for n in ("checkpoint everywhere", "activations")]
    assert set(gathered) <= linked


def parsed(words: list[str]) -> Callable[..., object] | None:
    return cli.commands[words[0]].make_context(words[0], words[1:]).command.callback


def test_every_command_of_the_page_is_one() -> None:
    commands = shown_commands()
    assert all(parsed(list(words)) for words in commands)
    order = [words[0] for words in commands]
    assert order.index("measure") < order.index("regress") < order.index("close")
