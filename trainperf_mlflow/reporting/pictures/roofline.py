"""How near a step and its phases come to what their device can do at most."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from trainperf_mlflow.attribution import PHASES, Peaks, RooflinePoint
from trainperf_mlflow.reporting.pictures.style import (
    BLACK,
    FAINT,
    INK,
    MAX_VARIANTS,
    TICK,
    blank,
    finish,
    finite,
    left_out,
    listed,
    looks,
    panel,
    phase_color,
    safe,
)
from trainperf_mlflow.results.study import Variant

STEP = "step"
_MIN_FRACTION = 1e-5  # of the peak: what is lower would only squeeze the rest


def figure_roofline(
    variants: Sequence[Variant], points: Mapping[str, Sequence[RooflinePoint]], peaks: Peaks | None
) -> Figure | None:
    """Achieved TFLOP/s over arithmetic intensity, under the roofs of the precisions in use.

    Colours are phases (black: the whole step), marks are variants. None without peaks or
    without a point that counted an operation.
    """
    if peaks is None:
        return None
    everything = [(name, point) for name, own in points.items() for point in own]
    usable = [(n, p) for n, p in everything if len(finite((p.intensity, p.achieved_tflops))) == 2]
    counted = [(n, p) for n, p in usable if p.intensity > 0 and p.achieved_tflops > 0]
    names = list(dict.fromkeys(name for name, _ in counted))
    there = {point.name for _, point in counted}
    without = [phase for phase in dict.fromkeys(p.name for _, p in usable) if phase not in there]
    shown = names[:MAX_VARIANTS]
    drawn = [(name, point) for name, point in counted if name in shown]
    precisions = [p for p in peaks.tflops if any(point.precision == p for _, point in drawn)]
    if not drawn or not precisions or peaks.memory_gb_s <= 0:
        return None
    notes = (
        f"{safe(peaks.device, 60)}: peaks {peaks.evidence_level} ({safe(peaks.source, 80)})",
        "FLOPs counted, bytes estimated as if nothing were cached or fused",
        f"without counted FLOPs: {', '.join(without)}" if without else "",
        f"{len(shown)} of {len(names)} variants" if len(names) > len(shown) else "",
        left_out(len(everything) - len(usable), "point"),
    )
    figure = blank(4.9)
    axes = figure.subplots()
    _draw_roofs(axes, peaks, precisions, [point for _, point in drawn])
    look = looks(variants)
    for name, point in sorted(drawn, key=lambda item: item[1].name == STEP):
        axes.scatter(
            point.intensity,
            point.achieved_tflops,
            s=140 if point.name == STEP else 75,
            color=_color(point.name),
            marker=look[name].marker if name in look else "o",
            edgecolors="white",
            linewidths=0.8,
            zorder=3,
        )
    panel(axes, x="arithmetic intensity, FLOP per byte", y="achieved, TFLOP/s", grid="both")
    handles = _handles(drawn, {name: look[name].marker for name in shown if name in look})
    labels = [str(handle.get_label()) for handle in handles]
    return finish(figure, _title(drawn), notes=notes, legend=(handles, labels))


def _color(name: str) -> str:
    return BLACK if name == STEP else phase_color(name)


def _title(drawn: Sequence[tuple[str, RooflinePoint]]) -> str:
    said = [
        f"{safe(name)} {point.fraction:.0%} ({point.bound} bound)"
        for name, point in drawn
        if point.name == STEP and finite([point.fraction])
    ]
    return f"Of what is attainable a step achieves: {listed(said, 3)}" if said else "Roofline"


def _draw_roofs(
    axes: Axes, peaks: Peaks, precisions: Sequence[str], points: Sequence[RooflinePoint]
) -> None:
    """Both axes logarithmic, with each precision's roof over the whole width."""
    bandwidth = peaks.memory_gb_s / 1000  # TB/s: times FLOP per byte this is TFLOP/s
    ridges = [peaks.tflops[precision] / bandwidth for precision in precisions]
    low = min(*(p.intensity for p in points), *ridges, min(ridges)) / 4
    high = max(*(p.intensity for p in points), *ridges, max(ridges)) * 8
    highest = max(peaks.tflops[precision] for precision in precisions)
    lowest = min(min(p.achieved_tflops for p in points), low * bandwidth)
    axes.set_xscale("log")
    axes.set_yscale("log")
    for precision, ridge in zip(precisions, ridges, strict=True):
        peak = peaks.tflops[precision]
        axes.plot([low, ridge, high], [low * bandwidth, peak, peak], color=INK, linewidth=1.8)
        axes.annotate(
            f"{safe(precision, 8)} {peak:.3g} TFLOP/s",
            (high, peak),
            xytext=(-4, 4),
            textcoords="offset points",
            ha="right",
            va="bottom",
            fontsize=TICK,
            color=INK,
        )
    middle = low * (min(ridges) / low) ** 0.3
    axes.annotate(
        f"memory {peaks.memory_gb_s:.4g} GB/s",
        (middle, middle * bandwidth),
        xytext=(8, -4),
        textcoords="offset points",
        va="top",
        fontsize=TICK,
        color=INK,
    )
    axes.set_xlim(low, high)
    axes.set_ylim(max(lowest / 3, highest * _MIN_FRACTION), highest * 4)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(lambda value, _: f"{value:g}")


def _handles(
    drawn: Sequence[tuple[str, RooflinePoint]], markers: Mapping[str, str]
) -> list[Line2D]:
    """A colour for each phase, then a mark for each variant."""
    there = {point.name for _, point in drawn}
    phases = [
        Line2D([], [], color=_color(name), marker="s", linestyle="", label=name)
        for name in (STEP, *PHASES)
        if name in there
    ]
    return phases + [
        Line2D([], [], color=FAINT, marker=marker, linestyle="", label=safe(name), fillstyle="none")
        for name, marker in markers.items()
    ]
