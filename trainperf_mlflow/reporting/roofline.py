"""Rooflines and MFU on the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trainperf_mlflow.analysis.devices import rates
from trainperf_mlflow.attribution import Peaks
from trainperf_mlflow.reporting.text import clipped, number, plain

_LINE_CHARS = 300
ABOVE_ONE = (
    "reached: of what the limit allows, with each operation's bytes read and written anew; "
    "above 100 %, caches saved some"
)
WORTH_A_ROW = 0.01  # of the step's time


def roofline_rows(items: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """A heading and one row per variant and part, for those variants that have a roofline."""
    rows = [["variant", "part", "peak of", "FLOP/byte", "TFLOPS", "attainable", "reached", "limit"]]
    for item in items:
        name = plain(item["name"])
        points = item.get("roofline") or []
        for point in points:
            if point["time_ms"] < WORTH_A_ROW * points[0]["time_ms"]:
                continue
            rows.append(
                [
                    clipped(name, 24),
                    point["name"],
                    point["precision"],
                    number(point["intensity"], 2),
                    number(point["achieved_tflops"], 3),
                    number(point["attainable_tflops"], 3),
                    f"{100 * point['fraction']:.0f} %",
                    point["bound"],
                ]
            )
            name = ""
    return rows if len(rows) > 1 else []


def peaks_text(peaks: Peaks) -> str:
    """A device and its peaks on one line."""
    return clipped(plain(f"{peaks.device}: {rates(peaks)}"), _LINE_CHARS)


def mfu_text(items: Sequence[Mapping[str, Any]]) -> str | None:
    """The variants' MFU on one line; None where no variant has one."""
    known = [
        f"{clipped(plain(item['name']), 24)} {100 * item['mfu']:.1f} %"
        for item in items
        if item.get("mfu") is not None
    ]
    if not known:
        return None
    return f"MFU (useful work is the baseline's, per sample): {', '.join(known)}"
