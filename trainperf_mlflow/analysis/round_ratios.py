"""Each pair of baseline and candidate held against each other, for people to look at."""

from __future__ import annotations

import math

from trainperf_mlflow.analysis.compare import measured, samples_per_step
from trainperf_mlflow.analysis.gate import gated
from trainperf_mlflow.analysis.paired import pairs_of
from trainperf_mlflow.analysis.signal import Signal
from trainperf_mlflow.results.estimates import PairedEstimate
from trainperf_mlflow.results.record import Status
from trainperf_mlflow.results.values import BlockValues, VariantValues


def pair_ratios(
    baseline: VariantValues, candidate: VariantValues, estimate: PairedEstimate
) -> tuple[float, ...]:
    """ln(baseline's / candidate's time per sample) by the signal that the estimate is based on.

    Above 0 the candidate was faster. One per pair of blocks, in the order of measurement.
    """
    signal = Signal(estimate.signal, estimate.signal_reason)

    def per_sample(block: BlockValues) -> float:
        return signal.low(block) / (block.samples_per_step or 1.0)

    return tuple(
        math.log(per_sample(pair.baseline) / per_sample(pair.candidate))
        for pair in pairs_of(baseline, candidate)
    )


def pairs_counted(
    baseline: VariantValues, candidate: VariantValues, estimate: PairedEstimate
) -> tuple[bool, ...]:
    """Whether each pair of ``pair_ratios`` counts in the estimate, or was set aside."""
    pairs = pairs_of(baseline, candidate)
    counted = gated(pairs, estimate.signal == "gated wall", estimate.level).pairs
    kept = set(map(id, counted))
    return tuple(id(pair) in kept for pair in pairs)


def round_ratios(baseline: VariantValues, candidate: VariantValues) -> tuple[float, ...]:
    """ln(baseline's / candidate's time for the same samples), one per round in which both ran.

    Above 0 the candidate was faster. In the order of the rounds.
    """
    ours, theirs = samples_per_step(candidate), samples_per_step(baseline)
    scale = theirs / ours if ours and theirs else 1.0
    before, after = _times(baseline), _times(candidate)
    return tuple(
        math.log(before[index] / (after[index] * scale))
        for index in sorted(before)
        if index in after
    )


def _times(variant: VariantValues) -> dict[int, float]:
    return {
        repeat.index: time
        for repeat in variant.repeats
        if repeat.status is Status.OK
        and (time := measured(repeat.metrics, "step_time_ms")) is not None
        and time > 0
    }
