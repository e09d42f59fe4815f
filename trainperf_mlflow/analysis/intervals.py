"""Algebra of time intervals.

A set of intervals is an array of shape (n, 2), start and end, sorted and
disjoint: what `union` returns. Every function takes such sets and returns one,
in O((n + m) log(n + m)) without a loop over intervals.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Intervals = NDArray[np.float64]
Times = NDArray[np.float64]

EMPTY: Intervals = np.empty((0, 2))


def intervals(start: Times, end: Times) -> Intervals:
    """The set that spans of any order and overlap cover; empty and reversed spans cover nothing.

    >>> intervals(np.array([5.0, 0.0, 1.0]), np.array([6.0, 2.0, 3.0])).tolist()
    [[0.0, 3.0], [5.0, 6.0]]
    """
    covers = end > start
    start, end = start[covers], end[covers]
    if not len(start):
        return EMPTY
    order = np.argsort(start, kind="stable")
    start, reach = start[order], np.maximum.accumulate(end[order])
    first = np.concatenate(([True], start[1:] > reach[:-1]))
    last = np.concatenate((first[1:], [True]))
    return np.column_stack((start[first], reach[last]))


def union(*sets: Intervals) -> Intervals:
    """What at least one of the sets covers."""
    stacked = np.concatenate((EMPTY, *sets))
    return intervals(stacked[:, 0], stacked[:, 1])


def intersect(a: Intervals, b: Intervals) -> Intervals:
    """What both sets cover.

    >>> intersect(np.array([[0.0, 4.0]]), np.array([[1.0, 2.0], [3.0, 9.0]])).tolist()
    [[1.0, 2.0], [3.0, 4.0]]
    """
    first = np.searchsorted(b[:, 1], a[:, 0], side="right")
    beyond = np.searchsorted(b[:, 0], a[:, 1], side="left")
    counts = np.maximum(beyond - first, 0)
    of_a = np.repeat(np.arange(len(a)), counts)
    nth = np.arange(len(of_a)) - np.repeat(np.cumsum(counts) - counts, counts)
    of_b = np.repeat(first, counts) + nth
    start = np.maximum(a[of_a, 0], b[of_b, 0])
    end = np.minimum(a[of_a, 1], b[of_b, 1])
    both: Intervals = np.column_stack((start, end))[end > start]
    return both


def gaps(a: Intervals, start: float, end: float) -> Intervals:
    """What the set leaves uncovered between two times.

    >>> gaps(np.array([[1.0, 2.0]]), 0.0, 5.0).tolist()
    [[0.0, 1.0], [2.0, 5.0]]
    """
    edges = np.clip(np.concatenate(([start], a.ravel(), [end])), start, end).reshape(-1, 2)
    return edges[edges[:, 1] > edges[:, 0]]


def subtract(a: Intervals, b: Intervals) -> Intervals:
    """What the first set covers and the second does not."""
    if not len(a) or not len(b):
        return a
    return intersect(a, gaps(b, a[0, 0], a[-1, 1]))


def measure(a: Intervals) -> float:
    """The total length."""
    return float(np.sum(a[:, 1] - a[:, 0]))


def measure_within(a: Intervals, windows: Intervals) -> Times:
    """The length that the set covers in each window, of shape (len(windows),).

    The windows may be in any order and overlap each other.

    >>> measure_within(np.array([[1.0, 3.0]]), np.array([[0.0, 2.0], [2.0, 9.0]])).tolist()
    [1.0, 1.0]
    """
    return _covered_until(a, windows[:, 1]) - _covered_until(a, windows[:, 0])


def contains(a: Intervals, times: Times) -> NDArray[np.bool_]:
    """Which times lie in the set; an interval's start does, its end does not."""
    if not len(a):
        return np.zeros(len(times), dtype=bool)
    index = np.searchsorted(a[:, 0], times, side="right") - 1
    inside: NDArray[np.bool_] = (index >= 0) & (times < a[np.maximum(index, 0), 1])
    return inside


def _covered_until(a: Intervals, times: Times) -> Times:
    before = np.concatenate(([0.0], np.cumsum(a[:, 1] - a[:, 0])))
    index = np.searchsorted(a[:, 0], times, side="right")
    reach = np.concatenate(([-np.inf], a[:, 1]))[index]
    return before[index] - np.maximum(reach - times, 0.0)
