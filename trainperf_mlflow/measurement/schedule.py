"""In which order the variants are measured: a pure function of the plan and its seed.

Baselines first and candidates after them is how identical code gets called
faster: whatever drifts (heat, a neighbour) is then attributed to the change.
So every round measures every variant once, and the order changes from round
to round: a seeded random order, then its reverse, then a new one, so that over
two rounds each variant stands on average in the same place.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

Isolation = Literal["process", "resident"]


class Action(NamedTuple):
    """One thing to do: start, warmup, block or finish a variant's repeat of a round."""

    kind: Literal["start", "warmup", "block", "finish"]
    variant: str
    round: int
    block: int = 0


def round_orders(variants: Sequence[str], rounds: int, seed: int) -> Iterator[tuple[str, ...]]:
    """The order of the variants in each round.

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


def round_actions(
    order: Sequence[str], round_index: int, blocks: int, isolation: Isolation
) -> Iterator[Action]:
    """What one round does, step by step.

    ``process``: one variant at a time, its process ends before the next one
    starts. ``resident``: all processes of the round stay alive and take turns
    by blocks, the order reversed from block to block; only one ever runs.

    >>> [f"{a.kind} {a.variant}" for a in round_actions(["a", "b"], 0, 1, "process")][:4]
    ['start a', 'warmup a', 'block a', 'finish a']
    """
    if isolation == "process":
        for variant in order:
            yield Action("start", variant, round_index)
            yield Action("warmup", variant, round_index)
            for block in range(blocks):
                yield Action("block", variant, round_index, block)
            yield Action("finish", variant, round_index)
        return
    for variant in order:
        yield Action("start", variant, round_index)
    for variant in order:
        yield Action("warmup", variant, round_index)
    for block in range(blocks):
        for variant in order if block % 2 == 0 else order[::-1]:
            yield Action("block", variant, round_index, block)
    for variant in order:
        yield Action("finish", variant, round_index)
