"""``training-memory-benchmark/v1``: measured variants in normalised form, whoever measured them."""

from __future__ import annotations

from typing import Literal

from trainperf_mlflow.errors import PlanError
from trainperf_mlflow.evidence.exported import Exported, candidate_item
from trainperf_mlflow.evidence.formats.memory import Budget, QualityFloor
from trainperf_mlflow.evidence.imported import BASELINE, Imported, imported
from trainperf_mlflow.evidence.models import (
    Candidate,
    Conclusion,
    Config,
    Means,
    Name,
    Report,
    published,
)
from trainperf_mlflow.evidence.reading import Document, Json
from trainperf_mlflow.messages import shown

NAME = "benchmark"
SCHEMA = "training-memory-benchmark/v1"


class BenchmarkReport(Report):
    schema_version: Literal["training-memory-benchmark/v1"]
    experiment: Config | None = None
    config: Config | None = None
    candidates: list[Candidate] | None = None
    standard_metrics: dict[Name, Means] | None = None  # by candidate
    budget: Budget | None = None
    quality_floor: QualityFloor | None = None
    decision: Conclusion | None = None


def parse(document: Document) -> Imported:
    """The report as a study: under its budget where it has one, else by the rule ``training``.

    Raises:
        PlanError: fields are missing or wrong, or it has no variants.
    """
    report = BenchmarkReport.read(document)
    candidates = report.candidates or [
        means.named(name) for name, means in (report.standard_metrics or {}).items()
    ]
    if not candidates:
        raise PlanError(
            f"{shown(document.name)}: neither candidates nor standard_metrics has a variant"
        )
    thresholds: dict[str, float] = {}
    if report.budget is not None:
        given = {key: getattr(report.budget, key) for key in Budget.model_fields}
        thresholds = {key: value for key, value in given.items() if value is not None}
    if report.quality_floor is not None and report.budget is not None:
        thresholds["max_val_loss"] = report.quality_floor.max_val_loss
    return imported(
        document,
        report,
        format_name=NAME,
        policy="memory-strategy" if report.budget is not None else "training",
        candidates=candidates,
        config=report.experiment or report.config or Config(),
        thresholds=thresholds,
        quality_checked=report.quality_floor is not None,
        published=published(report.decision),
        probe=not any(item.name == BASELINE for item in candidates) or len(candidates) == 1,
    )


def build(exported: Exported) -> Json:
    """All variants of a study, with the decision by its own rule."""
    candidates = [candidate_item(variant, "peak_memory_mb") for variant in exported.variants]
    limits = exported.comparison.thresholds
    report: Json = {
        "schema_version": SCHEMA,
        "experiment": exported.config(),
        "candidates": candidates,
        "standard_metrics": {
            item["name"]: {k: v for k, v in item.items() if k not in ("name", "runs", "error")}
            for item in candidates
        },
        "decision": exported.decision(exported.comparison.policy),
    }
    if "memory_cap_mb" in limits:
        report["budget"] = {key: limits[key] for key in Budget.model_fields if key in limits}
    if "max_val_loss" in limits:
        report["quality_floor"] = {"max_val_loss": limits["max_val_loss"]}
    return report
