"""The published formats, one file each: which one a file is, and how it is read and written."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from trainperf_mlflow.decisions.activation_scope import SCOPE
from trainperf_mlflow.errors import PlanError
from trainperf_mlflow.evidence.exported import Exported
from trainperf_mlflow.evidence.formats import (
    activation_scope,
    benchmark,
    closing,
    memory_budget,
    memory_strategy,
    phase_memory,
    probe,
    trace_evidence,
    training,
)
from trainperf_mlflow.evidence.imported import EXPORT_KEY, Imported, exported_block
from trainperf_mlflow.evidence.models import BASELINE_ID, BUDGET_ID, PROJECT_SCHEMA, STRATEGY_ID
from trainperf_mlflow.evidence.reading import Document, Json
from trainperf_mlflow.messages import shown

MANIFEST_SCHEMA = "performance-evidence-manifest/v1"
# Formats whose decision is no study policy's: to compare the study again would replace it.
DECIDED_BY_FORMAT = frozenset({closing.NAME, activation_scope.NAME})

_BY_SCHEMA: Mapping[str, Callable[[Document], Imported]] = MappingProxyType(
    {
        benchmark.SCHEMA: benchmark.parse,
        trace_evidence.SCHEMA: trace_evidence.parse,
        phase_memory.SCHEMA: phase_memory.parse,
        closing.SCHEMA: closing.parse,
    }
)
# Published before there were schema versions: the stage tells.
_BY_STAGE: Mapping[str, Callable[[Document], Imported]] = MappingProxyType(
    {
        training.STAGE: training.parse,
        probe.STAGE: probe.parse,
        memory_strategy.STAGE: memory_strategy.parse,
        memory_budget.STAGE: memory_budget.parse,
    }
)
_BUILDERS: Mapping[str, Callable[[Exported], Json]] = MappingProxyType(
    {
        training.NAME: training.build,
        memory_strategy.NAME: memory_strategy.build,
        memory_budget.NAME: memory_budget.build,
        benchmark.NAME: benchmark.build,
    }
)


def parse(document: Document) -> Imported:
    """A published report as a study.

    Raises:
        PlanError: the format is unknown, or fields are missing or wrong.
    """
    schema, stage = (document.content.get(key) for key in ("schema_version", "stage"))
    if schema == MANIFEST_SCHEMA:
        raise PlanError(
            f"{shown(document.name)} is a manifest: it lists evidence and holds no results; "
            "import the reports that it lists"
        )
    found = _BY_SCHEMA.get(schema) if isinstance(schema, str) else None
    config = document.content.get("config")
    if isinstance(config, dict) and config.get("comparison_scope") == SCOPE:
        found = activation_scope.parse  # the stage of 76, but a ladder of lengths
    if found is None and schema in (None, PROJECT_SCHEMA) and isinstance(stage, str):
        found = _BY_STAGE.get(stage)
    if found is None:
        raise PlanError(
            f"{shown(document.name)} is no report of a known format: schema_version is "
            f"{shown(schema)}, stage is {shown(stage)}; known schemas: "
            f"{', '.join((*_BY_SCHEMA, PROJECT_SCHEMA))}; known stages: {', '.join(_BY_STAGE)}"
        )
    return found(document)


def build(exported: Exported, name: str) -> Json:
    """A study in a format, with what is needed to import it as the same study.

    Args:
        name: training, memory-strategy, memory-budget or benchmark; a probe's ``training``
            is the format of a probe.

    Raises:
        PlanError: the format has no room for this study.
    """
    is_probe = exported.study.plan.get("probe") is True
    builder = probe.build if is_probe and name == training.NAME else _BUILDERS[name]
    return {**builder(exported), EXPORT_KEY: exported_block(exported.study)}


__all__ = [
    "BASELINE_ID",
    "BUDGET_ID",
    "DECIDED_BY_FORMAT",
    "MANIFEST_SCHEMA",
    "PROJECT_SCHEMA",
    "STRATEGY_ID",
    "build",
    "parse",
]
