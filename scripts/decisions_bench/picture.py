"""The findings in one picture: how often a rule is wrong, and what it finds."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from decisions_bench.scoring import OURS, OURS_CALIBRATED, Rate
from decisions_bench.tables import BESIDE, QUIET, Findings
from trainperf_mlflow.reporting.pictures.style import (
    BLUE,
    DARK_GREY,
    GREEN,
    TICK,
    VERMILION,
    blank,
    finish,
    panel,
    png,
)

_OWN, _PAIRS = VERMILION, BLUE


def draw(findings: Findings) -> bytes:
    """A row for each condition: false verdicts on the left, a 2 % and a 5 % change on the right."""
    conditions = [
        c for c in (QUIET, BESIDE) if any(s.about["condition"] == c for s in findings.streams)
    ]
    rules = findings.rules
    figure = blank(0.9 + len(conditions) * (0.7 + 0.24 * len(rules)))
    grid = figure.subplots(len(conditions), 2, squeeze=False, sharex="col", sharey=True)
    for axes, condition in zip(grid, conditions, strict=True):
        _false(axes[0], findings, condition)
        _found(axes[1], findings, condition)
    marks = [
        Line2D([], [], color=_OWN, marker="s", linestyle="", fillstyle="none"),
        Line2D([], [], color=_PAIRS, marker="o", linestyle=""),
        Line2D([], [], color=GREEN, marker="^", linestyle=""),
        Line2D([], [], color=DARK_GREY, marker="D", linestyle=""),
    ]
    words = (
        *("identical code called different, in its own order", "the same, in pairs"),
        *("2 % found, in pairs", "5 % found, in pairs"),
    )
    title = _title(findings)
    note = (
        "bars: 95 % Wilson intervals, of as many studies as the streams hold without overlap; "
        "all rules judge the same steps, ours may stop before"
    )
    return png(finish(figure, title, notes=(note,), legend=(marks, words)))


def _title(findings: Findings) -> str:
    """The finding: how often the rules are wrong on identical code beside a neighbour."""

    def false(rule: str, order: str) -> Rate | None:
        chosen = findings.select(BESIDE, rule, "identical", order)
        return findings.rate(chosen, lambda one: one.wrong)

    ours = false(OURS, "pairs")
    others = [false(peer.name, peer.own_order) for peer in findings.peers]
    worst = max((seen.share for seen in others if seen is not None), default=0.0)
    studies = 0 if ours is None else ours.studies
    # A share means little without how many studies it is of.
    return (
        f"{studies} studies of identical code beside one neighbour: called faster or slower in "
        f"up to {100 * worst:.0f} % by others' rules, in "
        f"{0 if ours is None else 100 * ours.share:.0f} % by ours"
    )


def _false(axes: Axes, findings: Findings, condition: str) -> None:
    for place, rule in enumerate(findings.rules):
        own = findings.own_order(rule)
        if own is not None:
            seen = findings.select(condition, rule, "identical", own)
            _mark(axes, place - 0.15, findings.rate(seen, lambda one: one.wrong), _OWN, "s", "none")
        seen = findings.select(condition, rule, "identical")
        _mark(axes, place + 0.15, findings.rate(seen, lambda one: one.wrong), _PAIRS, "o", "full")
    _dress(axes, findings.rules, f"{condition}: false verdicts, %")


def _found(axes: Axes, findings: Findings, condition: str) -> None:
    for place, rule in enumerate(findings.rules):
        for change, color, marker, shift in ((2, GREEN, "^", -0.15), (5, DARK_GREY, "D", 0.15)):
            seen = findings.select(condition, rule, "multiplied", change_pct=change)
            found = findings.rate(seen, lambda one: one.right)
            _mark(axes, place + shift, found, color, marker, "full")
    _dress(axes, findings.rules, f"{condition}: found, %")


def _mark(axes: Axes, place: float, seen: Rate | None, color: str, marker: str, fill: str) -> None:
    if seen is None:
        return
    x, low, high = (100 * value for value in (seen.share, seen.low, seen.high))
    axes.plot([low, high], [place, place], color=color, linewidth=1, alpha=0.5)
    axes.plot([x], [place], color=color, marker=marker, linestyle="", fillstyle=fill)


def _dress(axes: Axes, rules: Sequence[str], title: str) -> None:
    panel(axes, title=title, grid="x")
    axes.set_yticks(range(len(rules)), rules)
    axes.set_ylim(len(rules) - 0.4, -0.6)
    axes.set_xlim(-3, 103)
    for label in axes.get_yticklabels():
        label.set_fontsize(TICK - 1)
        label.set_fontweight("bold" if label.get_text() in (OURS, OURS_CALIBRATED) else "normal")
