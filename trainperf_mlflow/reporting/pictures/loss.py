"""Do the variants learn the same: training losses over each other, and their differences."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from trainperf_mlflow.reporting.pictures.style import (
    INK,
    MAX_VARIANTS,
    Look,
    blank,
    finish,
    finite,
    left_out,
    listed,
    looks,
    panel,
    safe,
)
from trainperf_mlflow.results.repeats import Repeat
from trainperf_mlflow.results.study import Variant

Curve = dict[int, list[float]]  # measured step, from 1 -> the values of the repeats
# Fewer steps than this get a mark each.
_MARKED_STEPS = 40
# The ranges of more would be one mud.
_SHADED_CURVES = 4


def figure_loss(variants: Sequence[Variant], repeats: Sequence[Repeat]) -> Figure | None:
    """Means over the repeats and their range, by measured step; None where no loss was taken.

    Below: candidate - baseline of the same round and step; above 0 is worse.
    """
    losses: dict[str, dict[int, dict[int, float]]] = {variant.name: {} for variant in variants}
    for repeat in repeats:
        losses.setdefault(repeat.variant, {})[repeat.index] = _by_step(repeat)
    curves = {name: found for name, own in losses.items() if (found := _curve(own.values()))}
    shown = list(curves)[:MAX_VARIANTS]
    if not shown:
        return None
    baseline = next((v.name for v in variants if v.role == "baseline"), "")
    differences = {
        name: found
        for name in shown
        if name != baseline and (found := _difference(losses.get(baseline, {}), losses[name]))
    }
    strange = sum(
        not math.isfinite(loss)
        for own in losses.values()
        for steps in own.values()
        for loss in steps.values()
    )
    several = any(len(own) > 1 for own in losses.values())
    shaded = ", shaded: their range" if len(shown) <= _SHADED_CURVES else ""
    notes = (
        f"lines: means over the repeats{shaded}" if several else "",
        "differences are those of the same round and step" if differences else "",
        f"{len(shown)} of {len(curves)} variants" if len(curves) > len(shown) else "",
        left_out(strange, "loss value"),
    )
    figure = blank(5.2 if differences else 3.8)
    look = looks(variants)
    heights = (1.7, 1.0) if differences else (1.0,)
    panels = figure.subplots(len(heights), 1, sharex=True, squeeze=False, height_ratios=heights)
    upper, lowest = panels[0, 0], panels[-1, 0]
    _draw(upper, {name: curves[name] for name in shown}, look)
    panel(upper, y="training loss")
    if differences:
        lowest.axhline(0.0, color=INK, linewidth=1)
        _draw(lowest, differences, look)
        panel(lowest, y="candidate - baseline")
    lowest.set_xlabel("measured step", fontsize=12, color=INK)
    lowest.xaxis.set_major_locator(MaxNLocator(integer=True))
    return finish(
        figure,
        _title(shown, curves, differences),
        notes=notes,
        legend=upper.get_legend_handles_labels(),
    )


def _by_step(repeat: Repeat) -> dict[int, float]:
    values = [loss for block in repeat.blocks for loss in block.losses]
    return {step: loss for step, loss in enumerate(values, start=1) if loss is not None}


def _curve(repeats: Iterable[Mapping[int, float]]) -> Curve:
    found: Curve = {}
    for steps in repeats:
        for step, loss in steps.items():
            if math.isfinite(loss):
                found.setdefault(step, []).append(loss)
    return dict(sorted(found.items()))


def _difference(
    baseline: Mapping[int, Mapping[int, float]], candidate: Mapping[int, Mapping[int, float]]
) -> Curve:
    """By step, the differences of all rounds in which both have it."""
    return _curve(
        {
            step: loss - baseline[index][step]
            for step, loss in own.items()
            if step in baseline[index]
        }
        for index, own in candidate.items()
        if index in baseline
    )


def _title(
    shown: Sequence[str], curves: Mapping[str, Curve], differences: Mapping[str, Curve]
) -> str:
    if not differences:
        last = [f"{safe(name)} {fmean(_last(curves[name])):.4g}" for name in shown]
        return f"Training loss at the last step: {listed(last)}"
    ends = {name: fmean(_last(curve)) for name, curve in differences.items()}
    said = [f"{safe(name)} {f'{end:+.2g}' if end else 'the same'}" for name, end in ends.items()]
    return f"Training loss at the last step, against the baseline: {listed(said)}"


def _last(curve: Curve) -> list[float]:
    return finite(curve[max(curve)])


def _draw(axes: Axes, curves: Mapping[str, Curve], look: Mapping[str, Look]) -> None:
    for index, (name, curve) in enumerate(curves.items()):
        style = look.get(name, Look(INK, "o"))
        steps, values = list(curve), list(curve.values())
        if len(curves) <= _SHADED_CURVES and any(len(value) > 1 for value in values):
            axes.fill_between(
                steps,
                [min(value) for value in values],
                [max(value) for value in values],
                color=style.color,
                alpha=0.16,
                linewidth=0,
            )
        # Curves that lie on each other stay visible: each has other gaps.
        axes.plot(
            steps,
            [fmean(value) for value in values],
            color=style.color,
            linewidth=2.0,
            linestyle=("-", "--", "-.", ":")[index % 4] if len(curves) > 1 else "-",
            marker=style.marker if len(steps) <= _MARKED_STEPS else "",
            markersize=5,
            label=safe(name),
        )
