"""Small made-up records for the tests of the tracking room."""

from __future__ import annotations

import os
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from trainperf_mlflow.results.comparison import CandidateComparison, Comparison
from trainperf_mlflow.results.decision import Decision
from trainperf_mlflow.results.record import Status
from trainperf_mlflow.results.repeats import Block, Effect, Repeat
from trainperf_mlflow.results.study import Study, Variant, Workload
from trainperf_mlflow.results.values import VariantValues
from trainperf_mlflow.tracking.recorder import Recorder
from trainperf_mlflow.tracking.store import Store, connect, open_store
from trainperf_mlflow.tracking.uris import sqlite_uri

BEGAN = 1_764_000_000.0


def a_study(name: str = "does bf16 pay", **fields: Any) -> Study:
    baseline = {"model": "tiny", "precision": "fp32", "batch_size": 2, "data": "stdlib"}
    values: dict[str, Any] = {
        "study_id": "",
        "name": name,
        "plan": {"study": name, "repeats": 2, "candidates": [{"name": "bf16"}], "goal": None},
        "policy": "training",
        "variants": (
            Variant(name="baseline", role="baseline", config=baseline),
            Variant(
                name="bf16",
                role="candidate",
                config={**baseline, "precision": "bf16"},
                changed={"precision": "bf16"},
                changed_variable="precision",
            ),
        ),
        "workload": Workload(
            digest="ab" * 32,
            identity={"model": "tiny"},
            device="cpu",
            name="quick",
            source="standard library",
            facts={"weights": "random", "parameters": 1000},
        ),
        "command": "trainperf measure",
        "created_at": BEGAN,
        "toolkit_version": "0.1.0",
    }
    return Study(**{**values, **fields})


def a_repeat(
    study_id: str, variant: str = "baseline", index: int = 0, step_ms: float = 50.0, **fields: Any
) -> Repeat:
    values: dict[str, Any] = {
        "study_id": study_id,
        "variant": variant,
        "index": index,
        "seed": 42 + index,
        "status": Status.OK,
        "started_at": BEGAN + 10 * index,
        "ended_at": BEGAN + 10 * index + 5,
        "samples_per_step": 2.0,
        "tokens_per_step": 256.0,
        "warmup_steps": 1,
        "first_step_ms": 90.0,
        "blocks": (
            Block(
                index=0,
                started_at=BEGAN + 10 * index + 1,
                wall_ms=3 * step_ms,
                step_ms=(step_ms - 1, step_ms, step_ms + 1),
                losses=(2.5, 2.4, 2.3),
            ),
        ),
        "peak_mem_mb": 100.0,
        "peak_mem_source": "tensor_tracker",
        "host_peak_rss_mb": 500.0,
        "loss": 2.3,
        "eval_loss": 2.4,
        "environment": {"torch": "2.13", "threads": 1},
    }
    if variant != "baseline":
        effect = Effect(key="precision", wanted="bf16", verified=True, detail="matmuls in bf16")
        values["effects"] = (effect,)
    return Repeat(**{**values, **fields})


def a_failed_repeat(study_id: str, variant: str, index: int, **fields: Any) -> Repeat:
    nothing: dict[str, Any] = {
        "status": Status.OOM,
        "error": "out of memory",
        "blocks": (),
        "first_step_ms": None,
        "peak_mem_mb": None,
        "peak_mem_source": None,
        "host_peak_rss_mb": None,
        "loss": None,
        "eval_loss": None,
        "effects": (),
    }
    return a_repeat(study_id, variant, index, **{**nothing, **fields})


def a_comparison(
    study: Study, variants: tuple[VariantValues, ...], decision: str = "accept", **fields: Any
) -> Comparison:
    made = Decision(
        decision=decision,
        reason="gain_large_enough",
        text="saves time",
        next_action="keep it",
        rollback=False,
        policy=study.policy,
    )
    candidates = tuple(
        CandidateComparison(
            variant=variant.name,
            status=variant.status,
            changed_variable=variant.changed_variable,
            delta={"step_time_ms": 10.0, "speedup": 1.25, "peak_mem_mb": 20.0},
            metrics=variant.metrics,
            effect_verified=variant.effect_verified,
            decision=made,
            note="saves 20 % of time",
            pairs=2,
            run_id=variant.run_id,
        )
        for variant in variants
        if variant.role == "candidate"
    )
    values: dict[str, Any] = {
        "study_id": study.study_id,
        "study": study.name,
        "workload": study.workload.name,
        "workload_digest": study.workload.digest,
        "goal": study.goal,
        "hypothesis": study.hypothesis,
        "policy": study.policy,
        "thresholds": {},
        "baseline": variants[0],
        "candidates": candidates,
        "best_candidate": candidates[0].variant if candidates else None,
        "decision": made,
    }
    return Comparison(**{**values, **fields})


def clean_surroundings(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """An empty current folder, and no setting of whoever runs the tests."""
    for name in list(os.environ):
        if name.startswith(("MLFLOW_TRACKING", "MLFLOW_RUN", "MLFLOW_EXPERIMENT", "TRAINPERF_")):
            monkeypatch.delenv(name)
    monkeypatch.chdir(folder)


@cache
def _empty_database() -> bytes:
    # MLflow takes a second or two to make its schema: once is enough.
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "mlflow.db"
        connect(sqlite_uri(path))
        return path.read_bytes()


def a_store(folder: Path, experiment: str | None = None) -> Store:
    """A real sqlite store in a folder."""
    path = folder / "mlflow.db"
    if not path.exists():
        path.write_bytes(_empty_database())
    return open_store(sqlite_uri(path), experiment)


def record(store: Store, name: str = "does bf16 pay", **fields: Any) -> Recorder:
    """A whole study of two rounds, recorded; ``fields`` are those of its comparison."""
    recorder = Recorder.start(store, a_study(name))
    for index in range(2):
        recorder.record_repeat(a_repeat(recorder.study_id, "baseline", index, 50.0 + index))
        recorder.record_repeat(a_repeat(recorder.study_id, "bf16", index, 40.0 + index))
    assert recorder.finish_study(a_comparison(recorder.study, recorder.values(), **fields), "note")
    return recorder


def statuses(store: Store) -> dict[str, str]:
    """Run name -> MLflow status of everything in the store's experiment."""
    runs = store.client.search_runs([store.experiment_id])
    return {run.info.run_name: run.info.status for run in runs}
