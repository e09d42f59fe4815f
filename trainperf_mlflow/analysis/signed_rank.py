"""The Hodges-Lehmann estimate and its exact signed-rank interval, from differences in pairs.

Hollander, Wolfe, Chicken: Nonparametric Statistical Methods, 3rd edition, section 3.2.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

# Beyond this the exact table costs more than its last digits are worth.
MAX_EXACT = 100


class Interval(NamedTuple):
    """An estimate and its bounds; infinite where so few values can bound nothing."""

    estimate: float
    low: float
    high: float


@cache
def signed_rank_cdf(n: int) -> tuple[float, ...]:
    """P(T <= t) for t = 0 .. n (n + 1) / 2, T being the sum of the ranks with positive sign of
    ``n`` differences that are symmetric around 0.

    >>> signed_rank_cdf(3)
    (0.125, 0.25, 0.375, 0.625, 0.75, 0.875, 1.0)
    """
    chance = np.zeros(n * (n + 1) // 2 + 1)
    chance[0] = 1.0
    for rank in range(1, n + 1):
        with_it = np.zeros_like(chance)
        with_it[rank:] = chance[:-rank]
        chance = (chance + with_it) / 2
    return tuple(float(value) for value in np.cumsum(chance))


def signed_rank_interval(differences: Sequence[float], level: float) -> Interval:
    """The median of all pairwise means, and the narrowest bounds that hold it with ``level``.

    Raises:
        ValueError: there are no differences.

    >>> signed_rank_interval([1.0, 2.0, 3.0], 0.75)
    Interval(estimate=2.0, low=1.0, high=3.0)
    """
    if not len(differences):
        raise ValueError("no differences, so nothing can be estimated; measure pairs first")
    values = np.asarray(differences, dtype=float)
    means = walsh_averages(values)
    cut = _ranks_cut(len(values), level)
    bounds = (-math.inf, math.inf) if not cut else (float(means[cut - 1]), float(means[-cut]))
    return Interval(float(np.median(means)), *bounds)


def fewest_values(level: float) -> int:
    """So many differences are bounded at this level at all, by the least and the greatest of them.

    >>> fewest_values(0.95), fewest_values(0.982)
    (6, 7)
    """
    return math.ceil(1 - math.log2(1 - level))


def walsh_averages(values: np.ndarray) -> np.ndarray:
    """The mean of each value with itself and with each other one, sorted."""
    first, second = np.triu_indices(len(values))
    return np.sort((values[first] + values[second]) / 2)


def _ranks_cut(n: int, level: float) -> int:
    """How many of the sorted pairwise means lie outside the interval at either end, plus one;
    0 where even the outermost ones do not reach the level."""
    tail = (1 - level) / 2
    if n > MAX_EXACT:
        mean, spread = n * (n + 1) / 4, math.sqrt(n * (n + 1) * (2 * n + 1) / 24)
        return max(0, math.floor(mean - NormalDist().inv_cdf(1 - tail) * spread))
    # The last bits of a sum of halves must not cost a rank.
    return sum(chance <= tail * (1 + 1e-12) for chance in signed_rank_cdf(n))
