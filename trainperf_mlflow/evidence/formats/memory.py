"""What the reports of course projects 76 and 75 share: variants that compete under a budget."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import JsonValue

from trainperf_mlflow.analysis.compare import measured
from trainperf_mlflow.decisions.memory import summarize_memory_strategies
from trainperf_mlflow.errors import PlanError
from trainperf_mlflow.evidence.exported import Exported, candidate_item
from trainperf_mlflow.evidence.imported import BASELINE, Imported, imported
from trainperf_mlflow.evidence.models import (
    PROJECT_SCHEMA,
    TASK,
    Amount,
    Candidate,
    Conclusion,
    Config,
    Count,
    Fields,
    Report,
    published,
)
from trainperf_mlflow.evidence.reading import Document, Json
from trainperf_mlflow.messages import shown

_RATIO_TOLERANCE = 1e-6


class Budget(Fields):
    memory_cap_mb: Amount
    min_samples_per_s: Amount
    min_memory_saving_mb: Amount | None = None
    min_throughput_ratio: Amount | None = None


class QualityFloor(Fields):
    max_val_loss: float


class MemorySummary(Fields):
    candidate_count: Count | None = None
    measured_count: Count | None = None
    oom_count: Count | None = None
    invalid_count: Count | None = None
    feasible_count: Count | None = None
    quality_failed_count: Count | None = None
    best_candidate: str | None = None
    feasible_names: list[str] | None = None
    baseline_peak_memory_mb: float | None = None
    best_peak_memory_mb: float | None = None
    memory_saving_mb: float | None = None
    throughput_ratio: float | None = None


class MemoryReport(Report):
    schema_version: Literal["training-performance-project/v1"] | None = None
    budget: Budget
    quality_floor: QualityFloor | None = None
    candidates: list[Candidate]
    summary: MemorySummary | None = None
    decision: Conclusion | None = None


def parse_memory(
    document: Document,
    report: MemoryReport,
    policy: str,
    config: Config,
    identity: Mapping[str, JsonValue],
) -> Imported:
    """A report as a study that its own budget decides."""
    if not any(item.name == BASELINE for item in report.candidates):
        raise PlanError(
            f"{shown(document.name)}: candidates: none is named {BASELINE!r}, "
            "so nothing can be compared; name the baseline so"
        )
    floor = report.quality_floor
    thresholds = {
        key: value
        for key in Budget.model_fields
        if (value := getattr(report.budget, key)) is not None
    }
    if floor is not None:
        thresholds["max_val_loss"] = floor.max_val_loss
    summary = report.summary
    return imported(
        document,
        report,
        format_name=policy,
        policy=policy,
        candidates=report.candidates,
        config=config,
        identity=identity,
        thresholds=thresholds,
        # Its authors judged quality by these losses, whatever they were taken on.
        quality_checked=floor is not None,
        published=published(report.decision, summary.best_candidate if summary else None),
        warnings=_contradictions(report),
    )


def build_memory(
    exported: Exported, policy: str, heading: Mapping[str, Any], loss_key: str | None = None
) -> Json:
    """All variants, the budget, and what the format's own rule says of them.

    The budget is the study's where the same rule decided it, else the rule's default.

    Args:
        loss_key: a second name under which the format also has the eval loss.

    Raises:
        PlanError: the study has no baseline.
    """
    comparison = exported.comparison_by(policy)
    limits = comparison.thresholds
    candidates = []
    for variant in exported.variants:
        item = candidate_item(variant, "peak_memory_mb")
        if loss_key is not None and "eval_loss" in item:
            item[loss_key] = item["eval_loss"]
        candidates.append(item)
    floor = _loss_limit(exported, limits)
    budget = {key: limits[key] for key in Budget.model_fields if key in limits}
    report: Json = {
        "task": TASK,
        "schema_version": PROJECT_SCHEMA,
        **heading,
        "budget": budget,
        "candidates": candidates,
    }
    if floor is not None:
        report["quality_floor"] = {"max_val_loss": floor}
        summary = summarize_memory_strategies(candidates, budget, report["quality_floor"])
        report["summary"] = dict(summary)
    report["decision"] = exported.decision(policy)
    return report


def _loss_limit(exported: Exported, limits: Mapping[str, float]) -> float | None:
    """The highest eval loss that passes, as the rule derives it; None where it judges none."""
    if "max_val_loss" in limits:
        return limits["max_val_loss"]
    baseline = next((v for v in exported.variants if v.role == "baseline"), None)
    loss = measured(baseline.metrics, "eval_loss") if baseline else None
    checked = baseline is not None and baseline.quality_checked
    ratio = limits.get("max_val_loss_ratio")
    if loss is None or loss < 0 or ratio is None or not checked:
        return None
    return loss * ratio


def _contradictions(report: MemoryReport) -> list[str]:
    """Where the stated summary is not what the rule makes of the stated numbers."""
    if report.summary is None or report.quality_floor is None:
        return []
    try:
        ours: Mapping[str, Any] = dict(
            summarize_memory_strategies(
                [item.to_json() for item in report.candidates],
                report.budget.to_json(),
                report.quality_floor.to_json(),
            )
        )
    except ValueError as error:
        return [str(error)]
    found = []
    for key in MemorySummary.model_fields:
        stated, value = getattr(report.summary, key), ours.get(key)
        if key not in report.summary.model_fields_set or stated == value:
            continue
        both = isinstance(stated, float) and isinstance(value, float)
        if not both or abs(stated - value) > _RATIO_TOLERANCE * max(1.0, abs(stated)):
            found.append(f"summary.{key} is given as {stated}, but its numbers give {value}")
    return found
