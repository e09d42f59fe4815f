"""Peaks by phase and category from written-down lives of storages."""

from __future__ import annotations

from trainperf_mlflow.measurement.estimate.account import Life, Segment, account
from trainperf_mlflow.measurement.estimate.allocator import ExactAllocator

WEIGHT, BATCH, SAVED, SCRATCH, GRADIENT, STATE, UPDATE, WORKSPACE, RECOMPUTED = range(9)
SETUP, FORWARD, BACKWARD, FIRST_UPDATE, SECOND_UPDATE = range(5)

LIVES = [
    Life(100, SETUP, recorded=True, category="parameters"),
    Life(1, SETUP, recorded=True),
    Life(40, FORWARD, recorded=True, died=BACKWARD),
    Life(30, FORWARD, recorded=True, died=FORWARD),
    Life(100, BACKWARD, recorded=False, category="gradients"),
    Life(200, FIRST_UPDATE, recorded=False),
    Life(50, SECOND_UPDATE, recorded=False, died=SECOND_UPDATE),
    Life(8, FORWARD, recorded=False, category="temporaries", kept=True),
    Life(7, BACKWARD, recorded=True, died=BACKWARD),
]
SEGMENTS = [
    Segment("setup", [(WEIGHT, True), (BATCH, True)]),
    Segment("forward", [(WORKSPACE, True), (SAVED, True), (SCRATCH, True), (SCRATCH, False)]),
    Segment(
        "backward", [(RECOMPUTED, True), (GRADIENT, True), (SAVED, False), (RECOMPUTED, False)]
    ),
    Segment("optimizer", [(STATE, True)]),
    Segment("optimizer", [(UPDATE, True), (UPDATE, False)]),
]


def test_a_step_that_is_played_again_is_like_all_that_follow() -> None:
    warm = [SETUP, FORWARD, BACKWARD, FIRST_UPDATE]
    allocator = ExactAllocator()
    peaks = account(LIVES, SEGMENTS, warm, [FORWARD, BACKWARD, SECOND_UPDATE], allocator)
    # The gradients of the first time are gone, the state and the workspace stay.
    assert peaks["forward"].bytes == 100 + 1 + 8 + 200 + 40 + 30
    assert peaks["backward"].bytes == 100 + 1 + 8 + 200 + 40 + 7 + 100
    assert peaks["optimizer"].bytes == 100 + 1 + 8 + 200 + 100 + 50
    assert allocator.allocated == 100 + 1 + 8 + 200 + 100


def test_categories_follow_from_birth_and_death_where_nobody_said_them() -> None:
    warm = [SETUP, FORWARD, BACKWARD, FIRST_UPDATE]
    peaks = account(LIVES, SEGMENTS, warm, [FORWARD, BACKWARD, SECOND_UPDATE], ExactAllocator())
    assert peaks["forward"].categories == {
        "parameters": 100,
        "gradients": 0,
        "optimizer_state": 200,
        "activations": 1 + 40,
        "temporaries": 8 + 30,
    }
    assert peaks["backward"].categories["activations"] == 1 + 40 + 7
    assert peaks["optimizer"].categories["temporaries"] == 8 + 50
    for peak in peaks.values():
        assert sum(peak.categories.values()) == peak.bytes
