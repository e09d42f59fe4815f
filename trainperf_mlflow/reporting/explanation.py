"""Phases and traces on the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from trainperf_mlflow.analysis.explained import mib
from trainperf_mlflow.attribution import CATEGORIES, PHASES, Peaks
from trainperf_mlflow.reporting.assessment import why_text
from trainperf_mlflow.reporting.roofline import (
    ABOVE_ONE,
    TIMED_HERE,
    mfu_text,
    peaks_text,
    roofline_rows,
)
from trainperf_mlflow.reporting.text import clipped, number, plain
from trainperf_mlflow.results.assessment import Assessment

_NAME_CHARS = 24
_OPERATOR_CHARS = 50
_ERROR_CHARS = 300
NOT_FOR_ADOPTION = "These numbers explain; they never decide (marks and profiler slow a step down)."


def phases_text(report: Mapping[str, Any]) -> str:
    """The report ``training-phase-memory/v1`` as tables: time, memory by category, savings."""
    measured = [item for item in report["candidates"] if item["phase_metrics"]]
    lines = ["time per phase, ms (mean over the repeats)"]
    rows = [["variant", *PHASES, "step"]]
    for item in measured:
        times = {phase: found["time_ms"] for phase, found in item["phase_metrics"].items()}
        cells = [number(times.get(phase), 2) for phase in PHASES]
        rows.append([_name(item["name"]), *cells, number(item["step_time_ms"], 2)])
    lines += _table(rows)
    with_memory = [item for item in measured if "global_peak_phase" in item]
    if with_memory:
        lines += ["", "peak memory per phase, MiB"]
        rows = [["variant", *PHASES, "highest in"]]
        for item in with_memory:
            peaks = {p: f.get("peak_allocated_mb") for p, f in item["phase_metrics"].items()}
            cells = [_mib(peaks.get(phase)) for phase in PHASES]
            rows.append([_name(item["name"]), *cells, item["global_peak_phase"]])
        lines += _table(rows)
        lines += ["", "at the highest peak, MiB"]
        lines += _table(list(_compositions(with_memory)))
    lines += _roofline(measured)
    savings = report["summary"].get("allocated_memory_saving_mb_by_candidate", {})
    for name, saved in savings.items():
        parts = ", ".join(f"{phase} {_change(-value)}" for phase, value in saved.items())
        lines += ["", f"{_name(name)} against the baseline, peak MiB: {parts or 'not comparable'}"]
    return "\n".join([*lines, *_failures(report), *_why(report), "", NOT_FOR_ADOPTION])


def profile_text(report: Mapping[str, Any]) -> str:
    """The report ``profiling-trace-evidence/v1``: per variant its trace and its operators."""
    lines: list[str] = []
    files = report["profile"]["trace_files_by_strategy"]
    places = report.get("trace_places", {})
    for item in report["candidates"]:
        if "top_operators" not in item:
            continue
        slowdown = item["step_time_ms"] / item["plain_step_time_ms"]
        lines += [
            f"{_name(item['name'])}: {number(item['step_time_ms'], 2)} ms a step with the "
            f"profiler, {number(item['plain_step_time_ms'], 2)} without ({slowdown:.2f} x)",
            f"  trace: {plain(places.get(item['name'], files[item['name']][0]))}",
        ]
        on_device = any(o["self_device_ms"] is not None for o in item["top_operators"])
        rows = [["operator", "calls", "own ms, host", *(["own ms, device"] if on_device else [])]]
        for found in item["top_operators"]:
            row = [
                clipped(plain(found["name"]), _OPERATOR_CHARS),
                str(found["calls"]),
                number(found["self_cpu_ms"], 3),
            ]
            rows.append([*row, *([number(found["self_device_ms"], 3)] if on_device else [])])
        lines += [*_table(rows), ""]
    return "\n".join([*lines, *_failures(report), *_why(report), "", NOT_FOR_ADOPTION])


def _compositions(items: list[Any]) -> Iterator[list[str]]:
    found = {
        item["name"]: item["phase_metrics"][item["global_peak_phase"]].get("memory_mb", {})
        for item in items
    }
    shown = [c for c in CATEGORIES if any(c in memory for memory in found.values())]
    yield ["variant", *(category.replace("_", " ") for category in shown)]
    for name, memory in found.items():
        yield [_name(name), *(_mib(memory.get(category)) for category in shown)]


def _roofline(items: list[Any]) -> list[str]:
    rows = roofline_rows(items)
    if not rows:
        return []
    peaks = Peaks.model_validate(next(i["peaks"] for i in items if i.get("roofline")))
    mfu = mfu_text(items)
    lines = ["", f"roofline of {peaks_text(peaks)}", *_table(rows), f"  {ABOVE_ONE}"]
    if peaks.evidence_level == "measured":
        lines.append(f"  {TIMED_HERE}")
    return lines if mfu is None else [*lines, "", mfu]


def _why(report: Mapping[str, Any]) -> list[str]:
    found = report.get("assessment")
    return ["", why_text(Assessment.model_validate(found))] if found else []


def _failures(report: Mapping[str, Any]) -> list[str]:
    """Each reason once, with the variants that it stopped."""
    stopped: dict[str, list[str]] = {}
    for item in report["candidates"]:
        if item["status"] != "ok":
            why = f"{item['status']}, {clipped(plain(item.get('error') or ''), _ERROR_CHARS)}"
            stopped.setdefault(why, []).append(_name(item["name"]))
    return [f"{', '.join(names)}: {why}" for why, names in stopped.items()]


def _mib(size: float | None) -> str:
    return "-" if size is None else mib(size)


def _change(size: float) -> str:
    """
    >>> _change(2.04), _change(-0.01)
    ('+2.0', '0.0')
    """
    return f"{'+' * (round(size, 1) > 0)}{mib(size)}"


def _name(name: str) -> str:
    return clipped(plain(name), _NAME_CHARS)


def _table(rows: list[list[str]]) -> list[str]:
    """Columns as wide as their widest cell; the first to the left, numbers to the right."""
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    return [
        "  "
        + "  ".join(
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]
