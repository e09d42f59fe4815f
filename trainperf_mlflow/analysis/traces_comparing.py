"""Two traces side by side: what grew, what shrank, what is new, what vanished."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from trainperf_mlflow.analysis.traces_kinds import without_architecture
from trainperf_mlflow.analysis.traces_results import Change, TraceAnalysis, TraceComparison


def compare_traces(before: TraceAnalysis, after: TraceAnalysis) -> TraceComparison:
    """All figures of two traces per step, or per whole trace where either marks no step.

    Kernels are matched by name without the device's generation, so that a
    comparison of two kinds of devices finds what is the same.
    """
    per_step = bool(before.steps and after.steps)
    of_before, of_after = (before.steps, after.steps) if per_step else (1, 1)
    on_device = "cpu" not in (before.device, after.device)

    def changes(
        first: Iterable[tuple[str, float]], second: Iterable[tuple[str, float]]
    ) -> list[Change]:
        return _changes(_per(first, of_before), _per(second, of_after))

    return TraceComparison(
        before=before,
        after=after,
        per="step" if per_step else "trace",
        total=Change(
            name="total",
            before_us=before.total_us / of_before,
            after_us=after.total_us / of_after,
        ),
        parts=changes(before.parts_us.items(), after.parts_us.items()),
        phases=changes(_phases(before), _phases(after)),
        kinds=changes(_kinds(before, on_device), _kinds(after, on_device)),
        kernels=_largest_first(changes(_kernels(before), _kernels(after))),
        operators=_largest_first(
            changes(_operators(before, on_device), _operators(after, on_device))
        ),
        missing=_missing(before, after, per_step),
    )


def _per(figures: Iterable[tuple[str, float]], divisor: int) -> dict[str, float]:
    sums: dict[str, float] = defaultdict(float)
    for name, us in figures:
        sums[name] += us / divisor
    return sums


def _changes(before: dict[str, float], after: dict[str, float]) -> list[Change]:
    names = dict.fromkeys([*before, *after])
    return [
        Change(name=name, before_us=before.get(name), after_us=after.get(name)) for name in names
    ]


def _largest_first(changes: list[Change]) -> list[Change]:
    return sorted(changes, key=lambda change: -abs(change.delta_us))


def _phases(trace: TraceAnalysis) -> list[tuple[str, float]]:
    return [(name, phase.total_us) for name, phase in trace.phases.items()]


def _kinds(trace: TraceAnalysis, on_device: bool) -> list[tuple[str, float]]:
    kinds = trace.kernels if on_device else trace.operators
    return [(name, kind.total_us) for name, kind in kinds.items()]


def _kernels(trace: TraceAnalysis) -> list[tuple[str, float]]:
    return [(without_architecture(kernel.name), kernel.total_us) for kernel in trace.top_kernels]


def _operators(trace: TraceAnalysis, on_device: bool) -> list[tuple[str, float]]:
    rows = ((row.name, row.device_us if on_device else row.self_us) for row in trace.top_operators)
    return [(name, us) for name, us in rows if us > 0.0]


def _missing(before: TraceAnalysis, after: TraceAnalysis, per_step: bool) -> list[str]:
    found = []
    if not per_step and before.steps != after.steps:
        found.append("only one trace marks its steps: whole traces are compared")
    if (before.device == "cpu") != (after.device == "cpu"):
        found.append(
            "only one trace has a device: its parts mean something else, and operators are "
            "compared by their time on the host"
        )
    elif before.device != after.device:
        found.append(f"the devices differ ({before.device}, {after.device}), not only the code")
    sizes = [trace.world_size or 1 for trace in (before, after)]
    if sizes[0] != sizes[1]:
        found.append(
            f"{sizes[0]} and {sizes[1]} processes took part, so communication and the work of "
            "each are not the same"
        )
    both = [text for text in before.missing if text in after.missing]
    found += [f"both: {text}" for text in both]
    for label, trace in (("first", before), ("second", after)):
        found += [f"{label}: {text}" for text in trace.missing if text not in both]
    return found
