"""Blocks with given step times, for the tests of pairs, intervals and verdicts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from trainperf_mlflow.analysis.gate import Pair
from trainperf_mlflow.results.values import BlockValues, RepeatValues, VariantValues


def a_block(index: int = 0, time_ms: float = 50.0, **fields: Any) -> BlockValues:
    values: dict[str, Any] = {
        "index": index,
        "process": 0,
        "started_at": 0.0,
        "wall_s": time_ms / 100,
        "samples_per_step": 2.0,
        "mean_ms": time_ms,
        "low_ms": time_ms,
        "net_mean_ms": time_ms,
        "net_low_ms": time_ms,
        "run_delay": 0.0,
        "cpu": 1.0,
    }
    return BlockValues(**{**values, **fields})


def pairs_from(
    ratios: Sequence[Sequence[float]], base_ms: float = 50.0, **fields: Any
) -> list[Pair]:
    """One process pair per row; each value is by how much (log ratio) the candidate is faster."""
    return [
        Pair(
            (row, 0, 0),
            a_block(index, base_ms, **fields),
            a_block(index, base_ms * float(np.exp(-ratio)), **fields),
        )
        for row, own in enumerate(ratios)
        for index, ratio in enumerate(own)
    ]


def normal_ratios(
    seed: int | np.random.Generator,
    effect: float = 0.0,
    process_pairs: int = 3,
    within: float = 0.005,
    between: float = 0.002,
) -> np.ndarray:
    chance = np.random.default_rng(seed)
    centre = chance.normal(effect, between, (process_pairs, 1))
    return centre + chance.normal(0.0, within, (process_pairs, 4))


def with_blocks(variant: VariantValues, times: Sequence[Sequence[float]]) -> VariantValues:
    """A variant whose repeats hold blocks of these step times, one row a repeat."""
    repeats = tuple(
        RepeatValues(
            **{
                **repeat.model_dump(exclude={"blocks"}),
                "blocks": tuple(a_block(index, time) for index, time in enumerate(own)),
            }
        )
        for repeat, own in zip(variant.repeats, times, strict=True)
    )
    return variant.model_copy(update={"repeats": repeats})
