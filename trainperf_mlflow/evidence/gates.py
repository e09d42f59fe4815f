"""What a close asks of each candidate: the gates' numbers, and the evidence that there must be."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from trainperf_mlflow.analysis.compare import compare
from trainperf_mlflow.analysis.convergence import judged, with_divergence
from trainperf_mlflow.analysis.side_by_side import contradiction
from trainperf_mlflow.decisions.candidate import candidates_of
from trainperf_mlflow.decisions.qualification import (
    QUALIFICATION_GATES,
    Qualification,
    qualify_memory_candidates,
)
from trainperf_mlflow.evidence.closing_report import Basis, Regression
from trainperf_mlflow.evidence.exported import Exported, candidate_item
from trainperf_mlflow.evidence.identity import MIN_RUNS
from trainperf_mlflow.evidence.imported import BASELINE
from trainperf_mlflow.evidence.reading import Json
from trainperf_mlflow.results.estimates import ConvergenceCheck
from trainperf_mlflow.results.record import Status
from trainperf_mlflow.results.values import VariantValues

BUDGET_POLICIES = frozenset({"memory-strategy", "memory-budget"})
_OPEN_REASONS = frozenset({"gain_not_confirmed", "more_pairs_needed"})


@dataclass(frozen=True)
class Closable:
    """A study and all that a close reads of it, besides the manifest."""

    exported: Exported
    profiles: Mapping[str, Mapping[str, Any]]  # by variant: its trace's summary
    phases: Mapping[str, Mapping[str, Any]]  # by variant: its phases' summary
    scope: Mapping[str, Any] | None = None  # the ladder's report
    scope_basis: Basis | None = None
    pressure: tuple[str, Json] | None = None  # its study and configuration
    regressions: Sequence[Regression] = field(default=())


def qualify(found: Closable, trained: Mapping[str, ConvergenceCheck]) -> Qualification:
    """All candidates by the gates, and what follows for the study.

    Args:
        trained: what longer training led to, by candidate.
    """
    exported = found.exported
    baseline = next(v for v in exported.variants if v.role == "baseline")
    lacking = {
        variant.name: tuple(_lacking(found, baseline, variant))
        for variant in exported.variants
        if variant.role == "candidate"
    }
    feasible = None
    if exported.comparison.policy in BUDGET_POLICIES:
        feasible = {
            candidate.variant
            for candidate in exported.comparison.candidates
            if candidate.evaluation is not None and candidate.evaluation.status == "feasible"
        }
    items = [_judged(variant, baseline, trained) for variant in exported.variants]
    return qualify_memory_candidates(
        items, feasible, lacking, phase_report=bool(_with_phases(found))
    )


def longer_training(found: Closable) -> dict[str, ConvergenceCheck]:
    """What longer training led to, by candidate, held to the gate of the loss."""
    exported = found.exported
    baseline = next(v for v in exported.variants if v.role == "baseline")
    checks = {}
    for variant in exported.variants:
        final = compare(baseline, variant, candidates_of(exported.study)).final
        if variant is not baseline and final is not None:
            check = judged(final, QUALIFICATION_GATES["maximum_loss_delta"])
            checks[variant.name] = with_divergence(check, baseline, variant)
    return checks


def _judged(
    variant: VariantValues, baseline: VariantValues, trained: Mapping[str, ConvergenceCheck]
) -> Json:
    """A variant as the gates read it; memory that was measured in another way is not compared."""
    item = candidate_item(variant, "peak_memory_mb")
    if variant is baseline:
        return {**item, "name": BASELINE}
    if variant.peak_mem_source != baseline.peak_mem_source:
        item.pop("peak_memory_mb", None)
    if variant.name in trained:
        item["longer_training"] = trained[variant.name].verdict
    return item


def _lacking(found: Closable, baseline: VariantValues, variant: VariantValues) -> Iterable[str]:
    pair = {baseline.name, variant.name}
    if min(_ok_repeats(baseline), _ok_repeats(variant)) < MIN_RUNS:
        yield "three_repeats"
    if variant.effect_verified is False:
        yield "change_in_effect"
    if _unconfirmed(found, variant) or contradicted(found, baseline, variant):
        yield "confirmed_gain"
    if not pair <= _with_traces(found):
        yield "profile_trace"
    if not pair <= _with_phases(found):
        yield "phase_memory"
    about = [r for r in found.regressions if r.candidate in (None, variant.name)]
    if not about:
        yield "regression"
    elif any(r.decision != "accept" for r in about):
        yield "regression_acceptance"


def _unconfirmed(found: Closable, variant: VariantValues) -> bool:
    """Whether the budget's own rule would accept the candidate, but its interval does not.

    An imported study has no intervals, and is decided by its point values.
    """
    comparison = found.exported.comparison
    if comparison.policy not in BUDGET_POLICIES:
        return False
    decided = next((c.decision for c in comparison.candidates if c.variant == variant.name), None)
    return decided is not None and (
        decided.reason in _OPEN_REASONS or decided.confidence == "unfit"
    )


def contradicted(found: Closable, baseline: VariantValues, variant: VariantValues) -> bool:
    """Whether the pairs say the opposite of the mean rates that the throughput gate reads."""
    item = next(
        (c for c in found.exported.comparison.candidates if c.variant == variant.name), None
    )
    times = compare(baseline, variant).step_time_ms
    return item is not None and contradiction(times, item.time) is not None


def _ok_repeats(variant: VariantValues) -> int:
    return sum(repeat.status is Status.OK for repeat in variant.repeats)


def _with_traces(found: Closable) -> set[str]:
    return {n for n, s in found.profiles.items() if s.get("status") == "ok" and s.get("trace_file")}


def _with_phases(found: Closable) -> set[str]:
    return {name for name, s in found.phases.items() if s.get("status") == "ok"}
