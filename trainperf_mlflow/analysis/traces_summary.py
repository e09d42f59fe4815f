"""What a study keeps of a trace's analysis: its largest operators, and figures per step in ms."""

from __future__ import annotations

from collections.abc import Mapping

from trainperf_mlflow.analysis.traces_results import Breakdown, TraceAnalysis
from trainperf_mlflow.attribution import PHASES, Operator

US_PER_MS = 1000.0


def top_operators(trace: TraceAnalysis, count: int) -> tuple[Operator, ...]:
    """The operators with the most time of their own, the most first.

    Where the trace has a device: those of which it did the most, then those that
    kept the host busy. On a device the host's time is mostly waiting or launching.
    """
    on_device = trace.device != "cpu"
    operators = [
        Operator(
            name=row.name,
            calls=row.count,
            self_cpu_ms=row.self_us / US_PER_MS,
            self_device_ms=row.device_us / US_PER_MS if on_device else None,
        )
        for row in trace.top_operators
    ]
    by_host = sorted(operators, key=lambda o: (-o.self_cpu_ms, o.name))[:count]
    by_device = sorted(operators, key=lambda o: (-(o.self_device_ms or 0.0), o.name))[:count]
    return tuple(dict.fromkeys([*(o for o in by_device if o.self_device_ms), *by_host]))


def phase_times(trace: TraceAnalysis) -> dict[str, float]:
    """Mean time of each marked phase on the host, and of the rest, per step; ms."""
    if trace.phases_from != "marks":
        return {}
    phases: Mapping[str, Breakdown] = trace.phases
    return {
        name: phases[name].total_us / _steps(trace) / US_PER_MS for name in PHASES if name in phases
    }


def part_times(trace: TraceAnalysis) -> dict[str, float]:
    """The step's disjoint parts, busy and idle, which add up to it; ms per step."""
    return {name: us / _steps(trace) / US_PER_MS for name, us in trace.parts_us.items()}


def kind_times(trace: TraceAnalysis) -> dict[str, float]:
    """Time by kind of work, of kernels or, without a device, of operators; ms per step."""
    kinds = trace.kernels or trace.operators
    return {name: kind.total_us / _steps(trace) / US_PER_MS for name, kind in kinds.items()}


def matmul_precisions(trace: TraceAnalysis) -> dict[str, float]:
    """The device's time in matrix products by precision; ms per step."""
    kind = trace.kernels.get("matmul")
    precisions = {} if kind is None else kind.precision_us
    return {name: us / _steps(trace) / US_PER_MS for name, us in precisions.items()}


def recompute_time(trace: TraceAnalysis) -> float | None:
    """What forward operators took again in backward, where it is done; ms per step."""
    if trace.recompute is None:
        return None
    us = trace.recompute.host_us if trace.device == "cpu" else trace.recompute.device_us
    return us / _steps(trace) / US_PER_MS


def _steps(trace: TraceAnalysis) -> int:
    return max(trace.steps, 1)
