"""``profiling-optimization-benchmark/v1``: the closing report and its two scopes.

Its candidates are gate records; the numbers behind them are its ``standard_metrics``.
"""

from __future__ import annotations

from typing import Any, Literal

from trainperf_mlflow.decisions.qualification import (
    QUALIFICATION_GATES,
    Qualification,
    qualify_memory_candidates,
)
from trainperf_mlflow.decisions.reasons import REASONS
from trainperf_mlflow.errors import PlanError
from trainperf_mlflow.evidence.imported import BASELINE, Imported, imported
from trainperf_mlflow.evidence.models import (
    Conclusion,
    Config,
    Fields,
    Means,
    Name,
    Report,
    published,
)
from trainperf_mlflow.evidence.reading import Document
from trainperf_mlflow.messages import shown
from trainperf_mlflow.results.decision import Decision

NAME = "closing"
SCHEMA = "profiling-optimization-benchmark/v1"
POLICY = "qualification"
# What a record may have failed although the memory budget lets it pass.
_NOT_BUDGET = {"memory_saving", "throughput_ratio", "loss_delta", "run_status"}


class GateRecord(Fields):
    name: Name
    decision: Literal["accept", "tune", "reject"]
    failed_gates: list[str]
    missing_evidence: list[str]


class Collected(Fields):
    status: str | None = None


class Profile(Fields):
    phase_memory: Collected | None = None


class ClosingReport(Report):
    schema_version: Literal["profiling-optimization-benchmark/v1"]
    semantic_id: Literal["PERF-PROFILING-CLOSURE"]
    run_label: str
    config: Config
    candidates: list[GateRecord]
    profile: Profile | None = None
    decision: Conclusion
    decision_scopes: dict[str, Any]
    standard_metrics: dict[Name, Means]


def parse(document: Document) -> Imported:
    """The report as a study, decided again by the gates.

    Raises:
        PlanError: fields are missing or wrong, or its numbers have no baseline.
    """
    report = ClosingReport.read(document)
    if BASELINE not in report.standard_metrics:
        raise PlanError(
            f"{shown(document.name)}: standard_metrics.{BASELINE} is missing, "
            "against which the gates are read"
        )
    qualification = _qualify(report)
    study = imported(
        document,
        report,
        format_name=NAME,
        policy="memory-strategy",
        candidates=[means.named(name) for name, means in report.standard_metrics.items()],
        config=report.config,
        quality_checked=True,
        published=published(report.decision),
        warnings=_contradictions(report, qualification),
    )
    label = study.study.model_copy(update={"label": report.run_label[:250]})
    return study.model_copy(update={"study": label, "decision": _decision(qualification)})


def _qualify(report: ClosingReport) -> Qualification:
    records = {record.name: record for record in report.candidates}
    judged = [
        {**values.to_json(), "name": name}
        for name, values in report.standard_metrics.items()
        if name == BASELINE or name in records
    ]
    return qualify_memory_candidates(
        judged,
        {name for name, record in records.items() if set(record.failed_gates) <= _NOT_BUDGET},
        {name: record.missing_evidence for name, record in records.items()},
        QUALIFICATION_GATES,
        phase_report=_has_phases(report),
    )


def _has_phases(report: ClosingReport) -> bool:
    phases = report.profile.phase_memory if report.profile else None
    return phases is not None and phases.status == "collected"


def _decision(qualification: Qualification) -> Decision:
    accepted = ", ".join(qualification.qualified_candidates) or "none"
    return Decision(
        decision=qualification.decision,
        reason=qualification.reason,
        text=f"{REASONS[qualification.reason].en}; qualified: {accepted}",
        next_action=qualification.next_action,
        rollback=qualification.decision == "reject",
        policy=POLICY,
    )


def _contradictions(report: ClosingReport, qualification: Qualification) -> list[str]:
    stated = {record.name: record for record in report.candidates}
    found = [
        f"{ours.name} is published as {stated[ours.name].decision} "
        f"({', '.join(stated[ours.name].failed_gates) or 'no gate failed'}), but its numbers give "
        f"{ours.decision} ({', '.join(ours.failed_gates) or 'no gate failed'})"
        for ours in qualification.candidate_records
        if ours.decision != stated[ours.name].decision
    ]
    without = [name for name in stated if name not in report.standard_metrics]
    return [*found, *(f"{name} has no standard_metrics, so it was not judged" for name in without)]
