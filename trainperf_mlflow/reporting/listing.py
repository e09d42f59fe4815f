"""Rows on the terminal or for other programs: past decisions, and the checks of doctor."""

from __future__ import annotations

import csv
import io
import json
import math
import shutil
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, Protocol

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from trainperf_mlflow.reporting.text import clipped, number, plain
from trainperf_mlflow.results import Check

_CELL_CHARS = 200
_COLOURS = {
    "accept": "green", "tune": "yellow", "reject": "red", "measure": "cyan",
    "ok": "green", "warn": "yellow", "fail": "red",
}  # fmt: skip
# What fits a terminal; csv and json have every column.
_DECISIONS_SHOWN = {
    "study_id": "id", "study": "study", "decision": "decision", "best_candidate": "best",
    "speedup": "speedup", "delta/peak_mem_pct": "mem saved %", "reason": "reason",
    "started": "started",
}  # fmt: skip
_ID_CHARS = 8
# A spreadsheet runs a cell that begins with one of these.
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n", "|", "%")


class Frame(Protocol):
    """A pandas DataFrame, without importing pandas."""

    @property
    def columns(self) -> Any: ...

    def to_dict(self, orient: Literal["records"]) -> list[Any]: ...


def format_rows(
    rows: Frame | Sequence[Mapping[str, Any]], output: str = "table", *, width: int | None = None
) -> str:
    """Rows as ``table``, ``json`` or ``csv``.

    In csv, text that a spreadsheet would run as a formula is quoted with ``'``;
    in json, what is not a number is null.

    Raises:
        ValueError: an unknown output.
    """
    names, records = _records(rows)
    if output == "json":
        return json.dumps(
            [{name: _json(row.get(name)) for name in names} for row in records],
            ensure_ascii=False,
            indent=2,
            allow_nan=False,
        )
    if output == "csv":
        return _csv(names, records)
    if output == "table":
        return _print(_table(*_shown(names, records)), width) if records else "no studies yet"
    raise ValueError(f"unknown output {output!r}; known: table, json, csv")


def format_checks(checks: Iterable[Check], *, width: int | None = None) -> str:
    """The checks of ``trainperf doctor``: status, detail, and under it the remedy."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for name in ("check", "status", "detail"):
        table.add_column(name, overflow="fold")
    for check in checks:
        detail = Text(plain(check.detail))
        if check.remedy:
            detail.append(f"\n-> {plain(check.remedy)}", style="bold")
        table.add_row(Text(plain(check.check)), _styled(check.status), detail)
    return _print(table, width)


def _records(
    rows: Frame | Sequence[Mapping[str, Any]],
) -> tuple[list[str], list[Mapping[str, Any]]]:
    if isinstance(rows, Sequence):
        return list(dict.fromkeys(name for row in rows for name in row)), list(rows)
    return [str(name) for name in rows.columns], rows.to_dict("records")


def _absent(value: Any) -> bool:
    """None, NaN, NaT and pandas' NA: what is not equal to itself is not there."""
    if value is None:
        return True
    try:
        return bool(value != value)
    except (TypeError, ValueError):
        return True


def _json(value: Any) -> Any:
    if _absent(value):
        return None
    if isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, datetime):
        return value.isoformat()
    if hasattr(value, "item"):  # a numpy scalar
        return _json(value.item())
    return str(value)


def _csv(names: Sequence[str], records: Iterable[Mapping[str, Any]]) -> str:
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(_defused(name) for name in names)
    for row in records:
        writer.writerow(_defused(_json(row.get(name))) for name in names)
    return buffer.getvalue().rstrip("\n")


def _defused(value: Any) -> Any:
    if isinstance(value, str) and value.lstrip(" ").startswith(_FORMULA_STARTS):
        return f"'{value}"
    return "" if value is None else value


def _shown(
    names: Sequence[str], records: Iterable[Mapping[str, Any]]
) -> tuple[Sequence[str], Iterable[Mapping[str, Any]]]:
    """Of rows of decisions the columns that fit, under short titles; other rows as they are."""
    if not set(_DECISIONS_SHOWN) <= set(names):
        return names, records
    rows = [
        {title: row.get(name) for name, title in _DECISIONS_SHOWN.items()}
        | {"id": str(row.get("study_id"))[:_ID_CHARS]}
        for row in records
    ]
    return list(_DECISIONS_SHOWN.values()), rows


def _table(names: Sequence[str], records: Iterable[Mapping[str, Any]]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for name in names:
        table.add_column(Text(plain(name)), overflow="fold")
    for row in records:
        table.add_row(*(_styled(_cell(row.get(name))) for name in names))
    return table


def _cell(value: Any) -> str:
    if _absent(value):
        return "-"
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%d %H:%M")
    if isinstance(value, float):
        return number(value, 2)
    return clipped(plain(str(value)), _CELL_CHARS)


def _styled(text: str) -> Text:
    return Text(text, style=_COLOURS.get(text, ""))


def _print(table: Table, width: int | None) -> str:
    buffer = io.StringIO()
    columns = width or max(shutil.get_terminal_size((120, 24)).columns, 80)
    Console(file=buffer, width=columns, color_system=None, legacy_windows=False).print(table)
    return "\n".join(line.rstrip() for line in buffer.getvalue().rstrip().split("\n"))
