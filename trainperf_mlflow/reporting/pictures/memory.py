"""What fills the memory while a step runs: categories over time, one panel a variant."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import groupby

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from trainperf_mlflow.attribution import CATEGORIES, MemorySample
from trainperf_mlflow.reporting.pictures.style import (
    CATEGORY_COLORS,
    INK,
    NOTE,
    blank,
    finish,
    left_out,
    listed,
    panel,
    phase_color,
    safe,
)

# One above the other: more would be lower than wide areas can be read.
MAX_PANELS = 6
# Of the whole time: a phase's name does not fit into less.
_ROOM_FOR_A_NAME = 0.07


def figure_memory(samples: Mapping[str, Sequence[MemorySample]]) -> Figure | None:
    """Stacked areas by category, in MiB over ms since the step's start; None without a sample.

    Args:
        samples: one step's, by variant, the baseline first.
    """
    usable = {name: good for name, all_of in samples.items() if (good := _finite(all_of))}
    shown = dict(list(usable.items())[:MAX_PANELS])
    if not shown:
        return None
    strange = sum(len(all_of) for all_of in samples.values())
    strange -= sum(len(good) for good in usable.values())
    notes = (
        "one tracked step of each variant; the tracker itself slows it",
        f"{len(shown)} of {len(usable)} variants" if len(usable) > len(shown) else "",
        left_out(strange, "sample"),
    )
    figure = blank(0.7 + 1.9 * len(shown))
    all_axes = figure.subplots(len(shown), 1, sharex=True, sharey=True, squeeze=False)[:, 0]
    end = max(max(sample.at_ms for sample in of) for of in shown.values()) or 1.0
    highest = max(_total(sample) for of in shown.values() for sample in of) or 1.0
    categories = [
        category
        for category in CATEGORIES
        if any(sample.memory_mb.get(category) for of in shown.values() for sample in of)
    ]
    for axes, (name, of) in zip(all_axes, shown.items(), strict=True):
        _draw(axes, of, categories, end, highest)
        panel(axes, y="memory, MiB", title=safe(name))
    all_axes[-1].set_xlabel("time since the start of the step, ms", fontsize=12, color=INK)
    return finish(
        figure, _title(shown), notes=notes, legend=all_axes[0].get_legend_handles_labels()
    )


def _finite(samples: Sequence[MemorySample]) -> list[MemorySample]:
    return [
        sample
        for sample in samples
        if math.isfinite(sample.at_ms) and math.isfinite(_total(sample))
    ]


def _total(sample: MemorySample) -> float:
    return sum(sample.memory_mb.values())


def _title(shown: Mapping[str, Sequence[MemorySample]]) -> str:
    findings = []
    for name, samples in shown.items():
        peak = max(samples, key=_total)
        most = max(peak.memory_mb, key=lambda c: peak.memory_mb[c], default="")
        findings.append(
            f"{safe(name)} {_total(peak):.4g} MiB in {safe(peak.phase, 12)} (most: {_words(most)})"
        )
    return f"Memory peaks: {listed(findings, 3)}"


def _words(category: str) -> str:
    return category.replace("_", " ")


def _draw(
    axes: Axes,
    samples: Sequence[MemorySample],
    categories: Sequence[str],
    end: float,
    highest: float,
) -> None:
    times = [sample.at_ms for sample in samples]
    rows = [[sample.memory_mb.get(category, 0.0) for sample in samples] for category in categories]
    axes.stackplot(
        times,
        rows,
        labels=[_words(category) for category in categories],
        colors=[CATEGORY_COLORS.get(category, INK) for category in categories],
        step="post",
    )
    peak = max(samples, key=_total)
    axes.plot([peak.at_ms], [_total(peak)], "v", color=INK, markersize=7)
    ceiling = highest * 1.24
    axes.set_ylim(0, ceiling)
    axes.set_xlim(0, end)
    starts = [next(group) for _, group in groupby(samples, key=lambda sample: sample.phase)]
    ends = [*(sample.at_ms for sample in starts[1:]), times[-1]]
    for sample, until in zip(starts, ends, strict=True):
        axes.axvspan(
            sample.at_ms, until, ymin=0.9, color=phase_color(sample.phase), alpha=0.9, linewidth=0
        )
        if sample is not starts[0]:
            axes.axvline(sample.at_ms, color=INK, linewidth=0.8, linestyle=":")
        if until - sample.at_ms > _ROOM_FOR_A_NAME * end:
            axes.annotate(
                safe(sample.phase, 12),
                ((sample.at_ms + until) / 2, ceiling * 0.948),
                ha="center",
                va="center",
                fontsize=NOTE,
                color="white" if sample.phase == "backward" else INK,
            )
