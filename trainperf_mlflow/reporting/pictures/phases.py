"""Where the time and the memory of a step go: each variant's phases, means over the repeats."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from trainperf_mlflow.analysis.hypothesis import ENOUGH_TIMES, trend
from trainperf_mlflow.attribution import PHASES, Attempt, PhaseMeasurement
from trainperf_mlflow.reporting.pictures.style import (
    INK,
    MAX_VARIANTS,
    TICK,
    blank,
    finish,
    finite,
    left_out,
    listed,
    panel,
    phase_color,
    safe,
    signed_percent,
)
from trainperf_mlflow.results.assessment import Trend
from trainperf_mlflow.results.study import Variant

# Of the longest bar: a number does not fit into less.
_ROOM_FOR_A_NUMBER = 0.085


class Spread(NamedTuple):
    """A value of each repeat, and their mean and range."""

    values: tuple[float, ...]
    mean: float
    low: float
    high: float


Table = dict[str, dict[str, Spread]]  # variant -> phase -> value


def figure_phases(variants: Sequence[Variant], attempts: Sequence[Attempt]) -> Figure | None:
    """Time by phase as stacked bars, peak memory by phase beside it; None without a phase."""
    measured = {
        variant.name: found
        for variant in variants
        if (found := [a.phases for a in attempts if a.variant == variant.name and a.phases])
    }
    times, bad_times = _table(measured, lambda m: {p: fmean(v) for p, v in m.phase_ms.items()})
    peaks, bad_peaks = _table(measured, lambda m: m.peak_mem_mb)
    shown = list(times)[:MAX_VARIANTS]
    if not shown:
        return None
    count = max(len(found) for found in measured.values())
    notes = (
        f"means of {count} repeats, thin lines: their range" if count > 1 else "one repeat",
        "marked steps, which never feed the decision",
        f"{len(shown)} of {len(times)} variants" if len(times) > len(shown) else "",
        left_out(bad_times + bad_peaks),
    )
    figure = blank(1.0 + 0.8 * len(shown))
    if any(peaks.get(name) for name in shown):
        left, right = figure.subplots(1, 2, width_ratios=(1.3, 1), sharey=True)
        _draw_peaks(right, shown, peaks)
    else:
        left = figure.subplots()
    _draw_times(left, shown, times)
    return finish(
        figure, _title(variants, times), notes=notes, legend=left.get_legend_handles_labels()
    )


def _table(
    measured: Mapping[str, Sequence[PhaseMeasurement]],
    values: Callable[[PhaseMeasurement], Mapping[str, float]],
) -> tuple[Table, int]:
    """Means and ranges in the order of a step, and how many values are no numbers."""
    table: Table = {}
    strange = 0
    for name, repeats in measured.items():
        rows = [values(repeat) for repeat in repeats]
        found: dict[str, Spread] = {}
        for phase in PHASES:
            given = [row[phase] for row in rows if phase in row]
            usable = finite(given)
            strange += len(given) - len(usable)
            if usable:
                found[phase] = Spread(tuple(usable), fmean(usable), min(usable), max(usable))
        if found:
            table[name] = found
    return table, strange


def _total(phases: Mapping[str, Spread]) -> float:
    return math.fsum(spread.mean for spread in phases.values())


def _title(variants: Sequence[Variant], times: Table) -> str:
    """What the phases say: for each candidate, which one moved its step time most.

    A change that the repeats do not show, by the rule of the assessment, is none.
    """
    baseline = next((v.name for v in variants if v.role == "baseline"), None)
    steps = [f"{safe(name)} {_total(phases):.4g} ms" for name, phases in times.items()]
    candidates = [name for name in times if name != baseline]
    if baseline not in times or not candidates:
        return f"Phases of a step: {listed(steps)}"
    before = times[baseline]
    if all(_trends(before, times[name]) <= {"unknown"} for name in candidates):
        few = f"with fewer than {ENOUGH_TIMES} repeats no change is known"
        return f"Phases of a step: {listed(steps, 3)}; {few}"
    return (
        f"What moved most in a step: {listed([_moved(before, n, times[n]) for n in candidates], 3)}"
    )


def _trends(before: Mapping[str, Spread], after: Mapping[str, Spread]) -> set[Trend]:
    return {_trend(before[phase], after[phase]) for phase in after if phase in before}


def _trend(before: Spread, after: Spread) -> Trend:
    return trend(before.values, after.values, ENOUGH_TIMES)


def _moved(before: Mapping[str, Spread], name: str, after: Mapping[str, Spread]) -> str:
    shown = [p for p in after if p in before and _trend(before[p], after[p]) in ("shrank", "grew")]
    if not shown:
        few = _trends(before, after) <= {"unknown"}
        return f"{safe(name)}: " + ("not known" if few else "nothing beyond the repeats' spread")
    most = max(shown, key=lambda phase: abs(after[phase].mean - before[phase].mean))
    old, new = before[most].mean, after[most].mean
    return f"{safe(name)}: {most} {old:.3g} to {new:.3g} ms ({signed_percent(old, new)})"


def _draw_times(axes: Axes, shown: Sequence[str], times: Table) -> None:
    longest = max(_total(times[name]) for name in shown)
    starts = dict.fromkeys(shown, 0.0)
    for phase in PHASES:
        rows = [row for row, name in enumerate(shown) if phase in times[name]]
        if not rows:
            continue
        spreads = [times[shown[row]][phase] for row in rows]
        lefts = [starts[shown[row]] for row in rows]
        bars = axes.barh(
            rows,
            [spread.mean for spread in spreads],
            left=lefts,
            height=0.62,
            color=phase_color(phase),
            edgecolor="white",
            linewidth=0.8,
            label=phase,
        )
        axes.bar_label(
            bars,
            [f"{s.mean:.3g}" if s.mean > _ROOM_FOR_A_NUMBER * longest else "" for s in spreads],
            label_type="center",
            fontsize=TICK,
            color="white" if phase == "backward" else INK,
        )
        # Each range lies at its phase's end, a little below the middle and off the number.
        axes.hlines(
            [row + 0.2 for row in rows],
            [left + spread.low for left, spread in zip(lefts, spreads, strict=True)],
            [left + spread.high for left, spread in zip(lefts, spreads, strict=True)],
            color=INK,
            linewidth=1.6,
        )
        for row, spread in zip(rows, spreads, strict=True):
            starts[shown[row]] += spread.mean
    for row, name in enumerate(shown):
        _value_at(axes, starts[name], (starts[name], row))
    axes.set_xlim(0, longest * 1.14 or 1.0)
    axes.set_yticks(range(len(shown)), [safe(name) for name in shown])
    axes.set_ylim(len(shown) - 0.5, -0.5)
    panel(axes, x="time of a step, ms", grid="x")


def _draw_peaks(axes: Axes, shown: Sequence[str], peaks: Table) -> None:
    found = [phase for phase in PHASES if any(phase in peaks.get(name, {}) for name in shown)]
    height = 0.78 / len(found)
    highest = max(spread.high for name in shown for spread in peaks.get(name, {}).values())
    for index, phase in enumerate(found):
        rows = [row for row, name in enumerate(shown) if phase in peaks.get(name, {})]
        spreads = [peaks[shown[row]][phase] for row in rows]
        places = [row - 0.39 + (index + 0.5) * height for row in rows]
        axes.barh(
            places,
            [spread.mean for spread in spreads],
            height=height * 0.92,
            color=phase_color(phase),
            label=phase,
        )
        axes.hlines(
            places,
            [spread.low for spread in spreads],
            [spread.high for spread in spreads],
            color=INK,
            linewidth=1.6,
        )
    for row, name in enumerate(shown):
        if not peaks.get(name):
            continue
        phase = max(peaks[name], key=lambda phase: peaks[name][phase].mean)
        top = peaks[name][phase]
        place = (top.high, row - 0.39 + (found.index(phase) + 0.5) * height)
        _value_at(axes, top.mean, place)
    axes.set_xlim(0, highest * 1.18 or 1.0)
    axes.tick_params(left=False, labelleft=False)
    panel(axes, x="peak memory of each phase, MiB", grid="x")


def _value_at(axes: Axes, value: float, place: tuple[float, float]) -> None:
    """The number at the end of its bar."""
    axes.annotate(
        f"{value:.4g}",
        place,
        xytext=(6, 0),
        textcoords="offset points",
        va="center",
        fontsize=TICK,
        fontweight="bold",
        color=INK,
    )
