"""Published measurements, fed to our functions, are judged and decided as published."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import trainperf_mlflow as tp
from trainperf_mlflow.decisions.qualification import qualify_memory_candidates
from trainperf_mlflow.decisions.training import summarize_paired_training_result

PUBLISHED = Path(__file__).parent / "data" / "published"


def report(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((PUBLISHED / name).read_text("utf-8"))
    return found


def test_the_published_pair_is_decided_as_published() -> None:
    made = report("73_real_gpu_training.json")
    summary = summarize_paired_training_result(made["baseline"], made["tuned"])
    assert summary == made["summary"]
    decision = tp.recommend_training_decision(summary)["decision"]
    assert decision == made["decision"]["decision"] == "tune"


@pytest.mark.parametrize(
    ("name", "decide"),
    [
        ("76_real_gpu_memory.json", "decide_memory_strategy"),
        ("75_memory_budget_decision_9600.json", "decide_memory_budget"),
    ],
)
def test_published_memory_strategies_are_judged_and_decided_as_published(name, decide) -> None:
    made = report(name)
    summary = tp.summarize_memory_strategies(
        made["candidates"], made["budget"], made["quality_floor"]
    )
    assert {key: summary[key] for key in made["summary"]} == made["summary"]
    assert getattr(tp, decide)(summary) == made["decision"]
    assert getattr(tp, decide)(made["summary"]) == made["decision"]


def test_a_published_candidate_that_fits_by_allocation_but_not_by_reservation_is_told() -> None:
    made = report("76_real_gpu_memory.json")
    summary = tp.summarize_memory_strategies(
        made["candidates"], {**made["budget"], "memory_cap_mb": 9600.0}, made["quality_floor"]
    )
    told = {item["name"]: item["reserved_over_cap"] for item in summary["evaluations"]}
    assert told == {"baseline": False, "checkpoint": True, "offload": True, "hybrid": True}


def test_published_candidates_do_not_qualify_for_their_small_saving() -> None:
    strategies = report("76_real_gpu_memory.json")
    feasible = report("75_memory_budget_decision_9600.json")["summary"]["feasible_names"]
    made = qualify_memory_candidates(strategies["candidates"], feasible, phase_report=True)
    assert {item.name: item.decision for item in made.candidate_records} == {
        "checkpoint": "tune",
        "offload": "reject",
        "hybrid": "tune",
    }
    assert made.reason == "candidate_requires_more_evidence_or_threshold_tuning"
    only_checkpoint = [c for c in strategies["candidates"] if c["name"] != "hybrid"]
    made = qualify_memory_candidates(only_checkpoint, feasible)
    assert made.reason == "global_peak_memory_saving_below_threshold"
