"""Long series cut down to evenly chosen values, the same ones wherever the length is the same."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")

# What is kept of a block's losses: short steps make blocks of hundreds of them.
LOSSES_OF_BLOCK = 100


def stride(count: int, most: int) -> int:
    """Every how many of ``count`` values one is kept, so that at most ``most`` are.

    >>> stride(100, 100), stride(101, 100)
    (1, 2)
    """
    return max(1, math.ceil(count / most))


def evenly(values: Sequence[T], most: int) -> tuple[T, ...]:
    """The first value and every ``stride``-th after it.

    >>> evenly((1, 2, 3, 4, 5), 3)
    (1, 3, 5)
    """
    return tuple(values[:: stride(len(values), most)])
