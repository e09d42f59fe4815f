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
TIMED_HERE = (
    "these peaks were timed beside whatever else ran: other programs lower them, and raise what "
    "seems reached, so compare within this run only"
)
_MS_PER_S, _GIGA = 1e3, 1e9
WORTH_A_ROW = 0.01  # of the step's time


def roofline_rows(items: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """A heading and one row per variant and part, for those variants that have a roofline."""
    rows = [["variant", "part", "peak of", "FLOP/byte", "does", "could do", "reached", "limit"]]
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
                    *_rates(point),
                    f"{100 * point['fraction']:.0f} %",
                    point["bound"],
                ]
            )
            name = ""
    return rows if len(rows) > 1 else []


def _rates(point: Mapping[str, Any]) -> tuple[str, str]:
    """What a part does and what it could: of its FLOPs, or of its bytes where it has none."""
    if point["flops"] > 0:
        done, possible, unit = point["achieved_tflops"], point["attainable_tflops"], "TFLOPS"
    else:
        done = point["moved_bytes"] / _GIGA / (point["time_ms"] / _MS_PER_S)
        possible, unit = done / point["fraction"], "GB/s"
    digits = 3 if unit == "TFLOPS" else 1
    return f"{number(done, digits)} {unit}", f"{number(possible, digits)} {unit}"


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
