"""Peaks by phase and category from written-down lives of storages."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from trainperf_mlflow.measurement.account import (
    Life,
    Moment,
    Segment,
    moments,
    peaks_by_phase,
    telling,
)
from trainperf_mlflow.measurement.allocator import ExactAllocator

WEIGHT, BATCH, SAVED, SCRATCH, GRADIENT, STATE, UPDATE, WORKSPACE, RECOMPUTED, KEPT = range(10)
SETUP, FORWARD, BACKWARD, FIRST_UPDATE, SECOND_UPDATE = range(5)

LIVES = [
    Life(100, SETUP, "parameters"),
    Life(1, SETUP),
    Life(40, FORWARD, made_in=1, died=BACKWARD),
    Life(30, FORWARD, made_in=1, died=FORWARD, died_in=1),
    Life(100, BACKWARD, "gradients"),
    Life(200, FIRST_UPDATE),
    Life(50, SECOND_UPDATE, died=SECOND_UPDATE),
    Life(8, FORWARD, "temporaries", kept=True),
    Life(7, BACKWARD, made_in=2, died=BACKWARD, died_in=2),
    Life(3, BACKWARD, made_in=2, died=BACKWARD, died_in=0),
]
SEGMENTS = [
    Segment("setup", [(WEIGHT, True), (BATCH, True)]),
    Segment("forward", [(WORKSPACE, True), (SAVED, True), (SCRATCH, True), (SCRATCH, False)]),
    Segment(
        "backward",
        [
            *((KEPT, True), (RECOMPUTED, True), (GRADIENT, True)),
            *((SAVED, False), (RECOMPUTED, False), (KEPT, False)),
        ],
    ),
    Segment("optimizer", [(STATE, True)]),
    Segment("optimizer", [(UPDATE, True), (UPDATE, False)]),
]
WARM = (SETUP, FORWARD, BACKWARD, FIRST_UPDATE)
MEASURED = (FORWARD, BACKWARD, SECOND_UPDATE)


def played(allocator: ExactAllocator) -> Iterator[Moment]:
    return moments(LIVES, SEGMENTS, WARM, MEASURED, allocator)


def test_a_step_that_is_played_again_is_like_all_that_follow() -> None:
    allocator = ExactAllocator()
    peaks = peaks_by_phase(played(allocator), SEGMENTS)
    # The gradients of the first time are gone, the state and the workspace stay.
    assert peaks["forward"].bytes == 100 + 1 + 8 + 200 + 40 + 30
    assert peaks["backward"].bytes == 100 + 1 + 8 + 200 + 40 + 3 + 7 + 100
    assert peaks["optimizer"].bytes == 100 + 1 + 8 + 200 + 100 + 50
    assert allocator.allocated == 100 + 1 + 8 + 200 + 100


def test_categories_follow_from_birth_and_death_where_nobody_said_them() -> None:
    peaks = peaks_by_phase(played(ExactAllocator()), SEGMENTS)
    assert peaks["forward"].categories == {
        "parameters": 100,
        "gradients": 0,
        "optimizer_state": 200,
        "activations": 40,
        "temporaries": 8 + 30,
        "other": 1,
    }
    # Of what was recomputed, only what outlived its piece was kept for backward.
    assert peaks["backward"].categories["activations"] == 40 + 3
    assert peaks["backward"].categories["temporaries"] == 8 + 7
    assert peaks["optimizer"].categories["temporaries"] == 8 + 50
    for peak in peaks.values():
        assert sum(peak.categories.values()) == peak.bytes


def test_a_course_is_told_by_few_samples_with_every_phases_peak() -> None:
    sizes = [(7 * i) % 1000 for i in range(5000)]
    phases = ["forward" if i < 2000 else "backward" for i in range(5000)]
    sizes[1234], sizes[4321] = 5000, 6000
    chosen = telling(sizes, phases, 400)
    assert len(chosen) <= 400
    assert chosen == sorted(set(chosen))
    assert {0, 1234, 4321, 4999} <= set(chosen)
    # Even: no part of the course is left out.
    assert max(b - a for a, b in pairwise(chosen)) < 5000 / 90
    assert telling(sizes[:9], phases[:9], 400) == list(range(9))
