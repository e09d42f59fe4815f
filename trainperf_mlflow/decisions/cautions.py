"""What to know about a comparison before trusting it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from trainperf_mlflow.analysis.compare import measured
from trainperf_mlflow.analysis.side_by_side import contradiction
from trainperf_mlflow.decisions.case import Case
from trainperf_mlflow.decisions.outcomes import failed_repeats, has_ok_repeat, ok_repeats, outcome
from trainperf_mlflow.results.comparison import CandidateComparison
from trainperf_mlflow.results.decision import Evaluation
from trainperf_mlflow.results.estimates import PairedEstimate
from trainperf_mlflow.results.record import Status
from trainperf_mlflow.results.values import VariantValues

# Repeats of the same code that differ by more than this say that time is not to be trusted.
_SPREAD_WORTH_TELLING = 0.15


def study_warnings(
    cases: Sequence[Case],
    times: Sequence[PairedEstimate | None],
    compared: Sequence[CandidateComparison],
    evaluations: Iterable[Evaluation],
) -> Iterator[str]:
    """Of a baseline and its candidates; ``cases``, ``times`` and ``compared`` in one order."""
    baseline = cases[0].baseline
    yield from repeat_warnings(baseline)
    yield from _case_warnings(cases)
    yield from _reserved_warnings(evaluations)
    yield from _contradiction_warnings(cases, times)
    yield from _disturbed_warnings(compared)
    yield from _loss_warnings(compared)
    if not any(times):  # an interval says it better
        yield from spread_warnings([baseline, *(case.candidate for case in cases)])


def _case_warnings(cases: Sequence[Case]) -> Iterator[str]:
    for case in cases:
        name, difference = case.candidate.name, case.difference
        if not has_ok_repeat(case.candidate):
            continue
        yield from repeat_warnings(case.candidate)
        counts = [ok_repeats(variant) for variant in (case.baseline, case.candidate)]
        if counts[0] != counts[1]:
            yield f"the baseline has {counts[0]} ok repeats, {name} has {counts[1]}"
        if difference.per_sample:
            yield f"{name} has other samples per step: its time is compared per sample"
        if difference.memory_gap is not None:
            yield difference.memory_gap
        if case.candidate.effect_verified is None and case.candidate.changed_variable:
            yield f"{name}: whether the change is in effect could not be checked"
        if difference.quality_gap is not None:
            yield f"quality was not checked: {difference.quality_gap}"
    if cases and ok_repeats(cases[0].baseline) == 1:
        yield "one repeat says nothing about how much repeats differ; measure at least three"


def _reserved_warnings(evaluations: Iterable[Evaluation]) -> Iterator[str]:
    over = [item.name for item in evaluations if item.reserved_over_cap]
    if over:
        yield (
            f"the allocator reserved more than memory_cap_mb ({', '.join(over)}), although what "
            "was allocated fits: a device of that size may run out of memory"
        )


def repeat_warnings(variant: VariantValues) -> Iterator[str]:
    if failed_repeats(variant):
        yield f"{variant.name}: {outcome(variant)}"


def _contradiction_warnings(
    cases: Sequence[Case], times: Sequence[PairedEstimate | None]
) -> Iterator[str]:
    for case, time in zip(cases, times, strict=True):
        said = contradiction(case.difference.step_time_ms, time)
        if said is not None and has_ok_repeat(case.candidate):
            yield f"{case.candidate.name}: {said}"


def _disturbed_warnings(compared: Sequence[CandidateComparison]) -> Iterator[str]:
    for item in compared:
        if item.time is not None and item.time.disturbed_pairs:
            measured = item.time.pairs + item.time.set_aside
            yield (
                f"{item.variant}: something outside disturbed {item.time.disturbed_pairs} of "
                f"{measured} pairs; set aside: {item.time.set_aside}"
            )


def _loss_warnings(compared: Sequence[CandidateComparison]) -> Iterator[str]:
    for item in compared:
        if item.loss_curve is not None and item.loss_curve.verdict == "different":
            yield f"{item.variant}: {item.loss_curve.text}"
        check = item.convergence
        # Where it may still be better, but not worse, nothing is to be feared.
        if check is not None and (
            check.verdict == "diverged" or check.high is None or check.high > check.margin
        ):
            yield f"{item.variant}: {check.text}"


def spread_warnings(variants: Sequence[VariantValues]) -> Iterator[str]:
    spreads = []
    for variant in variants:
        times = [
            time
            for repeat in variant.repeats
            if repeat.status is Status.OK
            and (time := measured(repeat.metrics, "step_time_ms")) is not None
        ]
        if len(times) > 1 and max(times) > min(times) * (1 + _SPREAD_WORTH_TELLING):
            spreads.append(f"{variant.name} {min(times):.3g} to {max(times):.3g} ms a step")
    if spreads:
        yield (
            f"repeats of the same code differ ({', '.join(spreads)}), so differences in time of "
            "that size prove nothing; measure again on a quiet machine, with more repeats"
        )
