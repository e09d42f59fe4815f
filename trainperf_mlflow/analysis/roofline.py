"""How close a step and its phases come to what their device can do.

A roofline (Williams, Waterman and Patterson 2009) holds work against two limits:
the peak of arithmetic and the memory's bandwidth. FLOPs are those of matrix
products, convolutions and attention, bytes those of every operation as if nothing
were cached or fused, so more than really move. No hardware counter is read.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from trainperf_mlflow.attribution import PHASES, Attempt, Peaks, PhaseMeasurement, RooflinePoint

STEP = "step"
DISTURBED = 1.25  # the best copy of one process over another's; undisturbed they are alike
COUNTERS = "not_collected"  # the source's word: no hardware counter was read
# What is known: ``theoretical`` where nothing ran and all is predicted, ``counted`` where a
# step ran, its operations were counted and its time is held against a data sheet, ``measured``
# where the peaks were timed on the same device, too.
EvidenceLevel = Literal["theoretical", "counted", "measured"]
_MS_PER_S, _TERA, _GIGA = 1e3, 1e12, 1e9

Json = dict[str, Any]


def ridge(peaks: Peaks, precision: str) -> float:
    """The FLOP per byte from which on arithmetic is the limit, not memory.

    Raises:
        KeyError: the device has no peak in this precision.
    """
    return peaks.tflops[precision] * _TERA / (peaks.memory_gb_s * _GIGA)


def bound_ms(flops: float, moved_bytes: float, peaks: Peaks, precision: str) -> float:
    """The least time that the roofline allows for this work; ms."""
    compute_s = flops / (peaks.tflops[precision] * _TERA)
    memory_s = moved_bytes / (peaks.memory_gb_s * _GIGA)
    return max(compute_s, memory_s) * _MS_PER_S


def roofline_point(
    name: str, time_ms: float, flops: float, moved_bytes: float, peaks: Peaks, precision: str
) -> RooflinePoint | None:
    """Work that took some time, under the roofline; None where there is no work or no peak.

    ``fraction`` is the least possible time over the real one: achieved of attainable
    FLOPs, and for a phase that only moves bytes the share of the bandwidth. Above 1,
    caches or fused operations saved traffic that the bytes count.
    """
    known = precision in peaks.tflops
    if not (known and time_ms > 0 and moved_bytes > 0):
        return None
    intensity = flops / moved_bytes
    peak = peaks.tflops[precision]
    reachable = intensity * peaks.memory_gb_s * _GIGA / _TERA
    return RooflinePoint(
        name=name,
        precision=precision,
        time_ms=time_ms,
        flops=flops,
        moved_bytes=moved_bytes,
        intensity=intensity,
        achieved_tflops=flops / _TERA / (time_ms / _MS_PER_S),
        attainable_tflops=min(peak, reachable),
        fraction=bound_ms(flops, moved_bytes, peaks, precision) / time_ms,
        bound="compute" if peak <= reachable else "memory",
    )


def model_flops_utilization(
    step_ms: float, samples_per_step: float, useful_flops_per_sample: float, peak_tflops: float
) -> float:
    """MFU: the share of the peak that went into useful work (Chowdhery et al. 2022).

    Args:
        useful_flops_per_sample: the baseline's; what a candidate recomputes is not useful.

    >>> model_flops_utilization(1000.0, 2.0, 1e12, peak_tflops=4.0)
    0.5
    """
    per_second = useful_flops_per_sample * samples_per_step / (step_ms / _MS_PER_S)
    return per_second / (peak_tflops * _TERA)


def best_peaks(attempts: Iterable[Attempt]) -> Peaks | None:
    """The most that any process saw the device do, so that all variants have one roof."""
    found = [
        a.phases.peaks for a in attempts if a.phases is not None and a.phases.peaks is not None
    ]
    if not found:
        return None
    precisions = dict.fromkeys(precision for peaks in found for precision in peaks.tflops)
    slowest, fastest = (pick(peaks.memory_gb_s for peaks in found) for pick in (min, max))
    source = found[0].source
    if fastest > DISTURBED * slowest:
        source += f"; the memory's {slowest:.3g} to {fastest:.3g} GB/s by process: a noisy machine"
    return found[0].model_copy(
        update={
            "tflops": {p: max(peaks.tflops.get(p, 0.0) for peaks in found) for p in precisions},
            "memory_gb_s": fastest,
            "source": source,
        }
    )


def roofline_summary(
    attempts: Sequence[Attempt],
    baseline: Sequence[Attempt],
    peaks: Peaks | None,
    config: Mapping[str, object],
) -> Json:
    """What a variant's phases are under the roofline: means over its repeats.

    Args:
        baseline: the attempts of the study's baseline, whose FLOPs are the useful ones.
        config: the variant's, which says in which precision compiled code computes.

    Returns:
        ``peaks``, ``roofline`` (the step's point, then its phases'), ``roofline_evidence``,
        ``counters``, ``flops_per_step`` (counted, recompute included) and ``mfu``; None or
        empty where it is not known.
    """
    measured = _measured(attempts)
    precision = held_against(_precision(measured, config), peaks)
    points = _points(measured, peaks, precision) if peaks is not None else []
    return {
        "peaks": None if peaks is None else peaks.model_dump(mode="json"),
        "roofline": [point.model_dump(mode="json") for point in points],
        "roofline_evidence": _evidence_level(peaks) if points else None,
        "counters": COUNTERS,
        "flops_per_step": _flops(measured),
        "mfu": _mfu(attempts, baseline, peaks, precision),
    }


def roofline_metrics(summary: Mapping[str, Any]) -> dict[str, float]:
    """The MLflow metrics of a ``roofline_summary``: what is not known is absent.

    >>> roofline_metrics({"mfu": 0.5, "flops_per_step": None, "roofline": []})
    {'mfu': 0.5}
    """
    totals = {name: summary[name] for name in ("mfu", "flops_per_step")}
    return {
        **{name: value for name, value in totals.items() if value is not None},
        **{
            f"roofline/{point['name']}_fraction": point["fraction"] for point in summary["roofline"]
        },
    }


def _measured(attempts: Iterable[Attempt]) -> list[PhaseMeasurement]:
    return [attempt.phases for attempt in attempts if attempt.phases is not None]


def _evidence_level(peaks: Peaks | None) -> EvidenceLevel:
    return "measured" if peaks and peaks.evidence_level == "measured" else "counted"


def _points(
    measured: Sequence[PhaseMeasurement], peaks: Peaks, precision: str | None
) -> list[RooflinePoint]:
    counted = [m for m in measured if m.moved_bytes]
    if not counted or precision is None:
        return []
    own = counted[0].matmul_precision
    step = roofline_point(
        STEP,
        statistics.fmean(ms for m in counted for ms in m.step_ms),
        statistics.fmean(sum(m.matmul_flops.values()) for m in counted),
        statistics.fmean(sum(m.moved_bytes.values()) for m in counted),
        peaks,
        precision,
    )
    phases = (
        roofline_point(
            phase,
            statistics.fmean(ms for m in counted for ms in m.phase_ms.get(phase, ())),
            statistics.fmean(m.matmul_flops.get(phase, 0.0) for m in counted),
            statistics.fmean(m.moved_bytes.get(phase, 0.0) for m in counted),
            peaks,
            held_against(own.get(phase), peaks) or precision,
        )
        for phase in PHASES
        if any(m.phase_ms.get(phase) for m in counted)
    )
    return [point for point in (step, *phases) if point is not None]


def _precision(measured: Sequence[PhaseMeasurement], config: Mapping[str, object]) -> str | None:
    """That of most of the step's FLOPs; where none were counted, as it is configured."""
    flops: dict[str, float] = {}
    for m in measured:
        for phase, precision in m.matmul_precision.items():
            flops[precision] = flops.get(precision, 0.0) + m.matmul_flops.get(phase, 0.0)
    return max(flops, key=lambda p: flops[p]) if flops else configured_precision(config)


def held_against(precision: str | None, peaks: Peaks | None) -> str | None:
    """Where a device has no TF32, allowing it changes nothing."""
    without = precision == "tf32" and peaks is not None and "tf32" not in peaks.tflops
    return "fp32" if without else precision


def configured_precision(config: Mapping[str, object]) -> str | None:
    """The precision of matrix products by a configuration's usual keys; None where it is open.

    >>> configured_precision({"precision": "fp32", "matmul_precision": "high"})
    'tf32'
    """
    precision = config.get("precision")
    if precision == "fp32" and config.get("matmul_precision") in ("high", "medium"):
        return "tf32"
    return precision if precision in ("fp32", "bf16", "fp16") else None


def _flops(measured: Sequence[PhaseMeasurement]) -> float | None:
    counted = [sum(m.matmul_flops.values()) for m in measured if m.matmul_flops]
    return statistics.fmean(counted) if counted else None


def _samples(attempts: Iterable[Attempt]) -> float | None:
    return next((a.samples_per_step for a in attempts if a.phases is not None), None)


def _mfu(
    attempts: Sequence[Attempt],
    baseline: Sequence[Attempt],
    peaks: Peaks | None,
    precision: str | None,
) -> float | None:
    measured, useful = _measured(attempts), _flops(_measured(baseline))
    own, base = _samples(attempts), _samples(baseline)
    if peaks is None or precision not in peaks.tflops or not (useful and own and base):
        return None
    step_ms = statistics.fmean(ms for m in measured for ms in m.step_ms)
    return model_flops_utilization(step_ms, own, useful / base, peaks.tflops[precision])
