"""Explaining goes on where a variant fails, and starts only where its memory is free."""

from __future__ import annotations

from typing import Any

import psutil
import pytest
import torch

from trainperf_mlflow.attribution import Attempt, PhaseMeasurement
from trainperf_mlflow.errors import Interrupted, UnsupportedError
from trainperf_mlflow.measurement.explaining import ExplainingJob, explain
from trainperf_mlflow.measurement.launcher import WorkerError
from trainperf_mlflow.measurement.protocol import Built, Warmed
from trainperf_mlflow.measurement.safety import limit_process_memory, memory_safety
from trainperf_mlflow.results.record import Status
from trainperf_mlflow.results.study import Variant, Workload

CPU = torch.device("cpu")


class ScriptedWorker:
    def __init__(self, trouble: dict[tuple[str, int], BaseException]) -> None:
        self._trouble = trouble
        self._key = ("", 0)

    def ask(self, request: str, timeout: float | None = None, **arguments: Any) -> Any:
        if request == "build":
            self._key = (arguments["config"]["name"], arguments["seed"] - arguments["data_seed"])
            return Built(
                build_s=0.1,
                samples_per_step=2.0,
                tokens_per_step=None,
                quality_checked=False,
                environment={"device_name": "a device"},
            )
        if request == "warmup":
            return Warmed(first_step_ms=1.0, steps=1)
        if self._key in self._trouble:
            raise self._trouble[self._key]
        return PhaseMeasurement(step_ms=(1.0,), phase_ms={"forward": (1.0,)})

    def __enter__(self) -> ScriptedWorker:
        return self

    def __exit__(self, *exception: Any) -> None:
        pass


def attempts(
    trouble: dict[tuple[str, int], BaseException], unsupported: dict[str, str] | None = None
) -> list[Attempt]:
    names = ("baseline", "bf16", "checkpoint")
    job = ExplainingJob(
        task="causal_lm",
        variants=tuple(
            Variant(
                name=name,
                role="baseline" if name == "baseline" else "candidate",
                config={"name": name},
            )
            for name in names
        ),
        workload=Workload(
            digest="d", identity={}, device="cpu", name="w", source="s",
            unsupported=unsupported or {},
        ),
        rounds=2,
        warmup_steps=1,
        seed=5,
    )  # fmt: skip
    return list(
        explain(
            job,
            lambda: ScriptedWorker(trouble),
            lambda worker, variant, timeout: {"phases": worker.ask("phases", timeout, steps=1)},
        )
    )


def outcome(found: list[Attempt]) -> dict[tuple[str, int], Status]:
    return {(attempt.variant, attempt.index): attempt.status for attempt in found}


def test_running_out_of_memory_is_that_repeats_status_and_the_rest_goes_on() -> None:
    found = attempts({("bf16", 0): WorkerError(Status.OOM, "CUDA out of memory")})
    assert outcome(found) == {
        ("baseline", 0): Status.OK,
        ("baseline", 1): Status.OK,
        ("bf16", 0): Status.OOM,
        ("bf16", 1): Status.OK,
        ("checkpoint", 0): Status.OK,
        ("checkpoint", 1): Status.OK,
    }
    failed = next(attempt for attempt in found if attempt.status is Status.OOM)
    assert failed.error == "CUDA out of memory"
    assert failed.phases is None


def test_what_cannot_be_done_is_tried_once_and_the_device_says_so_without_a_try() -> None:
    found = attempts(
        {("bf16", index): UnsupportedError("no parts") for index in range(2)},
        unsupported={"checkpoint": "not on this device"},
    )
    assert outcome(found) == {
        ("checkpoint", 0): Status.UNSUPPORTED,
        ("bf16", 0): Status.UNSUPPORTED,
        ("baseline", 0): Status.OK,
        ("baseline", 1): Status.OK,
    }


def test_an_interrupt_is_nobodys_failure() -> None:
    with pytest.raises(Interrupted):
        attempts({(name, 0): Interrupted(2) for name in ("baseline", "bf16", "checkpoint")})


def test_only_what_fits_with_the_margin_is_admitted() -> None:
    free_mb = psutil.virtual_memory().available / 2**20
    small = memory_safety(CPU, 1.0)
    assert small.admitted
    assert small.required_free_memory_mb == 513.0
    assert 0 < small.free_memory_mb_before_load <= small.total_memory_mb
    large = memory_safety(CPU, free_mb * 100)
    assert not large.admitted
    unknown = memory_safety(CPU, None)
    assert unknown.admitted
    assert unknown.required_free_memory_mb is None


@pytest.mark.parametrize("fraction", [0.0, -0.5, 1.01, float("nan")])
def test_a_share_of_the_memory_is_above_none_and_at_most_all(fraction: float) -> None:
    with pytest.raises(ValueError, match=r"not in \(0, 1\]"):
        limit_process_memory(CPU, fraction)
    limit_process_memory(CPU, 1.0)
