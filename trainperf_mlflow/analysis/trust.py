"""Whether the runs of a study can be compared at all: what was promised to be the same, was it?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from trainperf_mlflow.analysis.rounds import common_rounds
from trainperf_mlflow.results.record import Status
from trainperf_mlflow.results.values import BlockValues, RepeatValues, VariantValues


def violations(variants: Sequence[VariantValues]) -> tuple[str, ...]:
    """Each condition that was violated, in a sentence; empty where all held.

    In each round the variants have the same seed and begin with the same batch (where they
    have as many samples in it); nothing compiles and no garbage is collected in a block.
    """
    baseline = next((variant for variant in variants if variant.role == "baseline"), None)
    return (
        *(
            text
            for variant in variants
            if baseline is not None and variant is not baseline
            for text in _other_conditions(baseline, variant)
        ),
        *(text for variant in variants for text in _inside_blocks(variant)),
    )


def _other_conditions(baseline: VariantValues, candidate: VariantValues) -> Iterator[str]:
    pairs = common_rounds(baseline, candidate)
    seeds = [
        after.index
        for before, after in pairs
        if before.seed is not None and after.seed is not None and before.seed != after.seed
    ]
    if seeds:
        yield f"{candidate.name} had other seeds than the baseline in {_of(seeds, pairs)}"
    other = [
        after.index
        for before, after in pairs
        if before.data_digest and after.data_digest and _samples(before) == _samples(after)
        if before.data_digest != after.data_digest
    ]
    if other:
        yield (
            f"{candidate.name} trained on other data than the baseline: the first batch differs in "
            f"{_of(other, pairs)}; a difference in loss or time may come from the data"
        )


def _inside_blocks(variant: VariantValues) -> Iterator[str]:
    blocks = [
        block for repeat in variant.repeats if repeat.status is Status.OK for block in repeat.blocks
    ]
    compiled = [block for block in blocks if block.compilations]
    if compiled:
        yield (
            f"{variant.name} compiled inside {len(compiled)} of {len(blocks)} measured blocks, so "
            "its times hold compilation; give more --warmup steps, or keep shapes the same"
        )
    collected = [block for block in blocks if block.gc]
    if collected:
        yield (
            f"{variant.name} collected garbage inside {len(collected)} of {len(blocks)} measured "
            "blocks by itself; take gc.collect() out of its step"
        )


def _samples(repeat: RepeatValues) -> float | None:
    first: BlockValues | None = next(iter(repeat.blocks), None)
    return None if first is None else first.samples_per_step


def _of(some: Sequence[object], of: Sequence[object]) -> str:
    return f"{len(some)} of {len(of)} rounds"
