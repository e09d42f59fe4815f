"""Whether the stages of a project speak of the same workload, as the source checks it.

Every function returns all mismatches, each with both values, and what neither side
states and so could not be checked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydantic import JsonValue

from trainperf_mlflow.decisions.activation_scope import SCOPE, SHARED_FIELDS
from trainperf_mlflow.evidence.models import BASELINE_ID, BUDGET_ID, PROJECT_SCHEMA, STRATEGY_ID
from trainperf_mlflow.messages import shown
from trainperf_mlflow.results.record import Record

# 73 against 76.
WORKLOAD_FIELDS = ("model_id", "batch_size", "seq_len", "dtype", "optimizer", "workload", "seed")
# The base workload against a longer sequence.
PRESSURE_FIELDS = ("model_id", "batch_size", "dtype", "optimizer")
# What 75 took over from 76, by candidate.
BUDGET_FIELDS = ("peak_memory_mb", "samples_per_s", "eval_loss")
SEMANTIC_IDS = {"baseline": BASELINE_ID, "strategy": STRATEGY_ID, "budget": BUDGET_ID}
MIN_RUNS = 3

Report = Mapping[str, Any]


class Mismatch(Record):
    """One field that differs; ``wanted`` is the other side's value, or what a rule asks for."""

    field: str
    found: JsonValue
    wanted: JsonValue

    def __str__(self) -> str:
        return f"{self.field} is {shown(self.found)}, not {shown(self.wanted)}"


class Identity(Record):
    """All mismatches, and the fields that neither side states."""

    mismatches: tuple[Mismatch, ...] = ()
    unchecked: tuple[str, ...] = ()

    @property
    def matches(self) -> bool:
        return not self.mismatches


def same_kinds(reports: Mapping[str, Report]) -> Identity:
    """Whether baseline, strategy and budget reports bear the semantic ids of their stages."""
    wanted = [
        (f"{stage}.semantic_id", reports.get(stage, {}).get("semantic_id"), semantic_id)
        for stage, semantic_id in SEMANTIC_IDS.items()
    ]
    return _identity(wanted)


def same_workload(baseline: Report, strategy: Report) -> Identity:
    """73 against 76: model, sizes, dtype, optimizer, workload and seed."""
    return same_fields(_config(strategy), _config(baseline), WORKLOAD_FIELDS)


def same_candidates(strategy: Report, budget: Report) -> Identity:
    """75 against 76: the candidates that the budget judged are those that were measured."""
    measured, judged = _by_name(strategy), _by_name(budget)
    names: list[tuple[str, Any, Any]] = [
        (f"candidates.{name}", name if name in judged else None, name if name in measured else None)
        for name in dict.fromkeys((*measured, *judged))
        if (name in judged) != (name in measured)
    ]
    values = [
        (f"candidates.{name}.{key}", judged[name].get(key), item.get(key))
        for name, item in measured.items()
        if name in judged
        for key in BUDGET_FIELDS
    ]
    return _identity([*names, *values])


def same_activation_scope(scope: Report, strategy: Report) -> Identity:
    """A ladder of lengths against the full training: what both share, and that it is a ladder."""
    config = _config(scope)
    fixed = [
        ("schema_version", scope.get("schema_version"), PROJECT_SCHEMA),
        ("semantic_id", scope.get("semantic_id"), STRATEGY_ID),
        ("config.comparison_scope", config.get("comparison_scope"), SCOPE),
        ("config.optimizer", config.get("optimizer"), "SGD"),
        ("config.optimizer_momentum", config.get("optimizer_momentum"), 0.0),
    ]
    shared = same_fields(config, _config(strategy), SHARED_FIELDS)
    found = _identity(fixed)
    return Identity(mismatches=found.mismatches + shared.mismatches, unchecked=shared.unchecked)


def same_under_pressure(pressure: Report, base_config: Mapping[str, Any]) -> Identity:
    """A pressure run against the base workload: the same but for a longer sequence."""
    config = _config(pressure)
    found = same_fields(config, base_config, PRESSURE_FIELDS)
    length, base = config.get("seq_len"), base_config.get("seq_len")
    if _count(length) > _count(base):
        return found
    wanted = f"more than {base}"
    mismatch = Mismatch(field="config.seq_len", found=length, wanted=wanted)
    return Identity(mismatches=(*found.mismatches, mismatch), unchecked=found.unchecked)


def enough_runs(strategy: Report, minimum: int = MIN_RUNS) -> Identity:
    """Upstream of a profile, every candidate has repeats of its own."""
    counts = {
        name: len(runs) if isinstance(runs := item.get("runs"), Sequence) else 0
        for name, item in _by_name(strategy).items()
    }
    return Identity(
        mismatches=tuple(
            Mismatch(field=f"candidates.{name}.runs", found=count, wanted=f"{minimum} runs or more")
            for name, count in counts.items()
            if count < minimum
        )
    )


def same_fields(
    found: Mapping[str, Any], wanted: Mapping[str, Any], fields: Iterable[str]
) -> Identity:
    """Two configurations, field by field."""
    return _identity([(f"config.{key}", found.get(key), wanted.get(key)) for key in fields])


def _identity(fields: Iterable[tuple[str, Any, Any]]) -> Identity:
    fields = list(fields)
    return Identity(
        mismatches=tuple(
            Mismatch(field=name, found=found, wanted=wanted)
            for name, found, wanted in fields
            if not _equal(found, wanted)
        ),
        unchecked=tuple(name for name, found, wanted in fields if found is None and wanted is None),
    )


def _equal(one: Any, other: Any) -> bool:
    # True == 1 in Python, but a batch of true is no batch of 1.
    return bool(one == other) and isinstance(one, bool) == isinstance(other, bool)


def _count(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def _config(report: Report) -> Mapping[str, Any]:
    config = report.get("config")
    return config if isinstance(config, Mapping) else {}


def _by_name(report: Report) -> dict[str, Mapping[str, Any]]:
    candidates = report.get("candidates")
    items = candidates if isinstance(candidates, Sequence) else ()
    return {
        item["name"]: item
        for item in items
        if isinstance(item, Mapping) and isinstance(item.get("name"), str)
    }
