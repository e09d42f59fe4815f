"""The notes on the runs of a study and of its variants in MLflow: the decision first."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from trainperf_mlflow.analysis.side_by_side import BASIS, told_gains
from trainperf_mlflow.reporting.assessment import unseen_lines, why_lines
from trainperf_mlflow.reporting.budget import budget_lines
from trainperf_mlflow.reporting.losses import how_to_ask, loss_lines
from trainperf_mlflow.reporting.noise import noise_lines
from trainperf_mlflow.reporting.table import (
    COLUMNS,
    difference_lines,
    how_sure,
    measured_line,
    other_policies_line,
)
from trainperf_mlflow.reporting.text import clipped, markdown, number, plain
from trainperf_mlflow.results.comparison import CandidateComparison, Comparison
from trainperf_mlflow.results.decision import Decision

# What a tag holds in every MLflow store.
MAX_NOTE = 8000
_NAME_CHARS = 60
_TEXT_CHARS = 600
_MAX_ROWS = 12
_MAX_WARNINGS = 8
# MLflow shows the first few lines of a note: a line's end is no paragraph's.
_BREAK = "  \n"
_LINK_TITLES = {
    "study": "the study",
    "report": "report",
    "pictures": "pictures",
    "curves": "step times of all repeats",
    "compare": "variants side by side",
    "charts": "charts",
    "trace": "trace",
    "experiment": "all studies",
}
_PERFETTO = "Download the trace there and open it in ui.perfetto.dev; it stays in your browser."


def run_note(comparison: Comparison, links: Mapping[str, str] | None = None) -> str:
    """Markdown of at most 8000 characters.

    Args:
        comparison: what was decided.
        links: name (see ``tracking.links``) -> address, shown as a link, or command,
            shown as code.
    """
    pages, commands = _links(links or {})
    head = "\n\n".join(part for part in (_decision(comparison, pages), commands) if part)
    body = [
        _table(comparison),
        _notes(comparison),
        _listed(_upper(line) for line in other_policies_line(comparison)),
        _budget(comparison),
        _why(comparison),
        _listed(_upper(line) for line in _unseen(comparison)),
        _listed((*loss_lines(comparison)[: 2 * _MAX_ROWS], *how_to_ask(comparison))),
        _listed(noise_lines(comparison)),
        _warnings(comparison),
        _PERFETTO if "trace" in (links or {}) else "",
    ]
    note = head
    for part in body:
        if part and len(note) + len(part) + 2 <= MAX_NOTE:
            # MLflow draws wide gaps within a list that has an empty line.
            listed = part.startswith("- ") and note.rpartition("\n")[2].startswith("- ")
            note += ("\n" if listed else "\n\n") + part
    return note[:MAX_NOTE]


def variant_notes(comparison: Comparison, links: Mapping[str, str] | None = None) -> dict[str, str]:
    """Variant -> Markdown: what it is, what was decided about it, and its numbers."""
    of, _ = _links({"study": links["study"]} if links and "study" in links else {})
    notes = {
        item.variant: _fitting(
            _decided(comparison, item, of),
            _numbers(comparison, item),
            _effect(item),
        )
        for item in comparison.candidates
    }
    if comparison.baseline is not None:
        decision, about = comparison.standing, comparison.standing_best
        best = f" about {_short(about)}" if about else ""
        notes[comparison.baseline.name] = _lines(
            "**Baseline**: what the candidates are measured against.",
            of,
            f"The study decided{best}: **{decision.decision}**{how_sure(decision)}.",
        )
    return notes


def _decided(comparison: Comparison, item: CandidateComparison, of: str) -> str:
    decision, own = comparison.standing_on(item), item.decision
    before = f"Measured before the close: {own.decision}{how_sure(own)} (`{own.reason}`)."
    return _lines(
        f"{_closed(comparison)}**{decision.decision}**{how_sure(decision)}",
        of,
        f"`{decision.reason}`, policy `{decision.policy}`. {_next(decision)}",
        _short(decision.text, _TEXT_CHARS),
        "" if decision is own else before,
    )


def _lines(*lines: str) -> str:
    return _BREAK.join(line for line in lines if line)


def _closed(comparison: Comparison) -> str:
    return f"Closed as {_short(comparison.closed.label)}: " if comparison.closed else ""


def _fitting(*parts: str) -> str:
    return "\n\n".join(part for part in parts if part)[:MAX_NOTE]


def _numbers(comparison: Comparison, item: CandidateComparison) -> str:
    before = {} if comparison.baseline is None else comparison.baseline.metrics
    rows = [_cells("", "baseline", "this variant", "difference"), "|---|---:|---:|---:|"]
    for column in COLUMNS:
        values = [
            number(metrics.get(column.metric), column.decimals)
            for metrics in (before, item.metrics)
        ]
        difference = ", ".join(difference_lines(column, told_gains(item, before))) or "-"
        rows.append(_cells(column.title, *values, difference))
    return "\n".join(rows)


def _effect(item: CandidateComparison) -> str:
    changed = _short(item.changed_variable or "the change")
    return {
        True: f"Changed: {changed}; the change was seen to be in effect.",
        False: f"Changed: {changed}; **the change was seen not to be in effect.**",
        None: f"Changed: {changed}; whether it is in effect could not be checked.",
    }[item.effect_verified]


def _short(text: str, limit: int = _NAME_CHARS) -> str:
    return markdown(clipped(plain(text), limit))


def _decision(comparison: Comparison, pages: str) -> str:
    decision, best = comparison.standing, comparison.standing_best
    of = f": {_short(best)}" if best else ""
    goal = f", goal `{comparison.goal}`" if comparison.goal else ""
    return _lines(
        f"{_closed(comparison)}**{decision.decision}{of}**{how_sure(decision)}",
        # From the third row on MLflow lays a shade over the note, and nobody can click through.
        pages,
        f"`{decision.reason}`, policy `{decision.policy}`{goal}. {_next(decision)}",
        _short(decision.text, _TEXT_CHARS),
        _short(_upper(measured_line(comparison)), _TEXT_CHARS) if comparison.closed else "",
    )


def _upper(text: str) -> str:
    return text[:1].upper() + text[1:]


def _next(decision: Decision) -> str:
    return f"Next: `{decision.next_action}`" + (
        ", roll the change back." if decision.rollback else "."
    )


def _links(links: Mapping[str, str]) -> tuple[str, str]:
    """One line of links to pages, and a list of the commands."""
    order = [*(name for name in _LINK_TITLES if name in links), *links]
    shown = {_LINK_TITLES.get(name, name): links[name] for name in order}
    pages = [_link(name, target) for name, target in shown.items() if _is_page(target)]
    commands = [f"- {_link(name, to)}" for name, to in shown.items() if not _is_page(to)]
    return " · ".join(pages), "\n".join(commands)


def _is_page(target: str) -> bool:
    # Within a note a page of the same MLflow needs no host.
    return re.match(r"(https?://|#/)[^\s<>]+$", plain(target)) is not None


def _link(label: str, target: str) -> str:
    label, target = _short(label), plain(target)
    # Shown whole, a long address pushes the rest of MLflow's page off the screen.
    if _is_page(target):
        return f"[{label}](<{target}>)"
    # A code span ends at as many backticks as it begins with.
    fence = "`" * (max((len(run) for run in re.findall("`+", target)), default=0) + 1)
    pad = " " if "`" in target else ""
    return f"{label}: {fence}{pad}{target}{pad}{fence}"


def _table(comparison: Comparison) -> str:
    rows = [
        _cells("variant", *(column.title for column in COLUMNS), "decision"),
        "|---|" + "---:|" * len(COLUMNS) + "---|",
    ]
    before = {} if comparison.baseline is None else comparison.baseline.metrics
    if comparison.baseline is not None:
        rows.append(_row(comparison.baseline.name, comparison.baseline.metrics, {}, ""))
    rows += [
        _row(
            item.variant,
            item.metrics,
            told_gains(item, before),
            comparison.standing_on(item).decision,
        )
        for item in _shown(comparison)
    ]
    left_out = len(comparison.candidates) - len(_shown(comparison))
    if left_out:
        rows.append(f"\n{left_out} more in `comparison.json`.")
    if any(item.time is not None for item in comparison.candidates):
        rows.append(f"\n{_upper(BASIS)}.")
    return "\n".join(rows)


def _row(name: str, metrics: Mapping[str, float], delta: Mapping[str, float], decision: str) -> str:
    cells = []
    for column in COLUMNS:
        difference = ", ".join(difference_lines(column, delta))
        value = number(metrics.get(column.metric), column.decimals)
        cells.append(f"{value} ({difference})" if difference else value)
    return _cells(_short(name), *cells, decision)


def _cells(*cells: str) -> str:
    # MLflow draws neither lines nor spaces between cells. A space that may break would leave
    # a line of its own in a narrow cell.
    return f"| {'&nbsp;&nbsp;&nbsp; | '.join(cells)} |"


def _shown(comparison: Comparison) -> list[CandidateComparison]:
    """The first candidates, and the best one wherever it stands."""
    first = comparison.candidates[:_MAX_ROWS]
    best = [item for item in comparison.candidates if item.variant == comparison.standing_best]
    return [*first, *(item for item in best if item not in first)]


def _notes(comparison: Comparison) -> str:
    return "\n".join(
        f"- {_short(item.variant)}: {_short(item.note, 200)}" for item in _shown(comparison)
    )


def _budget(comparison: Comparison) -> str:
    return "\n".join(
        f"- Budget: {_short(line, 300)}" for line in budget_lines(comparison)[: _MAX_ROWS + 1]
    )


def _why(comparison: Comparison) -> str:
    lines = why_lines(comparison.assessment) if comparison.assessment else []
    return "\n".join(f"- Why: {_short(line, _TEXT_CHARS)}" for line in lines)


def _unseen(comparison: Comparison) -> list[str]:
    return unseen_lines(comparison.assessment) if comparison.assessment else []


def _listed(lines: Iterable[str]) -> str:
    return "\n".join(f"- {_short(line, _TEXT_CHARS)}" for line in lines)


def _warnings(comparison: Comparison) -> str:
    return "\n".join(
        f"- Note: {_short(warning, 200)}" for warning in comparison.warnings[:_MAX_WARNINGS]
    )
