"""How sure a difference between two variants is that each round measures once, such as memory."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, stdev

from trainperf_mlflow.analysis.signed_rank import Interval
from trainperf_mlflow.results.record import Status
from trainperf_mlflow.results.values import RepeatValues, VariantValues

# Student's t for 95 % and 1 to 30 degrees of freedom; beyond, the normal distribution's.
_T_95 = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    *(2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)
_NORMAL_95 = 1.960
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
    return student_interval(saved)


def student_interval(values: Sequence[float]) -> Interval:
    """The mean of two values or more, and its 95 % interval by Student's t.

    >>> [round(bound, 2) for bound in student_interval([1.0, 2.0, 3.0])]
    [2.0, -0.48, 4.48]
    """
    mean = fmean(values)
    half = student_t(len(values) - 1) * stdev(values) / math.sqrt(len(values))
    return Interval(mean, mean - half, mean + half)


def student_t(freedom: int) -> float:
    """Student's t for 95 % on both sides.

    >>> student_t(2)
    4.303
    """
    return _T_95[freedom - 1] if freedom <= len(_T_95) else _NORMAL_95


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
