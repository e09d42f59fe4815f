"""The algebra of intervals, against the same on sets of whole numbers."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from trainperf_mlflow.analysis.intervals import (
    Intervals,
    contains,
    gaps,
    intersect,
    intervals,
    measure,
    measure_within,
    subtract,
    union,
)

SPANS = st.lists(st.tuples(st.integers(0, 60), st.integers(-2, 12)), max_size=12)


def made(spans: list[tuple[int, int]]) -> Intervals:
    """Spans of start and length, some of them empty or reversed."""
    start = np.array([start for start, _ in spans], float)
    return intervals(start, start + np.array([length for _, length in spans], float))


def points(found: Intervals) -> set[int]:
    """A set of intervals between whole numbers as the unit intervals that it covers."""
    return {point for start, end in found for point in range(int(start), int(end))}


def assert_canonical(found: Intervals) -> None:
    assert np.all(found[:, 0] < found[:, 1])
    assert np.all(found[1:, 0] >= found[:-1, 1])


@given(SPANS)
def test_intervals_cover_what_their_spans_cover_sorted_and_apart(
    spans: list[tuple[int, int]],
) -> None:
    found = made(spans)
    assert_canonical(found)
    assert np.all(found[1:, 0] > found[:-1, 1])
    assert points(found) == {p for start, length in spans for p in range(start, start + length)}


@given(SPANS, SPANS)
def test_union_intersection_and_difference_are_those_of_sets(
    a: list[tuple[int, int]], b: list[tuple[int, int]]
) -> None:
    one, other = made(a), made(b)
    for operation, expected in (
        (union, points(one) | points(other)),
        (intersect, points(one) & points(other)),
        (subtract, points(one) - points(other)),
    ):
        found = operation(one, other)
        assert_canonical(found)
        assert points(found) == expected
        assert measure(found) == len(expected)


@given(SPANS)
def test_gaps_are_the_complement_within_bounds(spans: list[tuple[int, int]]) -> None:
    found = gaps(made(spans), 5.0, 40.0)
    assert_canonical(found)
    assert points(found) == set(range(5, 40)) - points(made(spans))


@given(SPANS, SPANS)
def test_lengths_within_windows_are_those_of_the_intersections(
    a: list[tuple[int, int]], windows: list[tuple[int, int]]
) -> None:
    one, within = made(a), made(windows)
    expected = [len(points(one) & set(range(int(b), int(e)))) for b, e in within]
    assert measure_within(one, within).tolist() == expected


@given(SPANS)
def test_a_time_is_contained_from_an_intervals_start_to_before_its_end(
    spans: list[tuple[int, int]],
) -> None:
    times = np.arange(80.0)
    covered = points(made(spans))
    assert contains(made(spans), times).tolist() == [int(t) in covered for t in times]
