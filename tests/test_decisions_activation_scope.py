"""The scope of activation memory (course project 74): its checks, its gates, its boundary."""

from __future__ import annotations

import math
from copy import deepcopy
from typing import Any

import pytest

from trainperf_mlflow.decisions.activation_scope import (
    LIMITATIONS,
    ActivationScope,
    assess_activation_memory_scope,
)

TRAINING = {
    "model_id": "Qwen/Qwen2.5-0.5B-Instruct",
    "batch_size": 1,
    "dtype": "float32",
    "seed": 42,
    "device": "a GPU",
    "optimizer": "AdamW",
    "seq_len": 768,
}


def side(name: str, memory: float, rate: float, loss: float) -> dict[str, Any]:
    return {
        "name": name,
        "status": "ok",
        "successful_runs": 3,
        "peak_memory_mb": memory,
        "samples_per_s": rate,
        "eval_loss": loss,
    }


def report() -> dict[str, Any]:
    """Exactly at all three gates."""
    return {
        "schema_version": "training-performance-project/v1",
        "semantic_id": "PERF-MEMORY-STRATEGY",
        "status": "complete",
        "config": {
            **{key: TRAINING[key] for key in ("model_id", "batch_size", "dtype", "seed", "device")},
            "optimizer": "SGD",
            "optimizer_momentum": 0.0,
            "comparison_scope": "activation_memory_isolation",
        },
        "summary": {
            "tested_seq_lens": [512, 1024],
            "comparisons": [{"name": "checkpoint", "comparison_seq_len": 1024, "accepted": True}],
        },
        "length_records": [
            {"seq_len": 512, "candidates": []},
            {
                "seq_len": 1024,
                "candidates": [
                    side("baseline", 5000.3, 2.0, 2.00),
                    side("checkpoint", 4488.3, 1.4, 2.01),
                ],
            },
        ],
    }


def changed(path: str, value: Any) -> dict[str, Any]:
    made: Any = deepcopy(report())
    *parents, last = path.split("/")
    place = made
    for step in parents:
        place = place[int(step) if step.isdigit() else step]
    key = int(last) if last.isdigit() else last
    if value is ...:
        del place[key]
    else:
        place[key] = value
    return made


BASE = "length_records/1/candidates/0"
TUNED = "length_records/1/candidates/1"


def assess(made: dict[str, Any]) -> ActivationScope:
    return assess_activation_memory_scope(made, TRAINING)


def test_a_scope_at_every_gate_is_accepted_and_never_promoted() -> None:
    made = assess(report())
    assert made.decision == "accept_for_activation_memory_scope"
    assert made.reason == "checkpoint_passed_activation_memory_and_throughput_gates"
    assert made.promotable_to_full_training is False
    assert made.limitations == LIMITATIONS
    assert (made.scope, made.optimizer) == ("activation_memory_isolation", "SGD")
    assert (made.comparison_seq_len, made.tested_seq_lens) == (1024, (512, 1024))
    assert (made.evidence_status, made.model_id) == ("complete", TRAINING["model_id"])
    assert made.metrics.model_dump() == {
        "memory_saving_mb": 512.0,
        "throughput_ratio": 0.7,
        "loss_delta": 0.01,
        "baseline_peak_memory_mb": 5000.3,
        "checkpoint_peak_memory_mb": 4488.3,
    }
    assert made.gates["minimum_memory_saving_mb"] == 512.0
    assert ActivationScope.from_json(made.to_json()) == made


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (f"{TUNED}/peak_memory_mb", 4488.301),
        (f"{TUNED}/samples_per_s", 1.39999),
        (f"{TUNED}/eval_loss", 2.0100001),
        (f"{TUNED}/eval_loss", 1.9899999),  # the difference is absolute here
        ("summary/comparisons/0/accepted", False),
        ("summary/comparisons/0/accepted", 1),
        ("summary/comparisons/0/accepted", ...),
    ],
)
def test_a_scope_that_misses_a_gate_is_tuned(path, value) -> None:
    made = assess(changed(path, value))
    assert (made.decision, made.reason) == ("tune", "checkpoint_failed_activation_scope_gates")
    assert made.promotable_to_full_training is False


def test_the_training_loss_stands_in_where_a_side_has_no_eval_loss() -> None:
    made = changed(f"{BASE}/eval_loss", ...)
    made["length_records"][1]["candidates"][0]["loss"] = 3.0
    made["length_records"][1]["candidates"][1]["loss"] = 3.5
    assert assess(made).metrics.loss_delta == 0.5


@pytest.mark.parametrize(
    ("path", "value", "told"),
    [
        ("schema_version", "v2", "schema_version is 'v2', not 'training-performance-project/v1'"),
        ("semantic_id", None, "semantic_id is None, not 'PERF-MEMORY-STRATEGY'"),
        ("config/comparison_scope", "full", "comparison_scope is 'full'"),
        ("config/model_id", "other", "config.model_id is 'other', not 'Qwen"),
        ("config/batch_size", 2, "config.batch_size is 2, not 1"),
        ("config/batch_size", True, "config.batch_size is True, not 1"),
        ("config/dtype", "bfloat16", "config.dtype is 'bfloat16', not 'float32'"),
        ("config/seed", 43, "config.seed is 43, not 42"),
        ("config/device", ..., "config.device is None, not 'a GPU'"),
        ("config/optimizer", "AdamW", "config.optimizer is 'AdamW', not 'SGD'"),
        ("config/optimizer_momentum", 0.9, "config.optimizer_momentum is 0.9, not 0.0"),
        ("config/optimizer_momentum", False, "config.optimizer_momentum is False, not 0.0"),
        ("config", 3, "config.comparison_scope is None"),
        ("summary/comparisons", [], "no comparison of the name 'checkpoint'"),
        ("summary/comparisons", [7], "no comparison of the name 'checkpoint'"),
        ("summary/comparisons/0/comparison_seq_len", 2048, "no records of seq_len 2048"),
        ("length_records", None, "no records of seq_len 1024"),
        (BASE, ..., "lack baseline or checkpoint"),
        (f"{BASE}/successful_runs", 2, "baseline: status 'ok', 2 successful runs.*at least 3"),
        (f"{TUNED}/successful_runs", ..., "checkpoint: status 'ok', None successful runs"),
        (f"{TUNED}/status", "oom", "checkpoint: status 'oom'"),
        (f"{TUNED}/peak_memory_mb", math.nan, "checkpoint: peak_memory_mb is nan"),
        (f"{BASE}/samples_per_s", 0.0, "baseline: samples_per_s is 0; give a measured, positive"),
        (f"{BASE}/samples_per_s", "2", "baseline: samples_per_s is '2'"),
        (f"{TUNED}/eval_loss", True, "checkpoint: eval_loss is True"),
        (f"{TUNED}/samples_per_s", ..., "checkpoint: samples_per_s is missing"),
    ],
)
def test_what_is_no_such_scope_is_refused_with_the_value(path, value, told) -> None:
    with pytest.raises(ValueError, match=told):
        assess(changed(path, value))


def test_every_mismatch_is_told_at_once() -> None:
    made = changed("config/seed", 1)
    made["config"]["dtype"] = "float16"
    with pytest.raises(ValueError, match=r"dtype is 'float16'.*; .*seed is 1, not 42"):
        assess(made)
