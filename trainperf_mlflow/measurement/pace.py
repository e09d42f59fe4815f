"""How many steps warm up and how many make a block, where the plan does not fix it.

Both are the same for all variants and all rounds of a study: a loss after some steps can only
be compared with one after as many.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

# A block is long enough to hold some turns of a scheduler, and short enough to have a neighbour.
MIN_STEPS = 10
MIN_BLOCK_MS = 500.0
# Each step leaves its time and its loss on record.
MAX_STEPS = 2000

# Warmup: windows of steps, until one is not faster than the one before it.
WINDOW_STEPS = 3
WINDOW_MS = 50.0
STILL_FASTER = 0.95
MAX_WINDOWS = 10
MAX_WARMUP_MS = 30_000.0


def steps_per_block(step_ms: Sequence[float]) -> int:
    """So many steps that the fastest variant's block is long enough.

    >>> steps_per_block([62.0]), steps_per_block([62.0, 5.0]), steps_per_block([0.01])
    (10, 100, 2000)
    """
    if not step_ms or min(step_ms) <= 0:
        return MIN_STEPS
    return min(MAX_STEPS, max(MIN_STEPS, math.ceil(MIN_BLOCK_MS / min(step_ms))))


def window_steps(step_ms: Sequence[float]) -> int:
    """The steps of the next window of warmup, from each variant's last step time.

    >>> window_steps([62.0, 40.0]), window_steps([1.0])
    (3, 50)
    """
    if not step_ms or min(step_ms) <= 0:
        return WINDOW_STEPS
    return min(MAX_STEPS, max(WINDOW_STEPS, math.ceil(WINDOW_MS / min(step_ms))))


def settled(before: Sequence[float], after: Sequence[float]) -> bool:
    """Whether the later of two windows of steps (ms) is not faster than the earlier one.

    Slower is as good: warmup makes steps faster, and what makes them slower is somebody else.

    >>> settled([9.0, 7.0, 6.0], [5.0, 5.0, 5.1]), settled([5.0, 5.1, 5.0], [4.9, 5.0, 5.2])
    (False, True)
    """
    return median(after) >= STILL_FASTER * median(before)
