"""How sure a difference between two variants is that each round measures once, such as memory."""

from __future__ import annotations

from trainperf_mlflow.analysis.sequential import LEVEL
from trainperf_mlflow.analysis.signed_rank import Interval
from trainperf_mlflow.analysis.student import mean_interval
from trainperf_mlflow.results.record import Status
from trainperf_mlflow.results.values import RepeatValues, VariantValues

# What counts bytes of the same work gives the same number again: one round is enough.
_COUNTED = ("peak_mem_mb", "peak_reserved_mb")


def saved_by_round(
    baseline: VariantValues, candidate: VariantValues, metric: str
) -> Interval | None:
    """Baseline - candidate, with the 95 % interval of its mean over the rounds.

    Values that are the same in every round are exact. None where the metric is missing, or one
    round says nothing about how much the next one differs.
    """
    before, after = (_values(variant, metric) for variant in (baseline, candidate))
    saved = [before[index] - after[index] for index in sorted(before.keys() & after.keys())]
    if not saved or (len(saved) == 1 and metric not in _COUNTED):
        return None
    if len(saved) == 1 or max(saved) == min(saved):
        return Interval(saved[0], saved[0], saved[0])
    return mean_interval(saved, LEVEL)


def _values(variant: VariantValues, metric: str) -> dict[int, float]:
    return {
        repeat.index: repeat.metrics[metric]
        for repeat in variant.repeats
        if repeat.status is Status.OK and metric in repeat.metrics
    }


def common_rounds(
    baseline: VariantValues, candidate: VariantValues
) -> list[tuple[RepeatValues, RepeatValues]]:
    """The repeats of the rounds in which both succeeded, side by side."""
    before = {repeat.index: repeat for repeat in baseline.repeats if repeat.status is Status.OK}
    return [
        (before[repeat.index], repeat)
        for repeat in candidate.repeats
        if repeat.status is Status.OK and repeat.index in before
    ]
