"""Baseline and candidate of the same round, held against each other."""

from __future__ import annotations

import math

from trainperf_mlflow.analysis.compare import measured, samples_per_step
from trainperf_mlflow.results import Status, VariantValues


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
