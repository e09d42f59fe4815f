"""The regression contract over measured studies: the source's rule, and the evidence guard on it.

The rule reads point values. The guard reads the intervals of the workloads that were measured in
pairs, and the spread of the phases' repeats: an accept that does not hold at their worse end
becomes tune.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import Field, JsonValue

from trainperf_mlflow.decisions.numbers import limit
from trainperf_mlflow.decisions.reasons import conclude
from trainperf_mlflow.decisions.regression import (
    GATES,
    MEMORY,
    POLICY,
    RegressionContract,
    RegressionEvidence,
    RegressionRow,
    Shortfall,
    decide_regression_adoption,
    regression_evidence,
    regression_shortfalls,
    validate_regression_contract,
)
from trainperf_mlflow.results.assessment import Trend
from trainperf_mlflow.results.decision import Decision
from trainperf_mlflow.results.estimates import ConvergenceCheck
from trainperf_mlflow.results.record import Record, Setting

# Below every gate: a gain of which only the point value is known.
_NOTHING_SURE = -1e9
_REMEDIES = {
    "baseline_id_missing": "name the baseline in the contract",
    "candidate_id_missing": "name the candidate in the contract",
    "changed_variable_missing": "name the changed variable in the contract",
    "baseline_is_candidate": "give the two different names",
    "primary_workload_count_invalid": "give exactly one primary workload (--primary STUDY)",
    "adjacent_workload_missing": "give at least one adjacent workload (--adjacent STUDY)",
    "duplicate_workload_id": "give each workload once: two studies of the same workload are one",
    "workload_id_missing": "name each workload",
    "workload_role_unknown": "a workload's role is primary or adjacent",
}


class RegressionWorkload(Record):
    """One workload: where it was measured, its record for the rule, and how sure its time is.

    ``record`` has the fields of ``build_regression_evidence``.
    """

    workload_id: str
    role: str
    record: dict[str, JsonValue]
    study_id: str | None = None  # None: the contract brought the record itself
    study: str | None = None
    error: str | None = None  # why it failed
    delta: dict[str, float] = Field(default_factory=dict)  # of the study's own comparison
    pairs: int = 0
    paired: bool = False  # measured in pairs: the interval below bounds its gain
    saved_ms_low: float | None = None
    contradicted: str | None = None  # what the pairs say against the means that the rule reads
    saved_ms_high: float | None = None
    bottleneck_trend: Trend | None = None  # of the original bottleneck; None: not measured
    effect_verified: bool | None = None
    convergence: ConvergenceCheck | None = None  # None where it was not asked for
    # Settings in which this workload is another one than the primary: theirs and its own.
    differs: dict[str, tuple[Setting, Setting]] = Field(default_factory=dict)


class Regression(Record):
    """The acceptance of one change over several workloads: ``regression.json``."""

    schema_version: Literal["trainperf-regression/v1"] = "trainperf-regression/v1"
    study_id: str  # the run of the regression
    name: str
    contract: RegressionContract
    original_bottleneck: str | None  # None: nobody said, and no phases tell
    thresholds: dict[str, float]
    workloads: tuple[RegressionWorkload, ...]
    evidence: RegressionEvidence
    shortfalls: tuple[Shortfall, ...]
    decision: Decision

    def summary(self) -> dict[str, Any]:
        """The object that ``--format json`` prints: the decision's fields at the top level."""
        primary = next((w for w in self.workloads if w.role == "primary"), None)
        failed = self.evidence.hard_failures
        return {
            "schema_version": self.schema_version,
            "study_id": self.study_id,
            "study": self.name,
            **self.decision.headline(),
            "thresholds": self.thresholds,
            "best_candidate": self.contract.candidate_id,
            "candidates": [
                {
                    "variant": self.contract.candidate_id,
                    "status": "failed" if failed else "ok",
                    **self.decision.headline(),
                    "delta": primary.delta if primary else {},
                    "pairs": primary.pairs if primary else 0,
                }
            ],
            "contract": self.contract.model_dump(),
            "original_bottleneck": self.original_bottleneck,
            "evidence": self.evidence.model_dump(mode="json"),
            "shortfalls": [item.model_dump() for item in self.shortfalls],
            "workloads": [item.model_dump(mode="json") for item in self.workloads],
        }


def contract_problems(
    contract: Mapping[str, Any], workloads: Sequence[Mapping[str, Any]]
) -> list[str]:
    """The contract's issue codes, each with what to do about it."""
    issues = validate_regression_contract(contract, workloads)["issues"]
    return [f"{code}: {_REMEDIES[code]}" for code in issues]


def decide_regression(
    name: str,
    contract: RegressionContract,
    workloads: Sequence[RegressionWorkload],
    original_bottleneck: str | None,
    thresholds: Mapping[str, float] | None = None,
) -> Regression:
    """Decide about a contract that is valid.

    Args:
        original_bottleneck: the phase that the change was meant to relieve, or memory; None
            where it is not known.
        thresholds: gates that differ from the source's.

    Raises:
        ValueError: a gate or a record's field is of the wrong kind.
    """
    gates = {**GATES, **(thresholds or {})}
    for key in gates:
        limit(gates, key, "gates")
    records: list[dict[str, Any]] = [
        dict(w.record) if original_bottleneck else _without_stages(w.record) for w in workloads
    ]
    evidence = regression_evidence(records, original_bottleneck or "the bottleneck")
    shortfalls = regression_shortfalls(evidence, gates)
    return Regression(
        study_id="",
        name=name,
        contract=contract,
        original_bottleneck=original_bottleneck,
        thresholds=gates,
        workloads=tuple(workloads),
        evidence=evidence,
        shortfalls=shortfalls,
        decision=_decide(evidence, shortfalls, workloads, gates),
    )


def _without_stages(record: Mapping[str, Any]) -> dict[str, Any]:
    return {**record, "baseline_stages_ms": None, "candidate_stages_ms": None}


def _decide(
    evidence: RegressionEvidence,
    shortfalls: Sequence[Shortfall],
    workloads: Sequence[RegressionWorkload],
    gates: Mapping[str, float],
) -> Decision:
    reason = _reason(evidence, gates)
    against = [f"{w.workload_id}: {w.contradicted}" for w in workloads if w.contradicted]
    trained = [f"{w.workload_id}: {w.convergence.text}" for w in workloads if w.convergence]
    text = "; ".join((*against, _text(evidence, shortfalls), *trained))
    made = conclude(reason, text, POLICY, numbers=_numbers(evidence, gates))
    if made.decision == "reject":
        return made
    idle = [w.workload_id for w in workloads if w.effect_verified is False]
    if idle:
        text = f"the change was not in effect on {', '.join(idle)}; {made.text}"
        return conclude("change_without_effect", text, POLICY, numbers=made.numbers)
    worst, best = (_at(evidence, workloads, end) for end in ("low", "high"))
    paired = all(w.paired for w in workloads)
    if made.decision == "tune":
        sure = (
            paired
            and not against
            and all(map(_has_interval, workloads))
            and _reason(best, gates) == reason
        )
        return made.model_copy(update={"confidence": "confirmed" if sure else "unconfirmed"})
    open_points = regression_shortfalls(worst, gates)
    if open_points or against:
        points = _joined(open_points) or "the pairs contradict the means"
        text = f"not confirmed at the worse end of the intervals: {points}"
        return conclude("gain_not_confirmed", f"{text}; {made.text}", POLICY, numbers=made.numbers)
    return made.model_copy(update={"confidence": "confirmed" if paired else "unconfirmed"})


def _has_interval(workload: RegressionWorkload) -> bool:
    return workload.saved_ms_low is not None and workload.saved_ms_high is not None


def _reason(evidence: RegressionEvidence, gates: Mapping[str, float]) -> str:
    found = evidence.model_dump() | {"adjacent": [row.model_dump() for row in evidence.adjacent]}
    return str(decide_regression_adoption(found, gates)["reason"])


def _at(
    evidence: RegressionEvidence, workloads: Sequence[RegressionWorkload], end: str
) -> RegressionEvidence:
    """The evidence as it would be at one end of what the workloads' measurements allow."""
    by_id = {workload.workload_id: workload for workload in workloads}

    def row_at(row: RegressionRow) -> RegressionRow:
        workload = by_id[row.workload_id]
        if not workload.paired:
            return row
        if end == "low":
            low = workload.saved_ms_low
            return row.model_copy(update={"time_gain_ms": _NOTHING_SURE if low is None else low})
        high = workload.saved_ms_high
        return row.model_copy(update={"time_gain_ms": -_NOTHING_SURE if high is None else high})

    primary = evidence.primary
    reduced = evidence.original_bottleneck_reduced
    if primary is not None and evidence.original_bottleneck != MEMORY:
        trend = by_id[primary.workload_id].bottleneck_trend
        # A phase that changed within its repeats' spread did not clearly shrink.
        if trend is not None:
            reduced = trend == "shrank" or (end == "high" and trend in ("unclear", "unknown"))
    return evidence.model_copy(
        update={
            "primary": None if primary is None else row_at(primary),
            "adjacent": tuple(row_at(row) for row in evidence.adjacent),
            "original_bottleneck_reduced": reduced,
        }
    )


def _text(evidence: RegressionEvidence, shortfalls: Sequence[Shortfall]) -> str:
    if shortfalls:
        return _joined(shortfalls)
    assert evidence.primary is not None
    slowest = min(row.time_gain_ms for row in evidence.adjacent)
    return (
        f"{evidence.primary.workload_id} gains {evidence.primary.time_gain_ms:.2f} ms a step, the "
        f"adjacent workloads at least {slowest:.2f} ms, and {evidence.original_bottleneck} shrank"
    )


def _joined(shortfalls: Sequence[Shortfall]) -> str:
    return "; ".join(item.text for item in shortfalls)


def _numbers(evidence: RegressionEvidence, gates: Mapping[str, float]) -> dict[str, float]:
    primary = evidence.primary
    found = {
        "time_gain_ms": primary.time_gain_ms if primary else None,
        "memory_gain_mb": primary.memory_gain_mb if primary else None,
        "quality_delta": primary.quality_delta if primary else None,
        "slowest_adjacent_gain_ms": min(
            (row.time_gain_ms for row in evidence.adjacent), default=None
        ),
    }
    return {key: value for key, value in found.items() if value is not None} | dict(gates)
