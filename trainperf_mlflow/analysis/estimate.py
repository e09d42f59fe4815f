"""A prediction of memory and FLOPs as records, and what it means in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from trainperf_mlflow.analysis.explained import mib
from trainperf_mlflow.analysis.roofline import (
    EvidenceLevel,
    bound_ms,
    configured_precision,
    held_against,
)
from trainperf_mlflow.attribution import Peaks
from trainperf_mlflow.results.record import Record, Role

# Left free beside the predicted peak: the device's context and the allocator's fragments.
MARGIN_MB = 512.0
OPTIMIZER, EVALUATION = "optimizer", "evaluation"
PARAMETERS, ACTIVATIONS, TEMPORARIES = "parameters", "activations", "temporaries"
# Temporaries of the optimizer that are worth a word, as a share of the parameters.
LARGE_TEMPORARIES = 0.25
# Shares of a peak: of a category that is named, and of activations that are worth a technique.
WORTH_NAMING = 0.1
ACTIVATIONS_MATTER = 0.02


class PhaseEstimate(Record):
    """One phase of a step: its peak, and what made it up at that moment (MiB; they add up)."""

    peak_mem_mb: float
    categories: dict[str, float]
    flops: float
    # Each operation's inputs and results, nothing cached or fused; None where it was not asked.
    moved_bytes: float | None = None


class VariantEstimate(Record):
    """One variant's step; ``peak_mem_mb`` is that of training, evaluation is a phase apart."""

    variant: str
    role: Role
    status: Literal["ok", "unsupported"]
    reason: str | None = None  # why nothing can be said
    peak_mem_mb: float | None = None
    peak_phase: str | None = None
    phases: dict[str, PhaseEstimate] = Field(default_factory=dict)
    flops_per_step: float | None = None
    fits: bool | None = None  # in the memory that was asked about; None where none was
    # What the peaks of the device allow for the step at best; None where they are not known.
    roofline_ms: float | None = None
    why: str | None = None
    not_modelled: tuple[str, ...] = ()


class Estimate(Record):
    """The variants of a plan on one kind of device."""

    schema_version: Literal["trainperf-estimate/v1"] = "trainperf-estimate/v1"
    workload: str
    device: str
    device_memory_mb: float | None = None
    margin_mb: float = MARGIN_MB
    peaks: Peaks | None = None
    roofline_evidence: EvidenceLevel | None = None
    variants: tuple[VariantEstimate, ...]


class Prediction(Record):
    """What was predicted of a variant, beside what was measured of it."""

    variant: str
    peak_mem_mb: float | None = None
    peak_phase: str | None = None
    error_pct: float | None = None  # (predicted - measured) / measured
    reason: str | None = None  # why nothing was predicted


def compared(estimate: VariantEstimate, measured_mb: float) -> Prediction:
    """A prediction beside the peak that was measured, in MiB.

    >>> found = VariantEstimate(variant="bf16", role="candidate", status="ok", peak_mem_mb=99.0)
    >>> compared(found, 100.0).error_pct
    -1.0
    """
    if estimate.peak_mem_mb is None:
        return Prediction(variant=estimate.variant, reason=f"unsupported: {estimate.reason}")
    return Prediction(
        variant=estimate.variant,
        peak_mem_mb=estimate.peak_mem_mb,
        peak_phase=estimate.peak_phase,
        error_pct=100.0 * (estimate.peak_mem_mb - measured_mb) / measured_mb,
    )


def training_peak(phases: dict[str, PhaseEstimate]) -> tuple[str, float]:
    """The phase of the training step that holds its peak, and the peak in MiB.

    >>> phases = {name: PhaseEstimate(peak_mem_mb=peak, categories={}, flops=0)
    ...           for name, peak in (("forward", 5), ("backward", 9), ("evaluation", 12))}
    >>> training_peak(phases)
    ('backward', 9.0)
    """
    name = max((name for name in phases if name != EVALUATION), key=lambda n: phases[n].peak_mem_mb)
    return name, phases[name].peak_mem_mb


def roofline_ms(
    phases: dict[str, PhaseEstimate], peaks: Peaks, config: Mapping[str, object]
) -> float | None:
    """The least time of a training step under the roofline, phase by phase; ms.

    None where the precision is open, or the device has no peak in it.
    """
    precision = held_against(configured_precision(config), peaks)
    if precision not in peaks.tflops:
        return None
    return sum(
        bound_ms(phase.flops, phase.moved_bytes or 0.0, peaks, precision)
        for name, phase in phases.items()
        if name != EVALUATION
    )


def fits(phases: dict[str, PhaseEstimate], memory_mb: float) -> bool:
    """Whether every phase, evaluation too, leaves the margin free."""
    return max(phase.peak_mem_mb for phase in phases.values()) + MARGIN_MB <= memory_mb


def explain_peak(phases: dict[str, PhaseEstimate], floor_mb: float | None = None) -> str:
    """What holds the peak, what cannot lower it, and what would.

    Args:
        floor_mb: the optimizer step's bytes without what an allocator rounds them up by, which
            depends on all that was allocated before; None: its peak is that.
    """
    name, peak = training_peak(phases)
    if name == OPTIMIZER:
        text = _optimizer_peak(phases)
    else:
        text = _other_peak(name, phases[name])
        if phases[name].categories[ACTIVATIONS] >= ACTIVATIONS_MATTER * peak:
            text += _left_to_save(phases, peak, floor_mb)
    evaluation = phases.get(EVALUATION)
    if evaluation is not None and evaluation.peak_mem_mb > peak:
        text += (
            f"; the evaluation pass needs more than any training step "
            f"({mib(evaluation.peak_mem_mb)} MiB)"
        )
    return text


def _optimizer_peak(phases: dict[str, PhaseEstimate]) -> str:
    phase = phases[OPTIMIZER]
    parameters, temporaries = phase.categories[PARAMETERS], phase.categories[TEMPORARIES]
    text = (
        f"the optimizer step holds the peak ({mib(phase.peak_mem_mb)} MiB, "
        f"{phase.peak_mem_mb / parameters:.1f} x parameters), "
        "so activation techniques cannot lower it"
    )
    if temporaries > LARGE_TEMPORARIES * parameters:
        others = (p.peak_mem_mb for n, p in phases.items() if n not in (OPTIMIZER, EVALUATION))
        lower = max(*others, phase.peak_mem_mb - temporaries)
        text += (
            f"; a fused optimizer, without its temporaries, would lower it to about {mib(lower)}"
        )
    return text


def _other_peak(name: str, phase: PhaseEstimate) -> str:
    """The phase, and the categories that are most of its peak."""
    holders = sorted(phase.categories.items(), key=lambda item: -item[1])
    told = [
        f"{mib(size)} {category.replace('_', ' ')}"
        for category, size in holders
        if size >= WORTH_NAMING * phase.peak_mem_mb
    ]
    return f"{name} holds the peak ({mib(phase.peak_mem_mb)} MiB, of which {', '.join(told)})"


def _left_to_save(phases: dict[str, PhaseEstimate], peak: float, floor_mb: float | None) -> str:
    optimizer = phases.get(OPTIMIZER)
    if optimizer is None:
        return ""
    floor = optimizer.peak_mem_mb if floor_mb is None else floor_mb
    return (
        f"; the optimizer step needs at least {mib(floor)}, "
        f"so activation techniques can save at most {mib(peak - floor)}"
    )
