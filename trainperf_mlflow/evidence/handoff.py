"""What the project's next stage reads of a closed study: ``handoff/handoff.json``."""

from __future__ import annotations

from typing import Final, Literal

from pydantic import JsonValue

from trainperf_mlflow.decisions.qualification import CandidateQualification
from trainperf_mlflow.evidence.closing_report import (
    ClosingReport,
    DecisionScopes,
    Verdict,
)
from trainperf_mlflow.evidence.manifest import SEMANTIC_ID, Entry
from trainperf_mlflow.results.decision import Confidence
from trainperf_mlflow.results.estimates import ConvergenceCheck
from trainperf_mlflow.results.record import Record, Setting
from trainperf_mlflow.results.study import Study

SCHEMA: Final = "performance-handoff/v1"


class HandedCandidate(Record):
    """A candidate with what the gates say of it; ``config`` is the whole configuration."""

    name: str
    decision: Literal["accept", "tune", "reject"]
    changed: dict[str, Setting]
    config: dict[str, Setting]
    qualification: CandidateQualification
    longer_training: ConvergenceCheck | None = None  # None where nobody asked


class Handoff(Record):
    """A closed study: what to adopt, what it stands on, and within which scope.

    ``qualified_candidates`` have passed every gate; they may enter the next stage's
    combined tests, which is no delivery yet. Paths are ``<run id>/<artifact path>``.
    """

    schema_version: Literal["performance-handoff/v1"] = SCHEMA
    semantic_id: Literal["PERF-PROFILING-CLOSURE"] = SEMANTIC_ID
    run_label: str
    study_id: str
    study: str
    workload: dict[str, JsonValue]
    baseline_path: str
    profiling_report_path: str
    decision: Verdict
    confidence: Confidence | None = None
    qualified_candidates: tuple[str, ...]
    baseline_config: dict[str, Setting]
    candidates: tuple[HandedCandidate, ...]
    gates: dict[str, float]
    missing_evidence: tuple[str, ...]
    source_artifacts: dict[str, Entry]  # closure and manifest among them
    decision_scopes: DecisionScopes


def make_handoff(
    study: Study, report: ClosingReport, closure: Entry, manifest: Entry, profile: Entry | None
) -> Handoff:
    """The handoff of a closing report; ``closure`` is the report's own file."""
    records = {record.name: record for record in report.candidates}
    baseline = next(v for v in study.variants if v.role == "baseline")
    sources = {**report.validation.source_artifacts, "closure": closure, "manifest": manifest}
    if profile is not None:
        sources["profile_trace"] = profile
    return Handoff(
        run_label=report.run_label,
        study_id=report.study_id,
        study=study.name,
        workload=report.validation.workload_identity,
        baseline_path=sources["baseline"].path,
        profiling_report_path=closure.path,
        decision=report.decision,
        confidence=report.confidence,
        qualified_candidates=report.accepted,
        baseline_config=baseline.config,
        candidates=tuple(
            HandedCandidate(
                name=variant.name,
                decision=records[variant.name].decision,
                changed=variant.changed,
                config=variant.config,
                qualification=records[variant.name],
                longer_training=report.longer_training.get(variant.name),
            )
            for variant in study.variants
            if variant.name in records
        ),
        gates=report.gates,
        missing_evidence=report.missing_evidence,
        source_artifacts=sources,
        decision_scopes=report.decision_scopes,
    )
