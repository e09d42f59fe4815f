from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from trainperf_mlflow.errors import MeasurementError, PlanError
from trainperf_mlflow.results.study import Variant, Workload
from trainperf_mlflow.workloads import support
from trainperf_mlflow.workloads.config import CausalLMConfig
from trainperf_mlflow.workloads.describe import describe
from trainperf_mlflow.workloads.models import build_model, resolve_model
from trainperf_mlflow.workloads.support import unsupported_reason

CPU = torch.device("cpu")


def variants(base: dict[str, Any], **candidates: dict[str, Any]) -> tuple[Variant, ...]:
    config = CausalLMConfig(**{"seq_len": 16, **base}).model_dump()
    return (
        Variant(name="baseline", role="baseline", config=config),
        *(
            Variant(name=name, role="candidate", config={**config, **changed}, changed=changed)
            for name, changed in candidates.items()
        ),
    )


def described(
    base: dict[str, Any] | None = None, *, seed: int = 42, **candidates: dict[str, Any]
) -> Workload:
    planned = variants(base or {}, **candidates)
    return describe("causal_lm", planned, seed=seed, device="cpu", name="quick")


def test_the_digest_is_the_same_whatever_the_changed_variable_is_set_to() -> None:
    one = described(c={"precision": "bf16"})
    two = described({"precision": "bf16"}, c={"precision": "fp32"})
    assert one.digest == two.digest
    assert "precision" not in one.identity["settings"]  # type: ignore[operator]


@pytest.mark.parametrize(
    "other",
    [
        {"batch_size": 3},
        {"learning_rate": 0.1},
        {"optimizer": "sgd"},
        {"data": "stdlib"},
        {"attention": "eager"},
    ],
)
def test_the_digest_follows_everything_that_must_be_equal(other: dict[str, Any]) -> None:
    change = {"checkpoint": True}
    assert described(c=change).digest != described(other, c=change).digest


def test_the_digest_follows_the_seed_and_the_content_of_the_data(tmp_path: Path) -> None:
    assert described(seed=1).digest != described(seed=2).digest
    file = tmp_path / "a.txt"
    file.write_text("a" * 1000)
    before = described({"data": str(file)})
    moved = file.rename(tmp_path / "b.txt")
    assert described({"data": str(moved)}).digest == before.digest
    moved.write_text("b" * 1000)
    assert described({"data": str(moved)}).digest != before.digest


def test_a_changed_batch_leaves_the_random_content_out_but_keeps_a_text() -> None:
    def data_of(workload: Workload) -> Any:
        return workload.identity["data"]

    change = {"batch_size": 4}
    assert data_of(described(c=change)) == {"kind": "random"}
    assert "sha256" in data_of(described(c={"checkpoint": True}))
    assert "sha256" in data_of(described({"data": "stdlib"}, c=change))
    assert "data" not in described(c={"data": "stdlib"}).identity
    assert described(c=change).digest == described({"batch_size": 4}, c={"batch_size": 2}).digest


def test_a_changed_model_leaves_architecture_and_weights_out() -> None:
    workload = described(c={"model": "qwen25_small", "model_source": "config"})
    assert "model" not in workload.identity
    assert "weights" not in workload.identity
    assert workload.facts["parameters"] == described().facts["parameters"]


def test_the_facts_are_there_for_people() -> None:
    workload = described({"data": "stdlib"})
    assert workload.facts["weights"] == "random"
    assert workload.facts["model_source"] == "config"
    built = build_model(resolve_model("tiny", "config"), 0, "sdpa")
    assert workload.facts["parameters"] == sum(p.numel() for p in built.parameters())
    assert "bytes of the Python standard library" in workload.source
    assert described().source == "one fixed batch of 2 x 16 random tokens"
    assert Workload.from_json(workload.to_json()) == workload


def test_what_this_device_cannot_do_is_said_per_variant() -> None:
    workload = described(
        bf16={"precision": "bf16"},
        offload={"offload": True},
        hybrid={"checkpoint": True, "offload": True},
        checkpoint={"checkpoint": True},
    )
    assert set(workload.unsupported) == {"offload", "hybrid"}
    assert "to the host" in workload.unsupported["hybrid"]


def test_tf32_is_unsupported_where_it_changes_no_product() -> None:
    before = torch.get_float32_matmul_precision()
    reason = unsupported_reason(CausalLMConfig(matmul_precision="high"), CPU)
    if support.matmul_error(CPU) < 1e-5 and reason is not None:
        assert "matmul_precision=high changes nothing on cpu" in reason
    assert torch.get_float32_matmul_precision() == before


def test_compiling_on_the_cpu_needs_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    config = CausalLMConfig(compile="default")
    monkeypatch.setattr(support.shutil, "which", lambda name: None)
    assert "C++ compiler" in (unsupported_reason(config, CPU) or "")
    monkeypatch.setattr(support.shutil, "which", lambda name: f"/bin/{name}")
    monkeypatch.setattr(support.sysconfig, "get_path", lambda name: "/nowhere")
    assert "Python.h" in (unsupported_reason(config, CPU) or "")


def test_an_optimizer_without_a_fused_kernel_is_unsupported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*args: Any) -> None:
        raise RuntimeError("`fused=True` requires a device with a kernel")

    config = CausalLMConfig(fused=True)
    assert unsupported_reason(config, CPU) is None
    monkeypatch.setattr(support, "make_optimizer", refuse)
    assert "adamw has no fused kernel on cpu" in (unsupported_reason(config, CPU) or "")


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"compile": "reduce-overheads"}, "unknown compile mode 'reduce-overheads'; known: off"),
        ({"seq_len": 5000}, "seq_len 5000 is more than the 4096 positions"),
        ({"data": "missing.txt"}, "missing.txt.*cannot be read"),
        ({"model": "tyni"}, "unknown model 'tyni' .did you mean 'tiny'"),
    ],
)
def test_a_mistake_in_a_candidate_is_found_before_anything_is_measured(
    changed: dict[str, Any], message: str
) -> None:
    with pytest.raises(PlanError, match=message):
        described(c=changed)


def test_a_batch_that_a_text_cannot_fill_is_found_too(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_text("a" * 200)
    with pytest.raises(PlanError, match="one batch of 6 x 16 and 8 validation rows need 224"):
        described({"data": str(file)}, c={"batch_size": 6})


def test_a_device_that_is_not_here_ends_it() -> None:
    with pytest.raises(MeasurementError, match="'xpu' is not available"):
        describe("causal_lm", variants({}), seed=0, device="xpu", name="quick")


def test_a_task_of_ones_own_is_described_by_its_path_and_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "described_task.py").write_text("def factory(config): ...\n")
    planned = (
        Variant(name="baseline", role="baseline", config={"width": 1, "depth": 2}),
        Variant(
            name="wide", role="candidate", config={"width": 9, "depth": 2}, changed={"width": 9}
        ),
    )
    workload = describe("described_task:factory", planned, seed=3, device="cpu", name="mine")
    assert workload.identity["task"] == "described_task:factory"
    assert workload.identity["settings"] == {"depth": 2}
    assert workload.identity["seed"] == 3
    with pytest.raises(PlanError, match="has no 'other'; it defines factory"):
        describe("described_task:other", planned, seed=3, device="cpu", name="mine")
