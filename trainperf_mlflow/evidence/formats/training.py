"""Course project 73, paired: one baseline and one tuned variant, by the rule ``training``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from trainperf_mlflow.decisions.training import summarize_paired_training_result
from trainperf_mlflow.evidence.exported import Exported, candidate_item, rounded_means
from trainperf_mlflow.evidence.imported import BASELINE, PRECISIONS, Imported, imported
from trainperf_mlflow.evidence.models import (
    BASELINE_ID,
    PROJECT_SCHEMA,
    TASK,
    Amount,
    Conclusion,
    Config,
    Fields,
    Means,
    Name,
    Report,
    published,
)
from trainperf_mlflow.evidence.reading import Document, Json
from trainperf_mlflow.results.values import VariantValues

NAME = "training"
STAGE = "measurement_baseline"
_SUMMARY_TOLERANCE = 0.011  # of two decimals


class Side(Means):
    """Baseline or tuned."""

    step_time_ms: Amount
    peak_mem_mb: Amount
    name: Name | None = None  # ours


class Summary(Fields):
    step_time_delta_ms: float
    peak_mem_delta_mb: float
    time_improved: bool
    memory_improved: bool
    time_improvement_pct: float | None = None
    memory_improvement_pct: float | None = None
    meaningful_memory_improved: bool | None = None


class TrainingReport(Report):
    schema_version: Literal["training-performance-project/v1"] | None = None
    semantic_id: Literal["PERF-TRAINING-BASELINE"] | None = None
    stage: Literal["measurement_baseline"]
    config: Config
    baseline: Side
    tuned: Side
    summary: Summary | None = None
    decision: Conclusion | None = None


def parse(document: Document) -> Imported:
    """The report as a study.

    Raises:
        PlanError: fields are missing or wrong.
    """
    report = TrainingReport.read(document)
    return imported(
        document,
        report,
        format_name=NAME,
        policy="training",
        candidates=[
            report.baseline.named(BASELINE),
            report.tuned.named(report.tuned.name or tuned_name(report.config)),
        ],
        config=report.config,
        published=published(report.decision),
        warnings=_contradictions(report),
    )


def build(exported: Exported) -> Json:
    """A study's baseline and best candidate as a report.

    Raises:
        PlanError: the study has no baseline or no candidate that was measured.
    """
    baseline, tuned = exported.pair()
    base_means, tuned_means = rounded_means(baseline), rounded_means(tuned)
    report: Json = {
        "task": TASK,
        "stage": STAGE,
        "schema_version": PROJECT_SCHEMA,
        "semantic_id": BASELINE_ID,
        "next_stage": "76_activation_checkpoint_offload_benchmark",
        "config": {**exported.config(), **amp_dtype(tuned), "mode": "paired"},
        "baseline": _side(candidate_item(baseline, "peak_mem_mb")),
        "tuned": {**_side(candidate_item(tuned, "peak_mem_mb")), "name": tuned.name},
        "evidence_level": "fixed_workload_performance_smoke",
        "decision": exported.decision("training", tuned.name),
    }
    if {"step_time_ms", "peak_mem_mb"} <= base_means.keys() & tuned_means.keys():
        report["summary"] = dict(summarize_paired_training_result(base_means, tuned_means))
    if "loss" in base_means and "loss" in tuned_means:
        difference = tuned_means["loss"] - base_means["loss"]
        report["loss_delta_tuned_minus_baseline"] = round(difference, 6)
    return report


def amp_dtype(variant: VariantValues) -> Json:
    """The autocast dtype, by the source's name, of a variant that has one."""
    names = {"bf16": "torch.bfloat16", "fp16": "torch.float16"}
    found = names.get(str(variant.config.get("precision")))
    return {"amp_dtype": found} if found else {}


def tuned_name(config: Config) -> str:
    """What the tuned side changed: the source compares with autocast of ``amp_dtype``."""
    dtype = (config.amp_dtype or "").removeprefix("torch.")
    return PRECISIONS.get(dtype, "tuned")


def _side(item: Json) -> Json:
    return {key: value for key, value in item.items() if key not in ("name", "status", "error")}


def _contradictions(report: TrainingReport) -> Sequence[str]:
    if report.summary is None:
        return ()
    base, tuned = report.baseline.metrics(), report.tuned.metrics()
    if not {"step_time_ms", "peak_mem_mb"} <= base.keys() & tuned.keys():
        return ()
    ours = summarize_paired_training_result(base, tuned)
    found = []
    for key, value in ours.items():
        stated = getattr(report.summary, key)
        if stated is None or stated == value:
            continue
        if isinstance(stated, bool) or abs(stated - float(str(value))) > _SUMMARY_TOLERANCE:
            found.append(f"summary.{key} is given as {stated}, but its numbers give {value}")
    return found
