"""Course project 73, probe: one configuration alone, with nothing to compare and to decide."""

from __future__ import annotations

from typing import Literal

from trainperf_mlflow.errors import PlanError
from trainperf_mlflow.evidence.exported import Exported, candidate_item
from trainperf_mlflow.evidence.formats.training import Side, amp_dtype, tuned_name
from trainperf_mlflow.evidence.imported import Imported, imported
from trainperf_mlflow.evidence.models import (
    BASELINE_ID,
    PROJECT_SCHEMA,
    TASK,
    Conclusion,
    Config,
    Report,
    published,
)
from trainperf_mlflow.evidence.reading import Document, Json

NAME = "probe"
STAGE = "bf16_capacity_probe"


class ProbeReport(Report):
    schema_version: Literal["training-performance-project/v1"] | None = None
    semantic_id: Literal["PERF-TRAINING-BASELINE"] | None = None
    stage: Literal["bf16_capacity_probe"]
    config: Config
    candidate: Side
    decision: Conclusion | None = None


def parse(document: Document) -> Imported:
    """The report as a study of one candidate without a baseline.

    Raises:
        PlanError: fields are missing or wrong.
    """
    report = ProbeReport.read(document)
    return imported(
        document,
        report,
        format_name=NAME,
        policy="training",
        candidates=[report.candidate.named(report.candidate.name or tuned_name(report.config))],
        config=report.config,
        published=published(report.decision),
        probe=True,
    )


def build(exported: Exported) -> Json:
    """A study's probe as a report.

    Raises:
        PlanError: it measured several variants, for which the format has no room.
    """
    if len(exported.variants) != 1:
        raise PlanError(
            f"a probe's report holds one variant, but study {exported.study.name!r} has "
            f"{len(exported.variants)}; probe one at a time"
        )
    variant = exported.variants[0]
    item = candidate_item(variant, "peak_mem_mb")
    return {
        "task": TASK,
        "stage": STAGE,
        "schema_version": PROJECT_SCHEMA,
        "semantic_id": BASELINE_ID,
        "config": {**exported.config(), **amp_dtype(variant), "mode": "bf16_probe"},
        "candidate": {k: v for k, v in item.items() if k not in ("status", "error")},
        "decision": exported.decision(exported.comparison.policy),
        "evidence_level": "fixed_workload_capacity_probe",
    }
