"""``profiling-trace-evidence/v1``: what a profiler showed. It explains and never decides."""

from __future__ import annotations

from typing import Literal

from trainperf_mlflow.evidence.imported import Imported, imported
from trainperf_mlflow.evidence.models import Candidate, Config, Fields, Report
from trainperf_mlflow.evidence.reading import Document

NAME = "profiling"
SCHEMA = "profiling-trace-evidence/v1"


class Role(Fields):
    """Where the report says what its numbers may be used for."""

    timing_for_adoption: Literal[False] | None = None


class TraceReport(Report):
    schema_version: Literal["profiling-trace-evidence/v1"]
    semantic_id: Literal["PERF-PROFILING-CLOSURE"] | None = None
    config: Config
    candidates: list[Candidate]
    profile: Role | None = None


def parse(document: Document) -> Imported:
    """The report as a study that only measures; profiled times are kept apart.

    Raises:
        PlanError: fields are missing or wrong.
    """
    report = TraceReport.read(document)
    study = imported(
        document,
        report,
        format_name=NAME,
        policy="training",
        candidates=report.candidates,
        config=report.config,
        published=None,
        probe=True,
    )
    # A profiler slows the step: under their own names these times are in nobody's way.
    repeats = (
        repeat.model_copy(
            update={"reported": {_PROFILED.get(k, k): v for k, v in repeat.reported.items()}}
        )
        for repeat in study.repeats
    )
    return study.model_copy(update={"repeats": tuple(repeats)})


_PROFILED = {
    "step_time_ms": "profile/step_time_ms",
    "samples_per_s": "profile/samples_per_s",
    "tokens_per_s": "profile/tokens_per_s",
}
