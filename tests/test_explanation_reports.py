"""The source's two reports that only explain: what their fields say, and what keeps them apart
from what a decision reads."""

from __future__ import annotations

from typing import Any

import pytest
from recorded_studies import a_study

from trainperf_mlflow.analysis.explanation import (
    phase_memory_report,
    phase_summary,
    trace_evidence_report,
)
from trainperf_mlflow.attribution import Attempt, PhaseMeasurement, Safety, TraceMeasurement
from trainperf_mlflow.decisions.activation_scope import LIMITATIONS
from trainperf_mlflow.results.record import Status

STUDY = a_study()
SAFETY = Safety(
    free_memory_mb_before_load=9000.0,
    total_memory_mb=10_000.0,
    projected_peak_reserved_mb=500.0,
    minimum_free_margin_mb=512.0,
    required_free_memory_mb=1012.0,
    process_memory_fraction=0.92,
    admitted=True,
)


def traced(variant: str, **fields: Any) -> Attempt:
    trace = TraceMeasurement(
        active_steps=4,
        step_ms=30.0,
        plain_step_ms=20.0,
        activities=("CPU", "CUDA"),
        trace_bytes=1000,
        operators=(),
        phase_ms={},
        **fields,
    )
    return Attempt(variant=variant, index=0, status=Status.OK, samples_per_step=3.0, trace=trace)


def failed(variant: str, index: int = 0) -> Attempt:
    return Attempt(variant=variant, index=index, status=Status.OOM, error="out of memory")


def trace_report(*attempts: Attempt) -> dict[str, Any]:
    return trace_evidence_report(STUDY, attempts, {"baseline": "b1"}, warmup=2, iters=5)


def test_a_trace_report_attributes_and_never_decides() -> None:
    made = trace_report(traced("baseline"), traced("bf16"))
    assert made["stage"] == "real_profiler_trace"
    assert made["semantic_id"] == "PERF-PROFILING-CLOSURE"
    assert made["task"] == "profiling_driven_optimization"
    profile = made["profile"]
    assert profile["measurement_role"] == "bottleneck_attribution_only"
    assert profile["timing_for_adoption"] is False
    assert (profile["tool"], profile["activities"]) == ("torch.profiler", ["CPU", "CUDA"])
    assert (profile["status"], profile["active_steps"], profile["repeat"]) == ("collected", 4, 1)
    assert profile["trace_files_by_strategy"]["baseline"] == ["b1/profile/trace.json.gz"]
    assert made["candidates"][0]["trace_dir"] == "b1/profile"
    assert made["standard_metrics"]["baseline"]["samples_per_s"] == 100.0


def test_what_the_allocator_holds_beyond_its_tensors_is_its_slack() -> None:
    made = trace_report(
        traced("baseline", peak_mem_mb=9782.56, peak_reserved_mb=10766.0),
        traced("bf16", peak_mem_mb=9477.25),
    )
    assert made["candidates"][0]["allocator_slack_mb"] == 983.44
    assert "allocator_slack_mb" not in made["candidates"][1]


def test_a_strategy_without_a_trace_is_named_and_the_pair_incomplete() -> None:
    profile = trace_report(traced("baseline"), failed("bf16"))["profile"]
    assert (profile["status"], profile["missing_strategies"]) == ("incomplete", ["bf16"])
    nothing = trace_report(failed("baseline"), failed("bf16"))["profile"]
    assert (nothing["status"], nothing["activities"]) == ("incomplete", [])
    assert nothing["missing_strategies"] == ["baseline", "bf16"]


def test_a_phase_report_attributes_and_never_decides() -> None:
    phases = PhaseMeasurement(
        step_ms=(10.0,),
        phase_ms={"forward": (4.0,), "backward": (6.0,)},
        peak_mem_mb={"forward": 80.0, "backward": 90.0},
        peak_mem_source="accelerator_allocator",
        peak_reserved_mb={"forward": 100.0, "backward": 100.0},
    )
    attempts = {
        "baseline": [Attempt(variant="baseline", index=0, status=Status.OK, phases=phases)],
        "bf16": [failed("bf16")],
    }
    summaries = [phase_summary("s", v, attempts[v.name]) for v in STUDY.variants]
    made = phase_memory_report(
        STUDY,
        [attempt for found in attempts.values() for attempt in found],
        summaries,
        SAFETY,
        warmup=2,
        iters=5,
        repeats=3,
    )
    assert made["stage"] == "phase_memory_attribution"
    assert made["evidence_level"] == "repeated_phase_memory_measurement"
    assert made["measurement"] == {
        "role": "phase_memory_attribution_only",
        "timing_for_adoption": False,
        "synchronize_at_phase_boundaries": True,
    }
    config = made["config"]
    assert (config["repeats"], config["warmup"], config["iters"]) == (3, 2, 5)
    assert (config["process_memory_fraction"], config["minimum_free_margin_mb"]) == (0.92, 512.0)
    assert made["safety"]["required_free_memory_mb"] == 1012.0
    assert made["sources"]["profile_trace"] == "profile/trace_evidence.json"
    before, after = made["candidates"]
    assert before["phase_metrics"]["backward"] == {
        "time_ms": 6.0,
        "peak_allocated_mb": 90.0,
        "peak_reserved_mb": 100.0,
    }
    assert after["runs"] == [{"repeat": 1, "status": "oom", "error": "out of memory"}]
    # Savings need both sides.
    assert made["summary"]["global_peak_phase"] == {"baseline": "backward"}
    assert "allocated_memory_saving_mb" not in made["summary"]


@pytest.mark.parametrize(
    "limitation",
    [
        "optimizer_state_is_intentionally_removed_with_zero_momentum_sgd",
        "result_does_not_establish_adamw_full_training_adoption",
        "length_ladder_stopped_at_the_safety_boundary",
    ],
)
def test_the_scope_of_activation_memory_tells_the_sources_limitation(limitation: str) -> None:
    assert limitation in LIMITATIONS
