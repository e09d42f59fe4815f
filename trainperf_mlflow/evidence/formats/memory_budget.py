"""Course project 75: the same variants under another budget, by the rule ``memory-budget``."""

from __future__ import annotations

from typing import Literal

from trainperf_mlflow.evidence.exported import Exported
from trainperf_mlflow.evidence.formats.memory import MemoryReport, build_memory, parse_memory
from trainperf_mlflow.evidence.imported import Imported
from trainperf_mlflow.evidence.models import BUDGET_ID, Config
from trainperf_mlflow.evidence.reading import Document, Json

NAME = "memory-budget"
STAGE = "memory_budget_decision"


class BudgetReport(MemoryReport):
    semantic_id: Literal["PERF-MEMORY-BUDGET"] | None = None
    stage: Literal["memory_budget_decision"]
    source: str | None = None  # the file of 76 that was judged
    config: Config | None = None  # published ones have none


def parse(document: Document) -> Imported:
    """The report as a study.

    Raises:
        PlanError: fields are missing or wrong, or no candidate is the baseline.
    """
    report = BudgetReport.read(document)
    # Without a configuration, the report that was judged is what tells workloads apart.
    identity = {} if report.config is not None else {"source": report.source}
    return parse_memory(document, report, NAME, report.config or Config(), identity)


def build(exported: Exported) -> Json:
    """All variants of a study under its budget; see ``build_memory``."""
    heading = {
        "semantic_id": BUDGET_ID,
        "stage": STAGE,
        "source": exported.study.study_id,
        "config": exported.config(),
    }
    return build_memory(exported, NAME, heading, loss_key="val_loss")
