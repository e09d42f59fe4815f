"""What a change buys and what it costs: time against peak memory, and where it wants to be."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from trainperf_mlflow.analysis.compare import measured, samples_per_step
from trainperf_mlflow.decisions.policies import GOALS
from trainperf_mlflow.reporting.pictures.style import (
    GREEN,
    INK,
    MAX_VARIANTS,
    TICK,
    Look,
    blank,
    finish,
    looks,
    panel,
    safe,
)
from trainperf_mlflow.results.comparison import Comparison
from trainperf_mlflow.results.record import Status
from trainperf_mlflow.results.study import Variant
from trainperf_mlflow.results.values import VariantValues

TIME, MEMORY = "step_time_ms", "peak_mem_mb"


class Region(NamedTuple):
    """Where a variant is accepted, as far as time (ms) and memory (MiB) decide; None: any."""

    max_time: float | None
    max_memory: float | None


def figure_time_memory(
    variants: Sequence[Variant],
    values: Sequence[VariantValues],
    comparison: Comparison,
    verdict: str = "",
) -> Figure | None:
    """One mark a variant, its repeats small; None where no variant has both time and memory.

    Times are for the baseline's samples per step.
    """
    baseline = next((value for value in values if value.role == "baseline"), None)
    source = baseline.peak_mem_source if baseline else None
    usable = [value for value in values if _point(value, value.metrics, baseline) is not None]
    compared = [v for v in usable if baseline is None or v.peak_mem_source == source]
    shown = compared[:MAX_VARIANTS]
    if not shown:
        return None
    region = accepted_region(comparison, baseline)
    notes = [
        "large: means over the repeats, small: repeats",
        f"{len(shown)} of {len(compared)} variants" if len(compared) > len(shown) else "",
        _missing(values, compared),
    ]
    figure = blank(4.8)
    axes = figure.subplots()
    look = looks(variants)
    for value in shown:
        _draw(axes, value, baseline, look.get(value.name, Look(INK, "o")))
    axes.margins(0.12)
    panel(axes, x="time of a step (for equal samples), ms", y="peak memory, MiB", grid="both")
    if region is not None:
        _draw_region(axes, region)
    return finish(
        figure,
        _title(shown, comparison, verdict),
        notes=notes,
        legend=axes.get_legend_handles_labels(),
    )


def accepted_region(comparison: Comparison, baseline: VariantValues | None) -> Region | None:
    """What the policy's thresholds ask of time and memory; None where there is no baseline."""
    if baseline is None:
        return None
    time, memory = measured(baseline.metrics, TIME), measured(baseline.metrics, MEMORY)
    if time is None or memory is None:
        return None
    limits: Mapping[str, float] = comparison.thresholds
    if comparison.policy == "training":
        return Region(time - limits["min_time_delta_ms"], memory - limits["min_memory_delta_mb"])
    if comparison.policy != "goal" or not comparison.goal or comparison.goal not in GOALS:
        return None
    gain, cost = limits["min_gain"] / 100, limits["max_cost"] / 100
    metric = GOALS[comparison.goal].metric
    if metric == TIME:
        return Region(time * (1 - gain), memory * (1 + cost))
    if metric in ("samples_per_s", "tokens_per_s"):
        return Region(time / (1 + gain), memory * (1 + cost))
    if metric == MEMORY:
        return Region(time * (1 + cost), memory * (1 - gain))
    return Region(time * (1 + cost), memory * (1 + cost))


def _point(
    value: VariantValues, metrics: Mapping[str, float], baseline: VariantValues | None
) -> tuple[float, float] | None:
    time, memory = measured(metrics, TIME), measured(metrics, MEMORY)
    if time is None or memory is None or value.effect_verified is False:
        return None
    ours = samples_per_step(value)
    theirs = samples_per_step(baseline) if baseline is not None else None
    return (time * theirs / ours if ours and theirs else time), memory


def _missing(values: Sequence[VariantValues], compared: Sequence[VariantValues]) -> str:
    missing = [safe(value.name) for value in values if value not in compared]
    return f"without comparable time and memory: {', '.join(missing[:6])}" if missing else ""


def _title(shown: Sequence[VariantValues], comparison: Comparison, verdict: str) -> str:
    best = next((c for c in comparison.candidates if c.variant == comparison.best_candidate), None)
    if best is None or all(value.name != best.variant for value in shown):
        return verdict or "Time and peak memory"
    parts = []
    for key, words in (("step_time_pct", "time"), ("peak_mem_pct", "peak memory")):
        gain = best.delta.get(key)
        if gain is not None and math.isfinite(gain):
            more = f"{abs(gain):.2g} % {'less' if gain > 0 else 'more'}"
            parts.append(f"{more if abs(gain) >= 0.05 else 'the same'} {words}")
    return " | ".join(part for part in (verdict, ", ".join(parts)) if part)


def _draw(axes: Axes, value: VariantValues, baseline: VariantValues | None, look: Look) -> None:
    mean = _point(value, value.metrics, baseline)
    assert mean is not None
    small = [
        point
        for repeat in value.repeats
        if repeat.status is Status.OK
        and (point := _point(value, repeat.metrics, baseline)) is not None
    ]
    if len(small) > 1:
        axes.scatter(
            [x for x, _ in small],
            [y for _, y in small],
            s=22,
            color=look.color,
            marker=look.marker,
            alpha=0.45,
        )
    axes.scatter(
        *mean,
        s=150,
        color=look.color,
        marker=look.marker,
        edgecolors="white",
        label=safe(value.name),
        zorder=3,
    )


def _draw_region(axes: Axes, region: Region) -> None:
    """The region to the lower left; where it lies outside of what is drawn, words say so."""
    (left, right), (bottom, top) = axes.get_xlim(), axes.get_ylim()
    max_time = right if region.max_time is None else region.max_time
    max_memory = top if region.max_memory is None else region.max_memory
    # Near enough to be shown without squeezing the variants into a corner.
    if 0 < max_time < left and left - max_time < 2 * (right - left):
        left = max_time - 0.15 * (right - max_time)
    if 0 < max_memory < bottom and bottom - max_memory < 2 * (top - bottom):
        bottom = max_memory - 0.15 * (top - max_memory)
    left, bottom = max(left, 0.0), max(bottom, 0.0)
    axes.set_xlim(left, right)
    axes.set_ylim(bottom, top)
    if max_time <= left or max_memory <= bottom:
        axes.text(
            0.01,
            0.02,
            _words(region),
            transform=axes.transAxes,
            color=GREEN,
            fontsize=TICK,
            va="bottom",
        )
        return
    axes.fill_between(
        [left, min(max_time, right)],
        bottom,
        min(max_memory, top),
        color=GREEN,
        alpha=0.13,
        linewidth=0,
        label="accepted here",
    )


def _words(region: Region) -> str:
    limits = []
    for limit, unit in ((region.max_time, "ms"), (region.max_memory, "MiB")):
        if limit is not None and limit <= 0:
            return f"accepted nowhere: the policy wants a larger gain than the baseline has {unit}"
        if limit is not None:
            limits.append(f"{limit:.4g} {unit}")
    return f"accepted outside of this picture: at {' and '.join(limits)} or less"
