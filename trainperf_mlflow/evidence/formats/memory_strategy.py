"""Course project 76: memory strategies under a budget, by the rule ``memory-strategy``."""

from __future__ import annotations

from typing import Literal

from trainperf_mlflow.evidence.exported import Exported
from trainperf_mlflow.evidence.formats.memory import MemoryReport, build_memory, parse_memory
from trainperf_mlflow.evidence.imported import Imported
from trainperf_mlflow.evidence.models import STRATEGY_ID, Config
from trainperf_mlflow.evidence.reading import Document, Json

NAME = "memory-strategy"
STAGE = "activation_checkpoint_offload_benchmark"


class StrategyReport(MemoryReport):
    semantic_id: Literal["PERF-MEMORY-STRATEGY"] | None = None
    stage: Literal["activation_checkpoint_offload_benchmark"]
    config: Config


def parse(document: Document) -> Imported:
    """The report as a study.

    Raises:
        PlanError: fields are missing or wrong, or no candidate is the baseline.
    """
    report = StrategyReport.read(document)
    return parse_memory(document, report, NAME, report.config, {})


def build(exported: Exported) -> Json:
    """All variants of a study under its budget; see ``build_memory``."""
    config = exported.config()
    names = [variant.name for variant in exported.variants]
    heading = {
        "semantic_id": STRATEGY_ID,
        "stage": STAGE,
        "source_baseline": exported.study.study_id,
        "evidence_level": "fixed_workload_strategy_smoke",
        "config": {**config, "strategies": names},
    }
    return build_memory(exported, NAME, heading)
