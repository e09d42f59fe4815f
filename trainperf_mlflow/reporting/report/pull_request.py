"""The report in Markdown, short enough for a pull request: the verdict, one table, what is open."""

from __future__ import annotations

import re

from trainperf_mlflow.reporting.report.parts import Cell, Code, Content, Items, Table
from trainperf_mlflow.reporting.report.texts import Words
from trainperf_mlflow.reporting.text import clipped, markdown

_MAX_ROWS = 20
_MAX_GAPS = 6
_BADGES = {"accept": "✅", "tune": "🟠", "reject": "❌", "measure": "🔵"}


def markdown_page(content: Content) -> str:
    """Markdown with one table; nothing in it is markup of somebody else's."""
    words, verdict = Words(content.lang), content.verdict
    head = [
        f"### {_BADGES[verdict.decision]} {verdict.word}: {markdown(content.title)}",
        f"**{markdown(verdict.headline)}** {markdown(content.question)}",
        markdown(content.sizes),
        _listed(
            [
                *(
                    (figure.title, _figure(figure.value, figure.detail))
                    for figure in verdict.figures
                ),
                (words("how_sure"), verdict.sure),
                (words("why"), verdict.reason),
                *([(words("settle"), verdict.settle)] if verdict.settle else []),
                (words("next"), verdict.next),
                *([(words("measured"), verdict.measured)] if verdict.measured else []),
            ]
        ),
    ]
    parts = [*head, _results(content), *_gaps(content), *_again(content, words)]
    parts.append(f"<sub>{markdown(content.subtitle)}</sub>")
    return "\n\n".join(part for part in parts if part) + "\n"


def _figure(value: str, detail: str) -> str:
    return f"{value} ({detail})" if detail else value


def _listed(rows: list[tuple[str, str]]) -> str:
    return "\n".join(f"- **{title}**: {markdown(text)}" for title, text in rows)


def _results(content: Content) -> str:
    section = content.section("results")
    table = next((p for p in section.parts if isinstance(p, Table)), None) if section else None
    if table is None or not table.rows:
        return ""
    lines = [
        _row([markdown(column) for column in table.columns]),
        _row(["---:" if cell.numeric else "---" for cell in table.rows[0]]),
        *(_row([_cell(cell) for cell in row]) for row in table.rows[:_MAX_ROWS]),
    ]
    return "\n".join(lines)


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(cell: Cell) -> str:
    return "<br>".join(markdown(line) for line in (cell.text, *cell.lines))


def _gaps(content: Content) -> list[str]:
    section = content.section("unchecked")
    texts = [
        text
        for part in (section.parts if section else ())
        if isinstance(part, Items)
        for text in part.texts
    ]
    if section is None or not texts:
        return []
    gaps = "\n".join(f"- {markdown(clipped(text, 300))}" for text in texts[:_MAX_GAPS])
    return [f"**{section.title}**\n\n{gaps}"]


def _again(content: Content, words: Words) -> list[str]:
    section = content.section("again")
    command = next((p for p in section.parts if isinstance(p, Code)), None) if section else None
    if command is None or not command.text:
        return []
    # A fence is longer than any run of backticks within it.
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", command.text)), default=0))
    return [f"**{words('again')}**\n\n{fence}sh\n{command.text}\n{fence}"]
