"""Each pair's ratio of step times, and what they estimate together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from trainperf_mlflow.reporting.pictures.style import (
    DARK_GREY,
    GREY,
    INK,
    MAX_VARIANTS,
    TICK,
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
from trainperf_mlflow.results.study import Variant

# A candidate's pairs fill this part of its column, in their order.
_COLUMN = 0.7
# More do not fit beside each other.
_LEVEL_NAMES = 5


@dataclass(frozen=True)
class Looked:
    """A moment at which it was decided whether to go on: after so many pairs, with this interval
    (None where there was none yet)."""

    pairs: int
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class PairedRatios:
    """One candidate's pairs; all values are ln(baseline / candidate): above 0 it is faster.

    Attributes:
        ratios: one a pair, in the order in which they were measured.
        counted: whether each counts in the estimate; empty where all do.
        estimate, low, high: of the pairs that count, and its interval.
        margin: differences smaller than this, either way, count as the same.
        looks: when it was decided whether to go on, of a study that might; the last one ended it.
    """

    variant: str
    ratios: tuple[float, ...]
    estimate: float | None = None
    low: float | None = None
    high: float | None = None
    margin: float | None = None
    looks: tuple[Looked, ...] = ()
    counted: tuple[bool, ...] = ()


def figure_ratios(
    variants: Sequence[Variant], candidates: Sequence[PairedRatios], verdict: str = ""
) -> Figure | None:
    """Pairs as marks in their order, one column a candidate; None where there is no pair."""
    usable = [item for item in candidates if finite(item.ratios)]
    shown = usable[:MAX_VARIANTS]
    if not shown:
        return None
    strange = sum(len(item.ratios) - len(finite(item.ratios)) for item in candidates)
    margin = next((item.margin for item in shown if item.margin is not None), None)
    intervals = any(item.low is not None and item.high is not None for item in shown)
    notes = (
        "a mark is a pair, from left to right in the order of measuring",
        "bar: estimate" + (" and its interval" if intervals else " (no interval yet)")
        if any(item.estimate is not None for item in shown)
        else "",
        "grey: within the margin, the same" if margin is not None else "",
        "hollow: disturbed from outside, set aside" if any(map(_aside, shown)) else "",
        _looks_note(shown),
        f"{len(shown)} of {len(usable)} candidates" if len(usable) > len(shown) else "",
        left_out(strange, "pair"),
    )
    figure = blank(4.6)
    axes = figure.subplots()
    look = looks(variants)
    if margin is not None:
        axes.axhspan(-margin, margin, color=GREY, alpha=0.4, linewidth=0)
    axes.axhline(0.0, color=INK, linewidth=1)
    for column, item in enumerate(shown):
        _draw(axes, column, item, look.get(item.variant, Look(DARK_GREY, "o")))
    axes.set_xlim(-0.6, len(shown) - 0.4)
    crowded = len(shown) > _LEVEL_NAMES
    names = [f"{safe(item.variant, 14 if crowded else 26)}\n{_pairs(item)}" for item in shown]
    axes.set_xticks(range(len(shown)), names)
    if crowded:
        for label in axes.get_xticklabels():
            label.set(rotation=30, ha="right", rotation_mode="anchor")
    axes.margins(y=0.12)
    _ticks_in_percent(axes)
    panel(axes, y="speed against the baseline, % (log scale)")
    axes.tick_params(axis="x", labelsize=TICK, length=0)
    for text, y, va in (("faster than the baseline", 0.99, "top"), ("slower", 0.01, "bottom")):
        axes.text(
            0.995, y, text, transform=axes.transAxes, ha="right", va=va, color=INK, fontsize=TICK
        )
    return finish(figure, _title(shown, verdict), notes=notes)


def _ticks_in_percent(axes: Axes) -> None:
    """Readable percentages at their places on the axis of logarithms."""
    low, high = (math.expm1(limit) * 100 for limit in axes.get_ylim())
    ticks = [tick for tick in MaxNLocator(8).tick_values(low, high) if low <= tick <= high]
    axes.set_yticks(
        [math.log1p(tick / 100) for tick in ticks],
        [f"{tick:+.4g} %" if tick else "0" for tick in ticks],
    )


def _title(shown: Sequence[PairedRatios], verdict: str) -> str:
    said = [
        f"{safe(item.variant)} {_percent(item.estimate)}{_interval(item)} in speed"
        for item in shown
        if item.estimate is not None and math.isfinite(item.estimate)
    ]
    return " | ".join(part for part in (verdict, listed(said, 3) or "Speed by pair") if part)


def _looks_note(shown: Sequence[PairedRatios]) -> str:
    if not any(item.looks for item in shown):
        return ""
    end = "solid: where it ended"
    earlier = "dotted: looked at, with the interval of then, and went on"
    return f"{earlier}; {end}" if any(len(item.looks) > 1 for item in shown) else end


def _aside(item: PairedRatios) -> int:
    """How many pairs do not count."""
    return item.counted.count(False)


def _pairs(item: PairedRatios) -> str:
    of = f"{len(item.ratios) - _aside(item)} of " if _aside(item) else ""
    return f"{of}{len(item.ratios)} pair{'' if len(item.ratios) == 1 else 's'}"


def _percent(ratio: float) -> str:
    return f"{math.expm1(ratio) * 100:+.3g} %"


def _interval(item: PairedRatios) -> str:
    if item.low is None or item.high is None:
        return ""
    return f" ({_percent(item.low)} to {_percent(item.high)})"


def _draw(axes: Axes, column: int, item: PairedRatios, look: Look) -> None:
    count = len(item.ratios)

    def place(pair: float) -> float:
        return column + _COLUMN * ((pair + 0.5) / count - 0.5)

    counted = item.counted or (True,) * count
    for counts in (True, False):
        points = [
            (place(i), ratio)
            for i, (ratio, own) in enumerate(zip(item.ratios, counted, strict=True))
            if math.isfinite(ratio) and own == counts
        ]
        axes.scatter(
            [x for x, _ in points],
            [y for _, y in points],
            s=max(12.0, 46.0 - count / 4),
            edgecolors=look.color,
            facecolors=look.color if counts else "none",
            marker=look.marker,
            alpha=0.75,
            zorder=3,
        )
    sides = (column - _COLUMN / 2 - 0.06, column + _COLUMN / 2 + 0.06)
    if item.low is not None and item.high is not None:
        axes.fill_between(sides, item.low, item.high, color=look.color, alpha=0.2, linewidth=0)
    if item.estimate is not None and math.isfinite(item.estimate):
        axes.hlines(item.estimate, *sides, color=look.color, linewidth=2.5, zorder=2)
    for place_of, looked in enumerate(item.looks, 1):
        x, last = place(looked.pairs - 0.5), place_of == len(item.looks)
        axes.axvline(x, color=INK, linewidth=0.8, linestyle="-" if last else ":")
        # The last one's interval is that of all pairs.
        if not last and looked.low is not None and looked.high is not None:
            ends = (looked.low, looked.high)
            axes.plot([x, x], ends, color=look.color, linewidth=1.5, marker="_", markersize=9)
