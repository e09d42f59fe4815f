"""In which order the variants are measured: a pure function of the plan and its seed.

Baselines first and candidates after them is how identical code gets called
faster: whatever drifts (heat, a neighbour) is then attributed to the change.
So blocks of all variants stand next to each other, in an order that chance
decides, and chance is seeded.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

Isolation = Literal["auto", "process", "resident"]


class Round(NamedTuple):
    """One round: the order in which its processes start, and that of each set of blocks.

    The blocks of one set are neighbours in time: the baseline's makes a pair with each
    candidate's.
    """

    number: int
    starts: tuple[str, ...]
    blocks: tuple[tuple[str, ...], ...]


def paired_rounds(variants: Sequence[str], blocks: int, seed: int) -> Iterator[Round]:
    """Rounds without end; what one of them looks like depends on the seed and its number alone.

    >>> first = next(paired_rounds(["a", "b"], 2, seed=1))
    >>> first.starts, first.blocks
    (('b', 'a'), (('a', 'b'), ('b', 'a')))
    """
    index = 0
    while True:
        chance = random.Random(f"{seed}/{index}")

        def shuffled(chance: random.Random = chance) -> tuple[str, ...]:
            return tuple(chance.sample(list(variants), len(variants)))

        yield Round(index, shuffled(), tuple(shuffled() for _ in range(blocks)))
        index += 1


def round_orders(variants: Sequence[str], rounds: int, seed: int) -> Iterator[tuple[str, ...]]:
    """An order for each round where every variant is looked at once: a random one, then its
    reverse, then a new one, so that over two rounds each stands on average in the same place.

    >>> list(round_orders(["a", "b"], 3, seed=1))
    [('a', 'b'), ('b', 'a'), ('b', 'a')]
    """
    chance = random.Random(seed)
    order: tuple[str, ...] = tuple(variants)
    for index in range(rounds):
        if index % 2 == 0:
            order = tuple(chance.sample(list(variants), len(variants)))
        else:
            order = order[::-1]
        yield order
