"""The benchmark's findings as Markdown: the streams, our aims, and a table for each condition."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from decisions_bench.peers import Rule
from decisions_bench.scoring import (
    CHANGES_PCT,
    EQUAL,
    EQUAL_NET,
    OURS,
    OURS_CALIBRATED,
    Covered,
    Judged,
    Kind,
    Rate,
    conditions,
    rate,
)
from decisions_bench.streams import Stream
from trainperf_mlflow.analysis.noise import SLOW_REFERENCE
from trainperf_mlflow.analysis.signal import GATE

_OUR_RULES = (OURS, OURS_CALIBRATED)
QUIET, BESIDE = "quiet", "one neighbour"
# An aim of "never" wants so many studies; no number of them proves a share of 100 %.
ENOUGH, PROOF = 100, 0.99


class Findings(NamedTuple):
    """Everything that is counted."""

    streams: Sequence[Stream]
    judged: Sequence[Judged]
    covered: Sequence[Covered]
    peers: Sequence[Rule]

    @property
    def rules(self) -> tuple[str, ...]:
        return (*_OUR_RULES, *(rule.name for rule in self.peers), EQUAL, EQUAL_NET)

    def select(
        self,
        condition: str,
        rule: str,
        kind: Kind,
        order: str = "pairs",
        change_pct: int | None = None,
    ) -> list[Judged]:
        """Studies of one kind; of changes only those that the rule can report at all."""
        answers = next((peer.answers for peer in self.peers if peer.name == rule), None)
        return [
            one
            for one in self.judged
            if (one.condition, one.rule, one.order, one.case.kind) == (condition, rule, order, kind)
            and change_pct in (None, one.case.change_pct)
            and (kind == "identical" or answers is None or one.case.truth in answers)
        ]

    def rate(self, judged: Sequence[Judged], hit: Callable[[Any], bool]) -> Rate | None:
        return rate(judged, hit, self.streams)

    def own_order(self, rule: str) -> str | None:
        return next((peer.own_order for peer in self.peers if peer.name == rule), None)


def markdown(findings: Findings) -> str:
    """All tables, each with what it shows."""
    parts = [
        "### The streams",
        *_table(_streams(findings)),
        "",
        "### Our aims",
        *_table(_aims(findings)),
    ]
    for condition in conditions(findings.streams):
        parts += ["", f"### The rules: {condition}", *_table(_rules(findings, condition))]
    parts += ["", "### More work, really", *_table(_real(findings))]
    parts += ["", "### Where the rules come from", *_table(_origins(findings))]
    return "\n".join(parts)


def _table(rows: Iterable[Sequence[str]]) -> Iterator[str]:
    head, *others = rows
    yield ""
    yield f"| {' | '.join(head)} |"
    yield "|---" * len(head) + "|"
    for row in others:
        yield f"| {' | '.join(row)} |"


def _streams(findings: Findings) -> Iterator[Sequence[str]]:
    yield (
        *("Condition", "Workload", "Process pairs", "Blocks x steps", "Step, median"),
        *("Blocks that waited, on a slow core, measured again", "Neighbour", "Machine", "Recorded"),
    )
    for stream in findings.streams:
        about, shape = stream.about, stream.step_ms.shape
        waits = stream.wait_ms.sum(-1) / stream.block_ms > GATE
        cores = about["neighbour_cores"]
        yield (
            about["condition"],
            about["workload"],
            str(stream.rounds),
            f"{stream.block_ms.size} x {shape[-1]}",
            f"{np.median(stream.step_ms[:, :, :2]):.1f} ms",
            f"{100 * waits.mean():.0f} %, {100 * slow_cores(stream).mean():.0f} %, "
            f"{100 * about['measured_again'] / waits.size:.0f} %",
            "none" if cores is None else f"{cores:.2f} cores",
            f"{about['cpu']}, {about['cores']} cores ({about['busy_cores']:.2f} busy)",
            f"{about['recorded_at']}, {about['seconds']} s",
        )


def slow_cores(stream: Stream) -> np.ndarray:
    """Which blocks the reference computation says were on a slow core: round, set, variant."""
    usual_ms = np.quantile(stream.reference_ms, 0.25)
    return np.asarray(stream.reference_ms.max(axis=-1) > SLOW_REFERENCE * usual_ms)


def _rules(findings: Findings, condition: str) -> Iterator[Sequence[str]]:
    yield (
        *("Rule", "Identical code, its own order", "Identical code, in pairs"),
        *(f"{change} % found" for change in CHANGES_PCT),
        *("Wrong sign", "Undecided", "Pairs"),
    )
    for rule in findings.rules:
        own = findings.own_order(rule)
        identical = findings.select(condition, rule, "identical")
        changed = findings.select(condition, rule, "multiplied")
        sequence = findings.select(condition, rule, "identical", own) if own else []
        everything = [*identical, *changed]
        undecided = findings.rate(everything, lambda one: one.verdict == "undecided")
        yield (
            rule,
            _bounded(findings.rate(sequence, lambda one: one.wrong)),
            _bounded(findings.rate(identical, lambda one: one.wrong)),
            *(
                _plain(
                    findings.rate(
                        findings.select(condition, rule, "multiplied", change_pct=change),
                        lambda one: one.right,
                    )
                )
                for change in CHANGES_PCT
            ),
            _bounded(findings.rate(changed, lambda one: one.wrong)),
            _plain(undecided) if rule in _OUR_RULES else "-",
            f"{np.mean([one.pairs for one in everything]):.1f}" if everything else "-",
        )


def _real(findings: Findings) -> Iterator[Sequence[str]]:
    yield ("Condition", "Rule", *(f"{change} % found" for change in CHANGES_PCT), "Wrong sign")
    for condition in conditions(findings.streams):
        for rule in findings.rules:
            changed = findings.select(condition, rule, "real")
            if changed:
                found = (
                    findings.rate(
                        findings.select(condition, rule, "real", change_pct=change),
                        lambda one: one.right,
                    )
                    for change in CHANGES_PCT
                )
                wrong = findings.rate(changed, lambda one: one.wrong)
                yield (condition, rule, *map(_plain, found), _bounded(wrong))


def _origins(findings: Findings) -> Iterator[Sequence[str]]:
    words = {"sequence": "baseline, then candidate", "abba": "A B B A"}
    yield ("Rule", "Its code", "Its own order", "What it reports")
    for rule in findings.peers:
        yield (rule.name, rule.origin, words[rule.own_order], " and ".join(rule.answers))


# --- aims --------------------------------------------------------------------------------------


def _aims(findings: Findings) -> Iterator[Sequence[str]]:
    yield ("Aim", "Condition", "Seen", "Studies apart", "")
    for condition in conditions(findings.streams):
        identical = findings.select(condition, OURS, "identical")
        yield _aim(
            "identical code never called faster or slower",
            condition,
            findings.rate(identical, lambda one: one.wrong),
        )
        changed = [
            one for kind in ("multiplied", "real") for one in findings.select(condition, OURS, kind)
        ]
        yield _aim(
            "never the wrong sign",
            condition,
            findings.rate(changed, lambda one: one.wrong),
        )
        covered = [one for one in findings.covered if one.condition == condition]
        yield _aim(
            "the 95 % interval holds the truth",
            condition,
            rate(covered, lambda one: one.held, findings.streams),
            least=0.95,
        )
    for condition, change, pairs, least, rule in (
        (QUIET, 5, 16, 0.99, OURS),
        (BESIDE, 5, 24, 0.95, OURS),
        (QUIET, 10, 12, 1.0, OURS),
        (BESIDE, 10, 12, 1.0, OURS),
        (QUIET, 2, 24, 0.90, OURS_CALIBRATED),
        (BESIDE, 2, 24, 0.50, OURS_CALIBRATED),
    ):
        judged = findings.select(condition, rule, "multiplied", change_pct=change)
        margin = ", margin 0.5 %" if rule == OURS_CALIBRATED else ""
        yield _aim(
            f"{change} % found within {pairs} pairs{margin}",
            condition,
            findings.rate(judged, _found_within(pairs)),
            least=least,
        )
    for condition in conditions(findings.streams):
        for rival in (EQUAL, EQUAL_NET):
            yield _ahead(findings, condition, 2, rival)


def _found_within(pairs: int) -> Callable[[Judged], bool]:
    return lambda one: one.right and one.pairs <= pairs


def _aim(name: str, condition: str, seen: Rate | None, least: float | None = None) -> Sequence[str]:
    """Whether at least that share was seen, or, without one, nothing at all in enough studies."""
    wanted = f"none in {ENOUGH} studies" if least is None else f"at least {_pct(least)}"
    if seen is None:
        return (f"{name} ({wanted})", condition, "-", "0", "not recorded")
    if least is None:
        kept, proven = seen.share == 0, seen.studies >= ENOUGH
    else:
        kept, proven = seen.share >= least, seen.low >= min(least, PROOF)
    word = "kept" if kept and proven else "kept, in too few studies to prove it"
    return (
        f"{name} ({wanted})",
        condition,
        _bounded(seen),
        str(seen.studies),
        word if kept else "short",
    )


def _ahead(findings: Findings, condition: str, change: int, rival: str) -> Sequence[str]:
    """Ours against Mann-Whitney with as few false verdicts.

    With both margins, since it claims any difference, and ours one that is larger than its margin.
    """
    ours, calibrated, theirs = (
        findings.rate(
            findings.select(condition, rule, "multiplied", change_pct=change),
            lambda one: one.right,
        )
        for rule in (OURS, OURS_CALIBRATED, rival)
    )
    name = f"{change} % found (with a margin of 0.5 %), ahead of: {rival}"
    if ours is None or calibrated is None or theirs is None:
        return (name, condition, "-", "0", "not recorded")
    seen = f"{_pct(ours.share)} ({_pct(calibrated.share)}) against {_pct(theirs.share)}"
    words = ["ahead" if own.share > theirs.share else "short" for own in (ours, calibrated)]
    return (name, condition, seen, str(ours.studies), f"{words[0]} ({words[1]})")


def _pct(share: float) -> str:
    return f"{100 * share:.0f} %"


def _plain(found: Rate | None) -> str:
    return "-" if found is None else _pct(found.share)


def _bounded(found: Rate | None) -> str:
    if found is None:
        return "-"
    return f"{_pct(found.share)} [{100 * found.low:.0f}, {100 * found.high:.0f}]"
