"""``training-phase-memory/v1``: time and memory by phase. It explains and never decides."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from trainperf_mlflow.errors import PlanError
from trainperf_mlflow.evidence.formats.trace_evidence import Role
from trainperf_mlflow.evidence.imported import Imported, imported
from trainperf_mlflow.evidence.models import Amount, Candidate, Config, Fields, Report, Run
from trainperf_mlflow.evidence.reading import Document
from trainperf_mlflow.messages import shown

NAME = "phase"
SCHEMA = "training-phase-memory/v1"
MAX_PHASES = 20


class PhaseValues(Fields):
    time_ms: Amount | None = None
    peak_allocated_mb: Amount | None = None
    peak_reserved_mb: Amount | None = None


# A part of a metric's name, in which MLflow takes no other characters.
Phase = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,50}$")]


class PhaseRun(Run):
    phase_metrics: dict[Phase, PhaseValues] | None = None

    def metrics(self) -> dict[str, float]:
        """Only what has a phase: a step that was cut into phases is no step's time."""
        found: dict[str, float] = {}
        for phase, values in (self.phase_metrics or {}).items():
            if values.time_ms is not None:
                found[f"phase/{phase}_ms"] = values.time_ms
            if values.peak_allocated_mb is not None:
                found[f"phase/{phase}_peak_mem_mb"] = values.peak_allocated_mb
        peaks = [v for k, v in found.items() if k.endswith("_peak_mem_mb")]
        if peaks:
            found["peak_mem_mb"] = max(peaks)
        if self.loss is not None:
            found["loss"] = self.loss
        return found


class PhaseCandidate(PhaseRun, Candidate):
    runs: list[PhaseRun] | None = None  # type: ignore[assignment]


class PhaseReport(Report):
    schema_version: Literal["training-phase-memory/v1"]
    semantic_id: Literal["PERF-PROFILING-CLOSURE"] | None = None
    config: Config
    measurement: Role | None = None
    candidates: list[PhaseCandidate]


def parse(document: Document) -> Imported:
    """The report as a study that only measures, with the metrics of each phase.

    Raises:
        PlanError: fields are missing or wrong.
    """
    report = PhaseReport.read(document)
    for item in report.candidates:
        if len(item.phase_metrics or {}) > MAX_PHASES:
            raise PlanError(
                f"{shown(document.name)}: {shown(item.name)} has more than {MAX_PHASES} phases"
            )
    return imported(
        document,
        report,
        format_name=NAME,
        policy="training",
        candidates=report.candidates,
        config=report.config,
        published=None,
        probe=True,
    )
