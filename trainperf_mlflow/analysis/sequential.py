"""When a study has measured enough: a fixed ladder of looks, and what they cost in certainty.

Whoever looks again and again at identical code finds a difference in the end. So looks are
fixed in advance, and each asks for more than the level that the whole study keeps (Pocock,
Biometrika 1977). Several candidates share the error as well (Bonferroni).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist

LEVEL = 0.95
# A process pair is a sample of its own: more blocks of it would say less and less.
PAIRS_PER_PROCESS_PAIR = 4
MIN_PROCESS_PAIRS = 3
# After so many process pairs a study that may go on is looked at: 12, 16, 24 and 32 pairs.
LADDER = (3, 4, 6, 8)
# More pairs than this are no advice: the machine must change, not the patience.
MOST_PAIRS = 400
# Pocock's two-sided constants for a level of 95 % and 1 to 5 looks.
_POCOCK = {1: 1.960, 2: 2.178, 3: 2.289, 4: 2.361, 5: 2.413}


def level_per_look(looks: int, candidates: int = 1) -> float:
    """The level of each interval, so that all of them together keep ``LEVEL``.

    >>> round(level_per_look(1), 3), round(level_per_look(4), 3), round(level_per_look(1, 2), 3)
    (0.95, 0.982, 0.975)
    """
    one = 2 * (1 - NormalDist().cdf(_POCOCK[looks]))
    return 1 - one / max(1, candidates)


def looks_allowed(repeats: int, adaptive: bool) -> tuple[int, ...]:
    """After how many process pairs the study is looked at.

    A plan without a time budget measures its repeats and looks once. With one it may go on.

    >>> looks_allowed(3, adaptive=True), looks_allowed(5, adaptive=True), looks_allowed(3, False)
    ((3, 4, 6, 8), (5, 6, 8), (3,))
    """
    if not adaptive:
        return (repeats,)
    return (repeats, *(rounds for rounds in LADDER if rounds > repeats))


def pairs_to_settle(pairs: int, half_width: float, distance: float) -> int | None:
    """About how many more pairs narrow an interval of ``half_width`` to ``distance``.

    The width falls with the square root of the pairs. None where that is more than can be
    advised. Whole process pairs are counted.

    >>> pairs_to_settle(12, half_width=2.0, distance=1.0), pairs_to_settle(12, 1.0, 1.5)
    (36, 0)
    """
    if not distance > 0 or not math.isfinite(half_width):
        return None
    wanted = pairs * (half_width / distance) ** 2
    if wanted > MOST_PAIRS:
        return None
    more = max(0, math.ceil(wanted - pairs))
    return math.ceil(more / PAIRS_PER_PROCESS_PAIR) * PAIRS_PER_PROCESS_PAIR


def hopeless(more_pairs: Sequence[int | None], pairs_left: int) -> bool:
    """Whether none of what is still open would be settled by the pairs that are left."""
    return bool(more_pairs) and all(more is None or more > pairs_left for more in more_pairs)
