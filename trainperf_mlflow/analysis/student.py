"""Student's t at any level: the mean of a few values, and how sure it is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, stdev

from trainperf_mlflow.analysis.signed_rank import Interval


def mean_interval(values: Sequence[float], level: float) -> Interval:
    """The mean of two values or more, and the bounds that hold it with ``level``.

    >>> [round(bound, 2) for bound in mean_interval([1.0, 2.0, 3.0], 0.95)]
    [2.0, -0.48, 4.48]
    """
    mean = fmean(values)
    half = quantile(len(values) - 1, level) * stdev(values) / math.sqrt(len(values))
    return Interval(mean, mean - half, mean + half)


def quantile(freedom: int, level: float) -> float:
    """How far from 0, on both sides, ``level`` of Student's t lies.

    >>> round(quantile(2, 0.95), 3), round(quantile(9, 0.99), 3)
    (4.303, 3.25)
    """
    low, high = 0.0, 1.0
    while _within(high, freedom) < level:
        low, high = high, 2 * high
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _within(middle, freedom) < level else (low, middle)
    return high


def _within(t: float, freedom: int) -> float:
    """The share between -t and t (Abramowitz and Stegun 26.7.3 and 26.7.4)."""
    angle = math.atan(t / math.sqrt(freedom))
    cosine, sine = math.cos(angle), math.sin(angle)
    odd = freedom % 2
    term, total = (cosine if odd else 1.0), 0.0
    for power in range(2 + odd, freedom + 1, 2):
        total += term
        term *= cosine**2 * (power - 1) / power
    return 2 / math.pi * (angle + sine * total) if odd else sine * total
