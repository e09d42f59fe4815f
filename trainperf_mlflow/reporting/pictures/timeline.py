"""One traced step of each variant, phase after phase, all beginning at the same point."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from trainperf_mlflow.analysis.traces_timeline import Span, TracedStep
from trainperf_mlflow.attribution import PHASES
from trainperf_mlflow.reporting.pictures.style import (
    INK,
    MAX_VARIANTS,
    TICK,
    blank,
    finish,
    listed,
    panel,
    phase_color,
    safe,
    signed_percent,
)

# Of the whole time: a phase's name does not fit into less.
_ROOM_FOR_A_NAME = 0.08


def figure_timeline(steps: Mapping[str, TracedStep]) -> Figure | None:
    """A row a variant, and one more for its device where it has one; None without a step.

    Args:
        steps: a typical traced step by variant, the baseline first.
    """
    shown = dict(list(steps.items())[:MAX_VARIANTS])
    if not shown:
        return None
    rows = [
        (f"{safe(name)}, {where}" if step.device else safe(name), spans)
        for name, step in shown.items()
        for where, spans in (("host", step.host), ("device", step.device))
        if spans
    ]
    on_device = any(step.device for step in shown.values())
    notes = (
        "the traced step of median length, with the profiler's own slowdown",
        "a device's row has its work by the phase that asked for it" if on_device else "",
        f"{len(shown)} of {len(steps)} variants" if len(steps) > len(shown) else "",
    )
    figure = blank(0.9 + 0.72 * len(rows))
    axes = figure.subplots()
    end = max(span.end_ms for _, spans in rows for span in spans)
    end = max(end, *(step.total_ms for step in shown.values())) or 1.0
    for row, (_, spans) in enumerate(rows):
        _draw(axes, row, spans, end)
    axes.set_yticks(range(len(rows)), [label for label, _ in rows])
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_xlim(0, end * 1.01)
    panel(axes, x="time since the start of the step, ms", grid="x")
    there = dict.fromkeys(span.phase for _, spans in rows for span in spans)
    known = [phase for phase in PHASES if phase in there]
    phases = [*known, *(phase for phase in there if phase not in known)][:8]
    handles = [Patch(color=phase_color(phase)) for phase in phases]
    labels = [safe(phase) for phase in phases]
    return finish(figure, _title(shown), notes=notes, legend=(handles, labels))


def _title(shown: Mapping[str, TracedStep]) -> str:
    (first, base), *others = shown.items()
    if not others:
        return f"A traced step of {safe(first)}: {base.total_ms:.4g} ms"
    before = _by_phase(base.host)
    said = []
    for name, step in others:
        after = _by_phase(step.host)
        moved = max(
            {*before, *after}, key=lambda phase: abs(after.get(phase, 0) - before.get(phase, 0))
        )
        change = after.get(moved, 0) - before.get(moved, 0)
        total = signed_percent(base.total_ms, step.total_ms)
        said.append(
            f"{safe(name)} {step.total_ms:.4g} ms ({total}), {safe(moved, 12)} {change:+.3g} ms"
        )
    return f"A traced step: {safe(first)} {base.total_ms:.4g} ms; {listed(said, 3)}"


def _by_phase(spans: Sequence[Span]) -> dict[str, float]:
    found: dict[str, float] = {}
    for span in spans:
        found[span.phase] = found.get(span.phase, 0.0) + span.end_ms - span.start_ms
    return found


def _draw(axes: Axes, row: int, spans: Sequence[Span], end: float) -> None:
    axes.barh(
        [row] * len(spans),
        [span.end_ms - span.start_ms for span in spans],
        left=[span.start_ms for span in spans],
        height=0.66,
        color=[phase_color(span.phase) for span in spans],
    )
    for span in spans:
        length = span.end_ms - span.start_ms
        if length > _ROOM_FOR_A_NAME * end:
            axes.annotate(
                f"{safe(span.phase, 12)}\n{length:.3g}",
                ((span.start_ms + span.end_ms) / 2, row),
                ha="center",
                va="center",
                fontsize=TICK - 1,
                color="white" if span.phase == "backward" else INK,
            )
