"""Which pairs count: those in which nothing from outside slowed one of the two blocks.

Judged as ``noise`` does, by what kernel, device and the reference computation tell and never by
step times. Both blocks of a pair go together, so a gate that acts by chance favours no side.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from trainperf_mlflow.analysis.noise import disturbed, usual_references_ms
from trainperf_mlflow.analysis.sequential import LEVEL, MIN_PROCESS_PAIRS
from trainperf_mlflow.analysis.signed_rank import fewest_values
from trainperf_mlflow.results.values import BlockValues

# Disturbances that meet one side so much more often than chance allows are that side's own doing.
CHANCE = 0.05


class Pair(NamedTuple):
    """A baseline block and a candidate block, and the process pair they belong to."""

    process_pair: tuple[int, ...]
    baseline: BlockValues
    candidate: BlockValues


class Gated(NamedTuple):
    """The pairs that count, in how many of all a block was disturbed, and why those count as well
    where they do."""

    pairs: Sequence[Pair]
    disturbed: int
    kept_because: str | None = None


def gated(pairs: Sequence[Pair], waits_count: bool, level: float = LEVEL) -> Gated:
    """The pairs without those in which a block was disturbed, where enough are left.

    Args:
        waits_count: whether a wait for a core disturbs; not where the signal is without it.
        level: of the interval that is to be made of them; fewer pairs than it needs are too few.
    """
    blocks = [block for pair in pairs for block in (pair.baseline, pair.candidate)]
    usual = usual_references_ms(blocks)
    found = [disturbed(*known, waits_count) for known in zip(blocks, usual, strict=True)]
    hit = list(zip(found[::2], found[1::2], strict=True))
    clean = [pair for pair, sides in zip(pairs, hit, strict=True) if not any(sides)]
    number = len(pairs) - len(clean)
    if not number:
        return Gated(pairs, 0)
    sides = [sum(a and not b for a, b in hit), sum(b and not a for a, b in hit)]
    if _one_sided(*sides):
        who = "candidate" if sides[1] > sides[0] else "baseline"
        return Gated(
            pairs,
            number,
            f"disturbed pairs count as well, because nearly all disturbances met the {who}, "
            "which chance does not do",
        )
    processes = len({pair.process_pair for pair in clean})
    if processes < MIN_PROCESS_PAIRS or len(clean) < fewest_values(level):
        return Gated(
            pairs, number, "disturbed pairs count as well, because too few others are left"
        )
    return Gated(clean, number)


def _one_sided(first: int, second: int) -> bool:
    """McNemar's exact test of the pairs in which only one block was disturbed.

    >>> _one_sided(0, 5), _one_sided(0, 6), _one_sided(4, 12), _one_sided(3, 14)
    (False, True, False, True)
    """
    both = first + second
    tail = sum(math.comb(both, count) for count in range(min(first, second) + 1))
    return bool(2 * tail < CHANCE * 2**both)
