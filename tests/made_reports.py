"""Made-up reports in the published formats, for the tests of import, export and identity."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from trainperf_mlflow.analysis.metrics import repeat_values, variant_values
from trainperf_mlflow.evidence.imported import Imported
from trainperf_mlflow.evidence.reading import Document, parse_document
from trainperf_mlflow.results.values import VariantValues

PUBLISHED = sorted(
    (Path(__file__).resolve().parent.parent.parent / "shared" / "published-reports").glob("*.json")
)
PROJECT = "training-performance-project/v1"
CONFIG: dict[str, Any] = {
    "model_id": "a/model",
    "batch_size": 1,
    "seq_len": 768,
    "dtype": "float32",
    "optimizer": "AdamW",
    "workload": "pressure",
    "warmup": 2,
    "iters": 5,
    "seed": 42,
    "device": "a device",
    "torch": "2.11.0",
}


def run(time: float, memory: float, **more: Any) -> dict[str, Any]:
    values = {"step_time_ms": time, "samples_per_s": round(1000 / time, 3), "loss": 2.5}
    return {**values, "peak_mem_mb": memory, "peak_reserved_mb": memory + 100, **more}


def training_report(tuned_memory: float = 9500.0, **more: Any) -> dict[str, Any]:
    """Paired: 100 ms faster; MiB saved as asked, out of 10000."""
    return {
        "task": "a task",
        "stage": "measurement_baseline",
        "config": {**CONFIG, "amp_dtype": "torch.bfloat16", "repeats": 2},
        "baseline": {**run(300.0, 10000.0), "runs": [run(299.0, 10000.0), run(301.0, 10000.0)]},
        "tuned": {
            **run(200.0, tuned_memory),
            "runs": [run(199.0, tuned_memory), run(201.0, tuned_memory)],
        },
        "decision": {"decision": "tune", "reason": "words of its author"},
        "unknown_field": {"kept": [1, 2.5, None]},
        **more,
    }


def candidate(name: str, memory: float, rate: float, **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "status": "ok",
        "step_time_ms": round(1000 / rate, 3),
        "samples_per_s": rate,
        "loss": 2.5,
        "eval_loss": 2.0,
        "peak_memory_mb": memory,
        "peak_reserved_mb": memory + 50,
        **more,
    }


def memory_report(stage: str = "activation_checkpoint_offload_benchmark", **more: Any) -> Any:
    """Checkpoint saves 1000 of 10000 MiB and keeps 80 % of the throughput: accepted."""
    code = "strategy_is_best_feasible_option"
    if stage == "memory_budget_decision":
        code = f"compression_{code}"
    return {
        "stage": stage,
        "config": CONFIG,
        "budget": {"memory_cap_mb": 11000.0, "min_samples_per_s": 1.0},
        "quality_floor": {"max_val_loss": 2.04},
        "candidates": [
            candidate("baseline", 10000.0, 2.0),
            candidate("checkpoint", 9000.0, 1.6),
            candidate("offload", 9200.0, 0.5),
            {"name": "hybrid", "status": "oom"},
        ],
        "summary": {"best_candidate": "checkpoint", "oom_count": 1, "feasible_count": 2},
        "decision": {
            "decision": "accept",
            "reason": code,
            "next_action": "promote_to_training_run",
        },
        **more,
    }


def probe_report() -> dict[str, Any]:
    return {
        "stage": "bf16_capacity_probe",
        "config": {**CONFIG, "amp_dtype": "torch.bfloat16"},
        "candidate": run(200.0, 9500.0),
        "decision": {"decision": "measure", "reason": "nothing to compare with"},
    }


def benchmark_report(**more: Any) -> dict[str, Any]:
    return {
        "schema_version": "training-memory-benchmark/v1",
        "experiment": CONFIG,
        "standard_metrics": {
            "baseline": candidate("baseline", 10000.0, 2.0),
            "checkpoint": candidate("checkpoint", 9000.0, 1.6),
        },
        **more,
    }


def phase_report() -> dict[str, Any]:
    def one(name: str, peak: float) -> dict[str, Any]:
        phases = {
            "forward": {"time_ms": 30.0, "peak_allocated_mb": peak},
            "backward": {"time_ms": 60.0, "peak_allocated_mb": peak - 100},
        }
        runs = [{"repeat": i + 1, "status": "ok", "phase_metrics": phases} for i in range(3)]
        return {"name": name, "status": "ok", "phase_metrics": phases, "runs": runs}

    return {
        "schema_version": "training-phase-memory/v1",
        "semantic_id": "PERF-PROFILING-CLOSURE",
        "config": CONFIG,
        "measurement": {"timing_for_adoption": False},
        "candidates": [one("baseline", 9000.0), one("checkpoint", 7000.0)],
    }


def trace_report() -> dict[str, Any]:
    return {
        "schema_version": "profiling-trace-evidence/v1",
        "semantic_id": "PERF-PROFILING-CLOSURE",
        "config": CONFIG,
        "candidates": [candidate("baseline", 9000.0, 2.0), candidate("checkpoint", 7000.0, 1.6)],
        "profile": {"timing_for_adoption": False},
    }


def closing_report(**more: Any) -> dict[str, Any]:
    """Checkpoint saves too little; everything else passes."""
    return {
        "schema_version": "profiling-optimization-benchmark/v1",
        "semantic_id": "PERF-PROFILING-CLOSURE",
        "run_label": "v1",
        "config": CONFIG,
        "candidates": [
            {
                "name": "checkpoint",
                "decision": "tune",
                "failed_gates": ["memory_saving"],
                "missing_evidence": [],
            }
        ],
        "profile": {"phase_memory": {"status": "collected"}},
        "decision": {
            "decision": "tune",
            "reason": "global_peak_memory_saving_below_threshold",
            "next_action": "retain_phase_evidence_and_do_not_adopt_at_fixed_workload",
        },
        "decision_scopes": {"full_training_adoption": {"decision": "tune"}},
        "standard_metrics": {
            "baseline": candidate("baseline", 10000.0, 2.0),
            "checkpoint": candidate("checkpoint", 9700.0, 1.6),
        },
        **more,
    }


def scope_report() -> dict[str, Any]:
    """At length 2048 checkpointing saves 1000 MiB and keeps 80 % of the throughput."""

    def side(name: str, memory: float, rate: float) -> dict[str, Any]:
        return candidate(name, memory, rate, successful_runs=3)

    config = {
        **CONFIG,
        "optimizer": "SGD",
        "optimizer_momentum": 0.0,
        "comparison_scope": "activation_memory_isolation",
    }
    return {
        "schema_version": PROJECT,
        "semantic_id": "PERF-MEMORY-STRATEGY",
        "stage": "activation_checkpoint_offload_benchmark",
        "status": "stopped_at_safety_boundary",
        "config": config,
        "length_records": [
            {"seq_len": 1024, "candidates": [side("baseline", 5000.0, 4.0)]},
            {
                "seq_len": 2048,
                "candidates": [side("baseline", 9000.0, 2.0), side("checkpoint", 8000.0, 1.6)],
            },
        ],
        "summary": {
            "tested_seq_lens": [1024, 2048],
            "comparisons": [{"name": "checkpoint", "comparison_seq_len": 2048, "accepted": True}],
        },
    }


REPORTS: dict[str, Any] = {
    "training": training_report(),
    "probe": probe_report(),
    "memory-strategy": memory_report(),
    "memory-budget": memory_report("memory_budget_decision"),
    "benchmark": benchmark_report(),
    "phase": phase_report(),
    "profiling": trace_report(),
    "closing": closing_report(),
    "activation-scope": scope_report(),
}


def document(report: Any, name: str = "report.json") -> Document:
    return parse_document(json.dumps(report).encode(), name)


def values(found: Imported) -> tuple[VariantValues, ...]:
    """An imported study's variants, as MLflow would give them back."""
    repeats = {
        v.name: [r for r in found.repeats if r.variant == v.name] for v in found.study.variants
    }
    return tuple(
        variant_values(
            variant,
            [repeat_values(repeat, compiled=False) for repeat in repeats[variant.name]],
            sources=[r.peak_mem_source for r in repeats[variant.name] if r.peak_mem_source],
        )
        for variant in found.study.variants
    )
