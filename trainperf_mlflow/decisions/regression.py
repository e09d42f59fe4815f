"""The acceptance of course project 74: a chosen candidate, on its workload and on others near it.

First the contract: is this one baseline against one candidate with one change,
on one primary and at least one adjacent workload? Then the evidence of each
workload, and the decision: hard failures and quality come before any gain.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypedDict

from trainperf_mlflow.decisions.numbers import flag, limit, mapping, number, optional_number
from trainperf_mlflow.decisions.quality import settled
from trainperf_mlflow.decisions.reasons import REASONS
from trainperf_mlflow.results.record import Record, Role

POLICY = "regression"
MEMORY = "memory"  # a bottleneck that is no phase: it shrinks with the peak
GATES: MappingProxyType[str, float] = MappingProxyType(
    {
        "min_primary_time_gain_ms": 10.0,
        "max_adjacent_slowdown_ms": 3.0,
        "max_quality_delta": 0.02,
    }
)
_IDENTITY = ("baseline_id", "candidate_id", "changed_variable")
_ROLES = ("primary", "adjacent")
# Other names of the same phase, in the source's records and in traces.
_STAGE_NAMES = {"update": "optimizer", "optimizer_step": "optimizer", "dataloader": "data"}


class RegressionContract(Record):
    """What is accepted: one candidate against one fixed baseline, with one change."""

    baseline_id: str
    candidate_id: str
    changed_variable: str


class Shortfall(Record):
    """One thing that does not pass: its code, where, and in words with the numbers."""

    code: str
    workload_id: str | None
    text: str


class ContractCheck(TypedDict):
    is_valid: bool
    issues: list[str]
    primary_workload: str | None


class RegressionRow(Record):
    """One workload's evidence. Positive gains are better; a higher quality value is worse.

    None where it was not measured: the quality, or how long the phases take.
    """

    workload_id: str
    role: str
    time_gain_ms: float
    memory_gain_mb: float | None
    throughput_gain: float | None
    quality_delta: float | None
    original_bottleneck_delta_ms: float | None
    candidate_bottleneck: str | None


class RegressionEvidence(Record):
    """All workloads' evidence; ``hard_failures`` are the ids of those that failed."""

    primary: RegressionRow | None
    adjacent: tuple[RegressionRow, ...]
    hard_failures: tuple[str, ...]
    original_bottleneck: str
    original_bottleneck_reduced: bool
    candidate_bottleneck: str | None


def validate_regression_contract(
    contract: Mapping[str, Any], workload_records: Sequence[Mapping[str, Any]]
) -> ContractCheck:
    """Whether baseline, candidate and workloads can be paired; ``issues`` are codes.

    The source's: ``baseline_id_missing``, ``candidate_id_missing``,
    ``changed_variable_missing``, ``primary_workload_count_invalid``,
    ``duplicate_workload_id``. Ours: ``baseline_is_candidate``,
    ``workload_id_missing``, ``workload_role_unknown``, ``adjacent_workload_missing``.
    """
    issues = [f"{key}_missing" for key in _IDENTITY if not _is_name(contract.get(key))]
    if not issues and contract["baseline_id"] == contract["candidate_id"]:
        issues.append("baseline_is_candidate")
    roles = [item.get("role") for item in workload_records]
    primary = [item for item in workload_records if item.get("role") == "primary"]
    if len(primary) != 1:
        issues.append("primary_workload_count_invalid")
    ids = [item.get("workload_id") for item in workload_records]
    named = [name for name in ids if _is_name(name)]
    if len(named) != len(set(named)):
        issues.append("duplicate_workload_id")
    if len(named) != len(ids):
        issues.append("workload_id_missing")
    if any(role not in _ROLES for role in roles):
        issues.append("workload_role_unknown")
    if "adjacent" not in roles:
        issues.append("adjacent_workload_missing")
    name = primary[0].get("workload_id") if len(primary) == 1 else None
    return ContractCheck(
        is_valid=not issues, issues=issues, primary_workload=name if _is_name(name) else None
    )


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def build_regression_evidence(
    workload_records: Sequence[Mapping[str, Any]], original_bottleneck: str
) -> dict[str, Any]:
    """The gains and costs of each workload, and whether the original bottleneck shrank.

    Args:
        workload_records: mappings with ``workload_id``, ``role`` (primary, adjacent),
            ``status``, and, where that is ok, ``baseline`` and ``candidate`` (each with
            ``step_time_ms``, ``peak_mem_mb``, ``throughput`` and ``quality``, of which a
            higher value is worse) and ``baseline_stages_ms`` and ``candidate_stages_ms``.
            A value of None says that it was not measured.
        original_bottleneck: the phase that the change was meant to relieve, or memory.

    Returns:
        The fields of ``RegressionEvidence``.

    Raises:
        ValueError: a field is missing or of the wrong kind; the message has its path.
    """
    evidence = regression_evidence(workload_records, original_bottleneck)
    return evidence.model_dump() | {
        "adjacent": [row.model_dump() for row in evidence.adjacent],
        "hard_failures": list(evidence.hard_failures),
    }


def regression_evidence(
    workload_records: Sequence[Mapping[str, Any]], original_bottleneck: str
) -> RegressionEvidence:
    """The same as a record."""
    failures, rows = [], []
    for place, record in enumerate(workload_records):
        if record.get("status") != "ok":
            failures.append(str(record.get("workload_id")))
        else:
            rows.append(_row(record, original_bottleneck, f"workload {place}"))
    primary = next((row for row in rows if row.role == "primary"), None)
    delta = None
    if primary is not None:
        in_memory = original_bottleneck == MEMORY
        delta = primary.memory_gain_mb if in_memory else primary.original_bottleneck_delta_ms
    return RegressionEvidence(
        primary=primary,
        adjacent=tuple(row for row in rows if row.role == "adjacent"),
        hard_failures=tuple(failures),
        original_bottleneck=original_bottleneck,
        original_bottleneck_reduced=delta is not None and delta > 0,
        candidate_bottleneck=primary.candidate_bottleneck if primary else None,
    )


def _row(record: Mapping[str, Any], bottleneck: str, where: str) -> RegressionRow:
    name, role = record.get("workload_id"), record.get("role")
    if not isinstance(name, str) or not _is_name(name):
        raise ValueError(f"{where}: workload_id is {name!r}; give a name")
    where = f"workload {name!r}"
    if role not in _ROLES:
        raise ValueError(f"{where}: role is {role!r}; give primary or adjacent")
    before, after = mapping(record, "baseline", where), mapping(record, "candidate", where)
    old, new = _stages(record, "baseline", where), _stages(record, "candidate", where)
    key = _stage(bottleneck)
    return RegressionRow(
        workload_id=name,
        role=role,
        time_gain_ms=settled(
            number(before, "step_time_ms", f"{where}: baseline")
            - number(after, "step_time_ms", f"{where}: candidate")
        ),
        memory_gain_mb=_gain(before, after, "peak_mem_mb", where),
        throughput_gain=_minus(_gain(before, after, "throughput", where)),
        quality_delta=_minus(_gain(before, after, "quality", where)),
        original_bottleneck_delta_ms=_phase_gain(old, new, key, where),
        # The phase that comes first where two take the same time.
        candidate_bottleneck=max(new, key=lambda stage: new[stage]) if new else None,
    )


def _gain(
    before: Mapping[str, Any], after: Mapping[str, Any], key: str, where: str
) -> float | None:
    old = optional_number(before, key, f"{where}: baseline")
    new = optional_number(after, key, f"{where}: candidate")
    return None if old is None or new is None else settled(old - new)


def _minus(value: float | None) -> float | None:
    return None if value is None else -value + 0.0  # never -0.0


def _stages(record: Mapping[str, Any], role: Role, where: str) -> dict[str, float] | None:
    """Phase -> ms; None where the phases were not measured."""
    key = f"{role}_stages_ms"
    if key in record and record[key] is None:
        return None
    given = mapping(record, key, where)
    return {str(stage): limit(given, stage, f"{where}: {key}") for stage in given}


def _stage(name: str) -> str:
    return _STAGE_NAMES.get(name, name)


def _phase_gain(
    before: Mapping[str, float] | None,
    after: Mapping[str, float] | None,
    phase: str,
    where: str,
) -> float | None:
    if before is None or after is None or phase == MEMORY:
        return None
    times = []
    for side, stages in (("baseline", before), ("candidate", after)):
        found = [ms for stage, ms in stages.items() if _stage(stage) == phase]
        if not found:
            raise ValueError(
                f"{where}: {side}_stages_ms has no phase {phase!r}, the original bottleneck; "
                f"it has {', '.join(stages) or 'none'}"
            )
        times.append(sum(found))
    return settled(times[0] - times[1])


def decide_regression_adoption(
    evidence: Mapping[str, Any], gates: Mapping[str, Any]
) -> dict[str, Any]:
    """``decision``, ``reason``, ``rollback`` and ``next_action``; the first that applies:

    a failed workload or no primary one: reject. Quality worse by more than
    ``max_quality_delta`` on any workload: reject. The primary's time gain below
    ``min_primary_time_gain_ms``, an adjacent workload slower by more than
    ``max_adjacent_slowdown_ms``, a bottleneck that did not shrink, or quality
    that was not measured: tune. Else accept. A value that equals its gate passes.

    Args:
        evidence: of ``build_regression_evidence``.
        gates: the three gates; ``GATES`` are the source's.

    Raises:
        ValueError: a field or a gate is missing or of the wrong kind.
    """
    limits = {key: limit(gates, key, "gates") for key in GATES}
    reason = _adoption(evidence, limits)
    known = REASONS[reason]
    return {
        "decision": known.decision,
        "reason": reason,
        "rollback": known.decision == "reject",
        "next_action": known.next_action,
    }


def _adoption(evidence: Mapping[str, Any], gates: Mapping[str, float]) -> str:
    if evidence.get("hard_failures") or evidence.get("primary") is None:
        return "hard_failure_or_primary_missing"
    primary = mapping(evidence, "primary", "evidence")
    given = evidence.get("adjacent", ())
    if not isinstance(given, list | tuple):
        raise ValueError(f"evidence: adjacent is {given!r}; give a list of workloads")
    adjacent = [_as_row(row) for row in given]
    quality = [optional_number(row, "quality_delta", "evidence") for row in (primary, *adjacent)]
    if any(delta is not None and settled(delta) > gates["max_quality_delta"] for delta in quality):
        return "quality_guardrail_failed"
    gain = settled(number(primary, "time_gain_ms", "evidence: primary"))
    enough = gain >= gates["min_primary_time_gain_ms"]
    slowest = [settled(number(row, "time_gain_ms", "evidence: adjacent")) for row in adjacent]
    steady = all(gain >= -gates["max_adjacent_slowdown_ms"] for gain in slowest)
    relieved = flag(evidence, "original_bottleneck_reduced", "evidence")
    if enough and steady and relieved and None not in quality:
        return "benefit_and_guardrails_passed"
    return "benefit_or_bottleneck_evidence_incomplete"


def _as_row(row: Any) -> Mapping[str, Any]:
    return mapping({"adjacent": row}, "adjacent", "evidence")


def regression_shortfalls(
    evidence: RegressionEvidence, gates: Mapping[str, float] = GATES
) -> tuple[Shortfall, ...]:
    """Everything that does not pass, which the decision's one code leaves open.

    ``single_point_gain`` says that the gain holds on the primary workload, but not
    on those near it.
    """
    found = [
        Shortfall(code="workload_failed", workload_id=name, text=f"{name} failed")
        for name in evidence.hard_failures
    ]
    if evidence.primary is None:
        text = "the primary workload has no evidence"
        return (*found, Shortfall(code="primary_missing", workload_id=None, text=text))
    for row in (evidence.primary, *evidence.adjacent):
        found += _quality_shortfalls(row, gates["max_quality_delta"])
    primary, wanted = evidence.primary, gates["min_primary_time_gain_ms"]
    if primary.time_gain_ms < wanted:
        text = f"time gain {primary.time_gain_ms:.2f} ms (at least {wanted:g} wanted)"
        found.append(_shortfall("primary_gain_too_small", primary, text))
    allowed = gates["max_adjacent_slowdown_ms"]
    slower = [
        _shortfall(
            "adjacent_slower",
            row,
            f"slower by {-row.time_gain_ms:.2f} ms (at most {allowed:g} allowed)",
        )
        for row in evidence.adjacent
        if row.time_gain_ms < -allowed
    ]
    found += slower
    if slower and primary.time_gain_ms >= wanted:
        text = "the gain does not hold on every adjacent workload"
        found.append(_shortfall("single_point_gain", primary, text))
    if not evidence.original_bottleneck_reduced:
        found.append(_shortfall("bottleneck_not_reduced", primary, _bottleneck_text(evidence)))
    return tuple(found)


def _quality_shortfalls(row: RegressionRow, allowed: float) -> list[Shortfall]:
    if row.quality_delta is None:
        return [_shortfall("quality_not_measured", row, "quality was not measured")]
    if row.quality_delta <= allowed:
        return []
    text = f"quality is worse by {row.quality_delta:.4g} (at most {allowed:g} allowed)"
    return [_shortfall("quality_worse", row, text)]


def _bottleneck_text(evidence: RegressionEvidence) -> str:
    name, row = evidence.original_bottleneck, evidence.primary
    if name == MEMORY:
        return "peak memory did not shrink"
    if row is None or row.original_bottleneck_delta_ms is None:
        return f"how long {name} takes was not measured"
    return f"{name} takes {-row.original_bottleneck_delta_ms + 0.0:.2f} ms more"


def _shortfall(code: str, row: RegressionRow, text: str) -> Shortfall:
    return Shortfall(code=code, workload_id=row.workload_id, text=f"{row.workload_id}: {text}")
