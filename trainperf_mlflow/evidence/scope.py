"""A study of ours as the source's report on activation memory, so that one rule judges both."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainperf_mlflow.decisions.activation_scope import SCOPE
from trainperf_mlflow.evidence.exported import Exported, candidate_item
from trainperf_mlflow.evidence.imported import BASELINE
from trainperf_mlflow.evidence.models import PROJECT_SCHEMA, STRATEGY_ID
from trainperf_mlflow.evidence.reading import Json
from trainperf_mlflow.results.record import Status
from trainperf_mlflow.results.values import VariantValues

CHECKPOINT = "checkpoint"


def scope_report(exported: Exported) -> Json:
    """A study at one sequence length as a ladder of one: who asks decides whether it is one.

    The comparison counts as accepted where the study's own decision accepts the candidate
    that checkpoints.
    """
    config = exported.config()
    length = config.get("seq_len")
    candidates = [
        _item(variant, name)
        for variant in exported.variants
        if (name := _name(variant)) is not None
    ]
    accepted = any(
        candidate.decision.decision == "accept"
        for candidate in exported.comparison.candidates
        if any(_name(v) == CHECKPOINT for v in exported.variants if v.name == candidate.variant)
    )
    return {
        "schema_version": PROJECT_SCHEMA,
        "semantic_id": STRATEGY_ID,
        "config": {**config, "comparison_scope": SCOPE},
        "length_records": [{"seq_len": length, "candidates": candidates}],
        "summary": {
            "tested_seq_lens": [length],
            "comparisons": [
                {"name": CHECKPOINT, "comparison_seq_len": length, "accepted": accepted}
            ],
        },
        "status": "ok",
    }


def _item(variant: VariantValues, name: str) -> Json:
    item = candidate_item(variant, "peak_memory_mb")
    runs: list[Mapping[str, Any]] = item.pop("runs")
    ok = sum(run["status"] == Status.OK.value for run in runs)
    return {**item, "name": name, "successful_runs": ok}


def _name(variant: VariantValues) -> str | None:
    """The source's name of a variant; None for what has no part in its comparison."""
    if variant.role == "baseline":
        return BASELINE
    checkpoints = bool(variant.config.get("checkpoint")) and not variant.config.get("offload")
    return CHECKPOINT if variant.name == CHECKPOINT or checkpoints else None
