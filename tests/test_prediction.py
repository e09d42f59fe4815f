"""What was predicted beside what was measured: by processes that never open the device."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from trainperf_mlflow.api.predicting import predict_measured, predictions
from trainperf_mlflow.measurement.estimate.target import measured_target
from trainperf_mlflow.measurement.launcher import Launcher
from trainperf_mlflow.plan import Plan
from trainperf_mlflow.results.record import Status
from trainperf_mlflow.results.repeats import Repeat
from trainperf_mlflow.results.study import Study, Workload

pytestmark = pytest.mark.usefixtures("warm_servers")

MEASURED_MB = 200.0


def study(device: str = "cuda:0", **plan: Any) -> Study:
    made = Plan(set={"seq_len": 16}, **plan) if "task" not in plan else Plan(**plan)
    workload = Workload(name="w", identity={}, device=device, digest="0" * 64, source="random")
    return Study(
        study_id="s",
        name="s",
        plan=made.model_dump(mode="json"),
        policy="training",
        variants=made.variants(),
        workload=workload,
        command="trainperf measure",
        created_at=0.0,
        toolkit_version="0",
    )


def repeats(asked: Study, **environment: Any) -> list[Repeat]:
    return [
        Repeat(
            study_id="s",
            variant=variant.name,
            index=0,
            seed=0,
            status=Status.OK,
            started_at=0.0,
            ended_at=1.0,
            peak_mem_mb=MEASURED_MB,
            peak_mem_source="accelerator_allocator",
            environment=environment,
        )
        for variant in asked.variants
    ]


class Recording:
    def __init__(self, asked: Study, measured: list[Repeat]) -> None:
        self.study, self.repeats, self.recorded = asked, measured, []

    def record_prediction(self, prediction: Any) -> None:
        self.recorded.append(prediction)


@pytest.fixture(scope="module")
def launcher() -> Any:
    with Launcher() as made:
        yield made


def test_each_variant_has_its_prediction_and_the_error_of_it(launcher: Launcher) -> None:
    asked = study(candidates=("bf16", "compile"))
    recording = Recording(asked, repeats(asked, capability=[8, 0], cublas_workspace_bytes=2**20))
    predict_measured(recording, launcher, lambda text: None)  # type: ignore[arg-type]
    baseline, bf16, compiled = recording.recorded
    for found in (baseline, bf16):
        assert found.reason is None
        wrong = 100 * (found.peak_mem_mb - MEASURED_MB) / MEASURED_MB
        assert found.error_pct == pytest.approx(wrong)
        assert found.peak_phase in ("forward", "backward", "optimizer")
    assert compiled.peak_mem_mb is None
    assert "compile" in compiled.reason


def test_nothing_is_predicted_where_the_tensors_were_counted(launcher: Launcher) -> None:
    asked = study("cpu", probe=True)
    recording = Recording(asked, repeats(asked))
    predict_measured(recording, launcher, lambda text: None)  # type: ignore[arg-type]
    assert recording.recorded == []


@pytest.mark.parametrize(
    ("device", "environment", "reason"),
    [("mps", {}, "device 'mps'"), ("cuda", {"torch_hip": "6.4"}, "ROCm")],
)
def test_a_device_without_rules_is_no_fault_of_the_study(
    launcher: Launcher, device: str, environment: dict[str, Any], reason: str
) -> None:
    asked = study(device, probe=True)
    (found,) = predictions(asked, repeats(asked, **environment), launcher)
    assert found.peak_mem_mb is None
    assert reason in str(found.reason)


def test_a_task_that_ends_its_process_is_no_fault_of_the_study(
    launcher: Launcher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ending_task.py").write_text("import os\ndef make(config):\n    os._exit(3)\n")
    monkeypatch.chdir(tmp_path)
    with Launcher() as here:
        asked = study(task="ending_task:make", probe=True)
        (found,) = predictions(asked, repeats(asked), here)
    assert "exit code 3" in str(found.reason)


def test_a_device_that_tells_its_workspace_is_believed() -> None:
    told = measured_target("cuda:0", {"capability": [12, 0], "cublas_workspace_bytes": 4096})
    assert told.workspace == 4096
    assert not any("cuBLAS workspaces" in text for text in told.not_modelled)
    assert measured_target("cuda", {"capability": [9, 0]}).workspace == 32 * 2**20
