"""A whole study on the terminal: comparison, repeats, links, artifacts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from trainperf_mlflow.decisions.regression_study import Regression
from trainperf_mlflow.decisions.scope_study import Scope
from trainperf_mlflow.reporting.console import columns_of, rendered, wrapped
from trainperf_mlflow.reporting.listing import rows_table
from trainperf_mlflow.reporting.regression import regression_text
from trainperf_mlflow.reporting.scope import scope_text
from trainperf_mlflow.reporting.table import comparison_view
from trainperf_mlflow.reporting.text import clipped, plain
from trainperf_mlflow.results.comparison import Comparison
from trainperf_mlflow.results.study import Study

_LINE_CHARS = 400


def study_text(
    study: Study,
    comparison: Comparison | None,
    runs: Sequence[Mapping[str, Any]],
    links: Mapping[str, str],
    artifacts: Sequence[str],
    *,
    width: int | None = None,
    colour: bool | None = None,
) -> str:
    """Everything about a study, the decision first.

    Args:
        comparison: None where nothing was decided yet.
        runs: rows of ``api.runs``.
        links: name -> address or command.
    """
    columns = columns_of(width)
    parts: list[RenderableType] = (
        [comparison_view(comparison, columns)]
        if comparison is not None
        else [Text(f"{_line(study.name)} is not decided yet: trainperf compare {study.study_id}")]
    )
    parts += _section("repeats", [_repeats(runs, columns)])
    parts += _section("about", _about(study))
    parts += _section("artifacts", [Text(_line(path)) for path in artifacts])
    text = rendered(Group(*parts), width=columns, colour=colour)
    # A command or an address that is broken into lines can be neither copied nor clicked.
    whole = {"again": plain(study.command), **{name: plain(to) for name, to in links.items()}}
    return "\n".join([text, "", *(f"{name}: {target}" for name, target in whole.items())])


def gathering_text(
    head: Mapping[str, Any],
    decided: Regression | Scope | None,
    studies: Sequence[str],
    links: Mapping[str, str],
    artifacts: Sequence[str],
    *,
    width: int | None = None,
) -> str:
    """A regression or a ladder: what was decided, and which studies it stands on.

    Args:
        head: ``study_id``, ``name``, ``kind`` and ``error`` of its run.
        decided: None where it came to no decision.
        studies: the ids of those that it gathers.
    """
    if isinstance(decided, Regression):
        text = regression_text(decided, width=width)
    elif decided is not None:
        text = scope_text(decided, width=width)
    else:
        why = f"{_line(head['name'])} is a {head['kind']} that came to no decision: "
        text = wrapped([why + _line(head["error"])], width)
    lines = ["", "studies", *(f"  trainperf show {study_id}" for study_id in studies)]
    lines += ["", "artifacts", *(f"  {_line(path)}" for path in artifacts), ""]
    lines += [f"{name}: {plain(target)}" for name, target in links.items()]
    return "\n".join([text, *lines])


def _section(title: str, parts: Sequence[RenderableType]) -> Iterator[RenderableType]:
    if parts:
        yield Text(f"\n{title}", style="bold")
        yield from (Padding(part, (0, 0, 0, 2)) for part in parts)


def _repeats(runs: Sequence[Mapping[str, Any]], width: int) -> RenderableType:
    rows = [row for row in runs if row.get("level") == "repeat"]
    if not rows:
        return Text("none was measured")
    names = list(dict.fromkeys(name for row in rows for name in row))
    return rows_table(names, rows, width - 2)


def _about(study: Study) -> list[RenderableType]:
    at = datetime.fromtimestamp(study.created_at, UTC).strftime("%Y-%m-%d %H:%M UTC")
    facts = {
        "study": study.study_id,
        "measured": f"{at} on {study.workload.device}, toolkit {study.toolkit_version}",
        "data": study.workload.source,
        "workload": study.workload.digest,
        "label": study.label or "",
    }
    return [Text(f"{name}: {_line(value)}") for name, value in facts.items() if value]


def _line(text: str) -> str:
    return clipped(plain(text), _LINE_CHARS)
