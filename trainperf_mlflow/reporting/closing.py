"""A close on the terminal: what was decided, by which gates, what is missing, where it is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from trainperf_mlflow.reporting.next_steps import next_line
from trainperf_mlflow.reporting.text import number

_HEADS = {
    "completed": "closed as",
    "repaired": "an interrupted close is completed as",
    "already_complete": "already complete: closed before, on this very evidence, as",
    "ready": "checked, nothing written; it can be closed",
}
# What to run for what is missing.
_REMEDIES = {
    "profile_trace": "trainperf profile",
    "phase_memory": "trainperf phase",
    "regression": "trainperf regress",
    "memory_budget": "trainperf measure --policy memory-budget",
    "three_repeats": "trainperf measure --repeats 3",
    "confirmed_gain": "trainperf measure with more --blocks or --repeats",
    "activation_memory_scope": "close --scope-study",
    "pressure_validation": "close --pressure-study",
}
# What a study gets without being run again.
_OF_OTHER_STUDIES = ("regression", "activation_memory_scope", "pressure_validation")


def closure_text(closure: Mapping[str, Any]) -> str:
    """The outcome of a close, as ``api.close`` gives it."""
    return "\n".join(_lines(closure))


def _lines(closure: Mapping[str, Any]) -> Iterator[str]:
    label = f" {closure['label']!r}" if closure["label"] else ""
    yield f"{closure['study']} ({closure['study_id']}): {_HEADS[closure['status']]}{label}"
    yield f"decision: {closure['decision']} ({closure['reason']}, {closure['confidence']})"
    yield f"  {closure['text']}"
    yield f"  {next_line(closure['next_action'])}"
    for record in closure["candidates"]:
        yield f"  {record['name']}: {record['decision']}; {_gates(record)}"
    if "mean_throughput_is_contradicted_by_pairs_measured_side_by_side" in closure["limitations"]:
        yield (
            "  ! the throughput is that of plain means, and the pairs measured side by side say "
            "the opposite; the pairs count, so the gain is not confirmed"
        )
    scope = closure["decision_scopes"]["activation_memory_mechanism"]
    yield (
        f"activation memory alone: {scope['decision']} ({scope['reason']}); "
        "this never holds for the full training"
    )
    if closure["missing_evidence"]:
        imported = "runs_were_imported_and_not_paired" in closure["limitations"]
        remedies = {k: v for k, v in _REMEDIES.items() if not imported or k in _OF_OTHER_STUDIES}
        yield "missing evidence: " + "; ".join(
            f"{name} ({remedies[name]})" if name in remedies else name
            for name in closure["missing_evidence"]
        )
        if imported:
            yield (
                "  runs that were imported cannot be run again: to profile them or to repeat "
                "them, measure the workload here (trainperf measure)"
            )
    yield (
        f"evidence: {closure['artifacts']} artifacts ({number(closure['bytes'] / 2**20, 1)} MiB), "
        f"values of {closure['measured_repeats']} repeats, every SHA-256 as it should be"
    )
    if closure["status"] == "ready":
        wanted = closure["label"] or "LABEL"
        yield f"to close it: trainperf close {closure['study_id']} --label {wanted}"
    else:
        paths = (closure["manifest_path"], closure["report_path"], closure["handoff_path"])
        yield f"artifacts of the study: {', '.join(paths)}"


def _gates(record: Mapping[str, Any]) -> str:
    parts = [
        f"{title} {', '.join(record[key])}"
        for title, key in (("fails", "failed_gates"), ("lacks", "missing_evidence"))
        if record[key]
    ]
    values = [
        f"{title} {number(record[key], decimals)}{unit}"
        for title, key, decimals, unit in (
            ("saves", "memory_saving_mb", 2, " MiB"),
            ("throughput x", "throughput_ratio", 3, ""),
            ("loss difference", "loss_delta", 4, ""),
        )
        if record[key] is not None
    ]
    return "; ".join([*parts, *values]) or "passes every gate"
