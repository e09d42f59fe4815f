"""A comparison on the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from rich import box
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from trainperf_mlflow.analysis.side_by_side import BASIS, told_gains
from trainperf_mlflow.reporting.assessment import why_block
from trainperf_mlflow.reporting.budget import budget_lines
from trainperf_mlflow.reporting.console import columns_of, rendered
from trainperf_mlflow.reporting.next_steps import next_line
from trainperf_mlflow.reporting.noise import noise_lines
from trainperf_mlflow.reporting.text import clipped, number, plain
from trainperf_mlflow.results.comparison import CandidateComparison, Comparison
from trainperf_mlflow.results.decision import Decision

_NAME_CHARS = 60
_NOTE_CHARS = 600
_COLOURS = {"accept": "green", "tune": "yellow", "reject": "red", "measure": "cyan"}


class Column(NamedTuple):
    """A metric of the table: its name, decimals, and how its difference is told.

    ``saved``: the difference is baseline - candidate, and positive is better.
    """

    title: str
    metric: str
    decimals: int
    percent: str | None = None
    saved: bool = False


COLUMNS = (
    Column("step time ms", "step_time_ms", 2, "step_time_pct", saved=True),
    Column("samples/s", "samples_per_s", 2),
    Column("peak mem MiB", "peak_mem_mb", 1, "peak_mem_pct", saved=True),
    Column("loss", "loss", 4),
    Column("eval loss", "eval_loss", 4),
)


def comparison_text(
    comparison: Comparison, *, width: int | None = None, colour: bool | None = None
) -> str:
    """The table, the notes and the decision as text.

    Args:
        comparison: what to show.
        width: columns, kept within 80 and 200; by default those of the terminal.
        colour: with ANSI colours; by default where stdout is a terminal and NO_COLOR is unset.
    """
    return rendered(comparison_view(comparison, columns_of(width)), width=width, colour=colour)


def to_text(comparison: Comparison, width: int = 100) -> str:
    """The same without colours, for a file or a log."""
    return comparison_text(comparison, width=width, colour=False)


def comparison_view(comparison: Comparison, width: int) -> RenderableType:
    """Heading, table, notes, warnings, why it is so and, last, the decision.

    Args:
        width: columns that it will have.
    """
    parts: list[RenderableType] = [_heading(comparison), comparison_table(comparison)]
    if any(item.time is not None for item in comparison.candidates):
        parts.append(Padding(Text(BASIS, style="dim"), (0, 0, 0, 2)))
    parts += [_note(candidate) for candidate in comparison.candidates]
    parts += [
        Padding(Text(f"budget: {clipped(plain(line), _NOTE_CHARS)}"), (0, 0, 0, 2))
        for line in budget_lines(comparison)
    ]
    parts += [
        Padding(Text(clipped(plain(line), _NOTE_CHARS), style="dim"), (0, 0, 0, 2))
        for line in noise_lines(comparison)
    ]
    if comparison.warnings:
        parts.append(Text(""))
        parts += [
            Padding(Text(f"! {clipped(plain(warning), _NOTE_CHARS)}", style="yellow"), (0, 0, 0, 2))
            for warning in comparison.warnings
        ]
    if comparison.assessment is not None:
        title, *lines = why_block(comparison.assessment, width - 2)
        parts.append(Text(f"\n{title}"))
        parts += [Padding(Text(line, style="dim"), (0, 0, 0, 2)) for line in lines]
    parts += [Text(""), *_decision(comparison)]
    return Group(*parts)


def comparison_table(comparison: Comparison) -> Table:
    """Per variant its metrics, what it saves (under them, in units and percent), its decision."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True, show_edge=False)
    table.add_column("variant", overflow="fold", min_width=6)
    for column in COLUMNS:
        table.add_column(column.title, justify="right", no_wrap=True)
    table.add_column("decision", min_width=8)
    baseline = comparison.baseline
    before = {} if baseline is None else baseline.metrics
    if baseline is not None:
        table.add_row(_name(baseline.name), *_values(baseline.metrics), Text("-"))
    for candidate in comparison.candidates:
        table.add_row(
            _name(candidate.variant),
            *_values(candidate.metrics, told_gains(candidate, before)),
            _verdict(candidate, comparison.standing_on(candidate)),
        )
    return table


def difference_lines(column: Column, delta: Mapping[str, float]) -> list[str]:
    """The difference of one metric in units and in percent, with its direction in a word.

    >>> difference_lines(COLUMNS[0], {"step_time_ms": -3.5, "step_time_pct": -7.0})
    ['costs 3.50', '7.0 %']
    """
    value = delta.get(column.metric)
    if value is None:
        return []
    if not column.saved:
        return (
            ["same"]
            if not value
            else [f"{'+' if value > 0 else ''}{number(value, column.decimals)}"]
        )
    percent = delta.get(column.percent or "")
    # Where the rounded difference is 0, as for steps of microseconds, the percentage still tells.
    sign = value or percent or 0.0
    word = "saves" if sign > 0 else "costs" if sign < 0 else "same"
    lines = [f"{word} {number(abs(value), column.decimals)}" if sign else word]
    low, high = (delta.get(f"{column.percent}_{end}") for end in ("low", "high"))
    if percent is not None and low is not None and high is not None:
        # As the word says: what costs is counted as cost.
        if word == "costs":
            percent, low, high = -percent, -high, -low
        signed = "+" if low < 0 else ""
        return [*lines, f"{percent:{signed}.1f} %", f"[{low:{signed}.1f}, {high:{signed}.1f}]"]
    return lines if percent is None or not sign else [*lines, f"{number(abs(percent), 1)} %"]


def _values(metrics: Mapping[str, float], delta: Mapping[str, float] | None = None) -> list[Text]:
    cells = []
    for column in COLUMNS:
        cell = Text(number(metrics.get(column.metric), column.decimals))
        for line in difference_lines(column, delta or {}):
            style = {"saves": "green", "costs": "red"}.get(line.split()[0], "dim")
            cell.append(f"\n{line}", style=style)
        cells.append(cell)
    return cells


def _name(name: str) -> Text:
    return Text(clipped(plain(name), _NAME_CHARS))


def _verdict(candidate: CandidateComparison, decision: Decision) -> Text:
    text = Text(decision.decision, style=_COLOURS[decision.decision])
    if candidate.time is not None:
        text.append(f"\n{candidate.time.direction}", style="dim")
    if candidate.status.value != "ok":
        text.append(f"\n{candidate.status.value}", style="red")
    return text


def _heading(comparison: Comparison) -> Text:
    goal = f" · goal {comparison.goal}" if comparison.goal else ""
    text = Text.assemble(
        (clipped(plain(comparison.study), _NAME_CHARS), "bold"),
        f" · {clipped(plain(comparison.workload), _NAME_CHARS)}{goal}",
    )
    text.append("\n")
    return text


def _note(candidate: CandidateComparison) -> RenderableType:
    name = clipped(plain(candidate.variant), _NAME_CHARS)
    note = clipped(plain(candidate.note), _NOTE_CHARS)
    return Padding(Text.assemble((name, "bold"), f": {note}"), (0, 0, 0, 2))


def _decision(comparison: Comparison) -> Iterator[RenderableType]:
    """The decision that holds, with the measured one beside it where the study is closed."""
    decision, closed = comparison.standing, comparison.closed
    of = _of(comparison.standing_best)
    yield Text.assemble(
        "" if closed is None else f"closed as {clipped(plain(closed.label), _NAME_CHARS)!r}: ",
        (f"{decision.decision}{of}", f"bold {_COLOURS[decision.decision]}"),
        f"{how_sure(decision)} ({decision.reason}, policy {decision.policy})",
    )
    yield Padding(Text(clipped(plain(decision.text), _NOTE_CHARS)), (0, 0, 0, 2))
    step = next_line(clipped(plain(decision.next_action), _NAME_CHARS), rollback=decision.rollback)
    yield Padding(Text(step), (0, 0, 0, 2))
    best = next(
        (item for item in comparison.candidates if item.variant == comparison.standing_best), None
    )
    for item in comparison.candidates:
        # The best one's reason is the study's; the others say theirs here.
        own = comparison.standing_on(item)
        if item is not best and own.text != item.note:
            yield Padding(
                Text(
                    f"{clipped(plain(item.variant), _NAME_CHARS)}: {own.decision} "
                    f"({own.reason}): {clipped(plain(own.text), _NOTE_CHARS)}"
                ),
                (0, 0, 0, 2),
            )
    if closed is not None:
        yield Text(measured_line(comparison), style="dim")
    for line in other_policies_line(comparison):
        yield Padding(Text(line, style="dim"), (0, 0, 0, 2))


def other_policies_line(comparison: Comparison) -> list[str]:
    """What other policies would say about the best candidate, and why they differ; or nothing."""
    best = comparison.standing_best
    said = [
        f"{name}: {other.decision} ({other.reason})"
        for item in comparison.candidates
        if item.variant == best
        for name, other in item.other_decisions.items()
    ]
    by = f"by the fixed thresholds of other policies instead of this study's {_asked(comparison)}"
    return [f"{by}: {'; '.join(said)}"] if said else []


def _asked(comparison: Comparison) -> str:
    return "goal" if comparison.goal and comparison.policy == "goal" else "policy"


def measured_line(comparison: Comparison) -> str:
    """What was decided before the close, in one line."""
    decision = comparison.decision
    return (
        f"measured before the close: {decision.decision}{_of(comparison.best_candidate)}"
        f"{how_sure(decision)} ({decision.reason}, policy {decision.policy}): "
        f"{clipped(plain(decision.text), _NOTE_CHARS)}"
    )


def _of(candidate: str | None) -> str:
    return f" {clipped(plain(candidate), _NAME_CHARS)}" if candidate else ""


def how_sure(decision: Decision) -> str:
    # A probe claims nothing that could be confirmed.
    return "" if decision.decision == "measure" else f", {decision.confidence}"
