"""Every measured block in the order of the clock, and what disturbed it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from trainperf_mlflow.analysis.noise import disturbances, usual_references_ms
from trainperf_mlflow.analysis.signal import block_values
from trainperf_mlflow.reporting.pictures.style import (
    INK,
    MAX_VARIANTS,
    PURPLE,
    Look,
    blank,
    finish,
    left_out,
    listed,
    looks,
    panel,
    safe,
    signed_percent,
)
from trainperf_mlflow.results.record import Status
from trainperf_mlflow.results.repeats import Block, Repeat
from trainperf_mlflow.results.study import Variant


class Point(NamedTuple):
    """One block: when (Unix seconds), how long a step took (ms), what disturbed it."""

    variant: str
    at: float
    wall_s: float
    step_ms: float
    low: float  # its fastest and slowest step
    high: float
    waiting: float | None  # share of its time, runnable but without a core
    switches: float | None  # per second
    slower: float | None  # share by which a fixed computation took longer than usual
    disturbed: bool


def figure_steps(variants: Sequence[Variant], repeats: Sequence[Repeat]) -> Figure | None:
    """Step times over the clock, coloured by variant; None where no block was measured.

    Where variants have other samples per step, the time is that of one sample.
    """
    sizes = {r.samples_per_step for r in repeats if r.blocks and r.samples_per_step}
    per_sample = len(sizes) > 1 and all(r.samples_per_step for r in repeats if r.blocks)
    points, strange = _points(repeats, per_sample)
    if not points:
        return None
    of = "sample" if per_sample else "step"
    rows = [
        (
            "waiting for\na core, %",
            [None if p.waiting is None else p.waiting * 100 for p in points],
        ),
        ("switched away,\ntimes a second", [p.switches for p in points]),
        (
            "core slower\nthan usual, %",
            [None if p.slower is None else p.slower * 100 for p in points],
        ),
    ]
    rows = [(label, values) for label, values in rows if any_given(values)]
    failed = Counter(r.status.value for r in repeats if r.status is not Status.OK)
    notes = (
        "a mark is a block, its line from the fastest to the slowest step of it",
        ", ".join(f"{count} repeats {status}" for status, count in failed.items()),
        left_out(strange, "block"),
    )
    figure = blank(4.0 + 0.9 * len(rows))
    grid = figure.subplots(
        1 + len(rows),
        1,
        sharex=True,
        squeeze=False,
        height_ratios=(3.2, *[1] * len(rows)),
    )[:, 0]
    start = min(point.at for point in points)
    scale, unit = _clock(max(point.at + point.wall_s for point in points) - start)
    xs = [(point.at + point.wall_s / 2 - start) / scale for point in points]
    look = looks(variants)
    _draw_blocks(grid[0], points, xs, look)
    panel(grid[0], y=f"time of a {of}, ms")
    for axes, (label, values) in zip(grid[1:], rows, strict=True):
        _draw_disturbance(axes, points, xs, values, look)
        panel(axes, y=label)
        axes.set_ylabel(label, fontsize=9.5)
    grid[-1].set_xlabel(f"time since the first block, {unit}", fontsize=12, color=INK)
    return finish(
        figure,
        _title(variants, points, of),
        notes=notes,
        legend=grid[0].get_legend_handles_labels(),
    )


def any_given(values: Sequence[float | None]) -> bool:
    return any(value is not None for value in values)


def _points(repeats: Sequence[Repeat], per_sample: bool) -> tuple[list[Point], int]:
    found, strange = [], 0
    usual = iter(usual_references_ms([block for repeat in repeats for block in repeat.blocks]))
    for repeat in repeats:
        share = repeat.samples_per_step or 1.0 if per_sample else 1.0
        for block, usual_ms in zip(repeat.blocks, usual, strict=False):
            steps = [step / share for step in block.step_ms]
            numbers = (block.started_at, block.wall_ms, *steps)
            if not steps or not all(map(math.isfinite, numbers)) or block.wall_ms <= 0:
                strange += bool(steps)
                continue
            wall_s = block.wall_ms / 1000
            delay, switches = block.run_delay_ms, block.involuntary_switches
            found.append(
                Point(
                    variant=repeat.variant,
                    at=block.started_at,
                    wall_s=wall_s,
                    step_ms=block.wall_ms / len(steps) / share,
                    low=min(steps),
                    high=max(steps),
                    waiting=None if delay is None else delay / block.wall_ms,
                    switches=None if switches is None else switches / wall_s,
                    slower=_slower(block, usual_ms),
                    disturbed=_disturbed(block, usual_ms),
                )
            )
    return sorted(found, key=lambda point: point.at), strange


def _slower(block: Block, usual_ms: float | None) -> float | None:
    times = block.watch and block.watch.reference_ms
    return max(0.0, max(times) / usual_ms - 1) if times and usual_ms else None


def _disturbed(block: Block, usual_ms: float | None) -> bool:
    values = block_values(block, None)
    return values is not None and bool(disturbances(values, usual_ms))


def _clock(seconds: float) -> tuple[float, str]:
    if seconds < 300:
        return 1.0, "s"
    return (60.0, "minutes") if seconds < 3 * 3600 else (3600.0, "hours")


def _title(variants: Sequence[Variant], points: Sequence[Point], of: str) -> str:
    typical = {
        variant.name: median(p.step_ms for p in points if p.variant == variant.name)
        for variant in variants
        if any(point.variant == variant.name for point in points)
    }
    baseline = next((v.name for v in variants if v.role == "baseline"), "")
    reference = typical.get(baseline)
    said = [
        f"{safe(name)} {ms:.4g}"
        + (f" ({signed_percent(reference, ms)})" if reference and name != baseline else "")
        for name, ms in typical.items()
    ]
    disturbed = sum(p.disturbed for p in points)
    quiet = f"; {disturbed} of {len(points)} blocks disturbed" if disturbed else ""
    return f"Median ms a {of}: {listed(said)}{quiet}"


def _draw_blocks(
    axes: Axes, points: Sequence[Point], xs: Sequence[float], look: dict[str, Look]
) -> None:
    size = max(14.0, 46.0 - len(points) / 10)
    for index, (name, (color, marker)) in enumerate(look.items()):
        own = [(x, point) for x, point in zip(xs, points, strict=True) if point.variant == name]
        if not own:
            continue
        x = [x for x, _ in own]
        axes.vlines(x, [p.low for _, p in own], [p.high for _, p in own], color=color, alpha=0.35)
        label = safe(name) if index < MAX_VARIANTS else "_"
        axes.scatter(
            x,
            [p.step_ms for _, p in own],
            s=size,
            color=color,
            marker=marker,
            label=label,
            zorder=3,
        )
    rings = [(x, p.step_ms) for x, p in zip(xs, points, strict=True) if p.disturbed]
    if rings:
        axes.scatter(
            [x for x, _ in rings],
            [y for _, y in rings],
            s=size * 3.2,
            facecolors="none",
            edgecolors=INK,
            linewidths=1.2,
            label="disturbed",
            zorder=4,
        )


def _draw_disturbance(
    axes: Axes,
    points: Sequence[Point],
    xs: Sequence[float],
    values: Sequence[float | None],
    look: dict[str, Look],
) -> None:
    given = [
        (x, value, look[point.variant].color if point.variant in look else PURPLE)
        for x, value, point in zip(xs, values, points, strict=True)
        if value is not None and math.isfinite(value)
    ]
    axes.vlines(
        [x for x, _, _ in given],
        0,
        [value for _, value, _ in given],
        colors=[color for _, _, color in given],
        linewidth=3 if len(given) < 100 else 1,
    )
    axes.set_ylim(0, max((value for _, value, _ in given), default=0.0) * 1.15 or 1.0)
