"""Rows on the terminal or for other programs: past decisions, and the checks of doctor."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, Protocol

from rich import box
from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from trainperf_mlflow.reporting.console import columns_of, rendered
from trainperf_mlflow.reporting.folding import folded, least_width, shared_out
from trainperf_mlflow.reporting.text import clipped, number, plain
from trainperf_mlflow.results.check import Check

_CELL_CHARS = 80
_COLOURS = {
    "accept": "green", "tune": "yellow", "reject": "red", "measure": "cyan",
    "ok": "green", "warn": "yellow", "fail": "red",
}  # fmt: skip
# What fits a terminal, by the columns that tell which rows these are; csv and json have every
# column.
_SHOWN: tuple[dict[str, str], ...] = (
    {
        "study_id": "id", "study": "study", "decision": "decision", "confidence": "how sure",
        "closed": "closed as", "measured_decision": "measured",
        "best_candidate": "best", "delta/step_time_pct": "time saved %",
        "delta/peak_mem_pct": "mem saved %",
        "reason": "reason", "started": "started",
    },
    {
        "variant": "variant", "repeat": "repeat", "status": "status",
        "step_time_ms": "step time ms", "samples_per_s": "samples/s",
        "peak_mem_mb": "peak mem MiB", "loss": "loss", "eval_loss": "eval loss", "run_id": "run",
        "error": "error",
    },
)  # fmt: skip
_TELLING = ("study_id", "decision"), ("variant", "repeat")
_IDS = ("study_id", "run_id")
_ID_CHARS = 8
# Where the terminal is narrower, the column is left out.
_FROM_WIDTH = {"started": 122, "how sure": 100, "run": 100, "samples/s": 90, "error": 116}
# A name may take several lines; a word of ours and a number may not.
_FOLDED = ("study", "closed as", "variant", "best", "reason", "error")
# What goes, one after the other, before a word is cut.
_DISPENSABLE = ("samples/s", "how sure", "best")
# Of closed studies how sure the close is counts for more.
_DISPENSABLE_CLOSED = ("best", "mem saved %", "how sure")
_GAP = 2  # between columns
_DECIMALS = {"loss": 4, "eval loss": 4, "peak mem MiB": 1}
# A spreadsheet runs a cell that begins with one of these.
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n", "|", "%")


class Frame(Protocol):
    """A pandas DataFrame, without importing pandas."""

    @property
    def columns(self) -> Any: ...

    def to_dict(self, orient: Literal["records"]) -> list[Any]: ...


def format_rows(
    rows: Frame | Sequence[Mapping[str, Any]],
    output: str = "table",
    *,
    width: int | None = None,
    colour: bool | None = None,
    empty: str = "no studies yet",
) -> str:
    """Rows as ``table``, ``json`` or ``csv``.

    A table is as wide as the terminal and coloured only there, see ``console.rendered``.

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
        if not records:
            return empty
        columns = columns_of(width)
        return rendered(rows_table(names, records, columns), width=columns, colour=colour)
    raise ValueError(f"unknown output {output!r}; known: table, json, csv")


def rows_table(names: Sequence[str], records: Sequence[Mapping[str, Any]], width: int) -> Table:
    """Of known rows the columns that fit, under short titles; of others all columns."""
    known = _known(names)
    if known is None:
        return _table(names, _texts(names, records), records)
    titles, rows = _titled(known, [*map(_with_interval, records)], width)
    if _least(titles, rows) > width:  # a wide interval would squeeze every row
        titles, rows = _titled(known, records, width)
    for dispensable in _DISPENSABLE_CLOSED if "closed as" in titles else _DISPENSABLE:
        if dispensable in titles and _least(titles, rows) > width:
            titles = [title for title in titles if title != dispensable]
    return _table(titles, _fitted(titles, rows, width), rows)


def format_checks(
    checks: Iterable[Check], *, width: int | None = None, colour: bool | None = None
) -> str:
    """The checks of ``trainperf doctor``: status, detail, and under it the remedy."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for name in ("check", "status", "detail"):
        table.add_column(name, overflow="fold")
    for check in checks:
        detail = Text(plain(check.detail))
        if check.remedy:
            detail.append(f"\n-> {plain(check.remedy)}", style="bold")
        table.add_row(Text(plain(check.check)), _styled(check.status), detail)
    return rendered(table, width=width, colour=colour)


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


def _with_interval(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """The time saved in percent and, where it is known, its interval: 19.8 (17.2 to 22.5)."""
    low, high = row.get("delta/step_time_pct_low"), row.get("delta/step_time_pct_high")
    saved = row.get("delta/step_time_pct")
    if saved is None or _absent(saved) or low is None or high is None or _absent(low + high):
        return row
    text = f"{number(saved, 1)} ({number(low, 1)} to {number(high, 1)})"
    return {**row, "delta/step_time_pct": text}


def _known(names: Sequence[str]) -> Mapping[str, str] | None:
    """The columns to show of rows of a known kind, and their titles."""
    kinds = zip(_SHOWN, _TELLING, strict=True)
    return next((shown for shown, telling in kinds if set(telling) <= set(names)), None)


def _titled(
    known: Mapping[str, str], records: Sequence[Mapping[str, Any]], width: int
) -> tuple[list[str], list[Mapping[str, Any]]]:
    used = {
        name: title
        for name, title in known.items()
        if width >= _FROM_WIDTH.get(title, 0) and any(not _absent(row.get(name)) for row in records)
    }
    rows: list[Mapping[str, Any]] = [
        {title: _for_people(name, row.get(name)) for name, title in used.items()} for row in records
    ]
    return list(used.values()), rows


def _texts(names: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
    return {name: [_cell(row.get(name), _DECIMALS.get(name, 2)) for row in rows] for name in names}


def _least(titles: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> int:
    """The width in which no word is cut."""
    widths = _least_widths(_texts(titles, rows))
    return sum(widths.values()) + _GAP * (len(widths) - 1)


def _least_widths(cells: Mapping[str, Sequence[str]]) -> dict[str, int]:
    return {
        title: max(
            (least_width if title in _FOLDED else cell_len)(text) for text in (title, *texts)
        )
        for title, texts in cells.items()
    }


def _fitted(
    titles: Sequence[str], rows: Sequence[Mapping[str, Any]], width: int
) -> dict[str, list[str]]:
    """The cells, with the names in lines of what the other columns leave."""
    cells = _texts(titles, rows)
    least = _least_widths(cells)
    names = [title for title in titles if title in _FOLDED]
    left = width - sum(least.values()) - _GAP * (len(titles) - 1)
    own = [least[name] for name in names]
    wanted = [max(cell_len(text) for text in (name, *cells[name])) for name in names]
    for name, columns in zip(names, shared_out(own, wanted, left + sum(own)), strict=True):
        cells[name] = [folded(text, columns) for text in cells[name]]
    return cells


def _for_people(name: str, value: Any) -> Any:
    if _absent(value):
        return None
    if name in _IDS:
        return str(value)[:_ID_CHARS]
    # In MLflow the first is #1 too; programs count from 0.
    return f"#{value + 1}" if name == "repeat" else value


def _table(
    names: Sequence[str],
    cells: Mapping[str, Sequence[str]],
    records: Sequence[Mapping[str, Any]],
) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True, show_edge=False)
    numbers = {name for name in names if any(_is_number(row.get(name)) for row in records)}
    for name in names:
        if name in _FOLDED:
            # A title that is wider than its column would take the width from another one.
            lines = [line for text in cells[name] for line in text.split("\n")]
            width = max(least_width(name), *map(cell_len, lines))
            table.add_column(Text(folded(name, width)), overflow="fold", min_width=min(width, 6))
        elif name not in {title for known in _SHOWN for title in known.values()}:
            table.add_column(Text(plain(name)), overflow="fold", min_width=6)
        else:
            table.add_column(
                Text(name), no_wrap=True, justify="right" if name in numbers else "left"
            )
            table.columns[-1].min_width = max(len(text) for text in (name, *cells[name]))
    for texts in zip(*cells.values(), strict=True):
        table.add_row(*(_styled(text) for text in texts))
    return table


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not _absent(value)


def _cell(value: Any, decimals: int) -> str:
    if _absent(value):
        return "-"
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%d %H:%M")
    if isinstance(value, float):
        return number(value, decimals)
    return clipped(plain(str(value)), _CELL_CHARS)


def _styled(text: str) -> Text:
    return Text(text, style=_COLOURS.get(text, ""))
