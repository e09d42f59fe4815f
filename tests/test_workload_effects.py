from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from trainperf_mlflow.results.record import Setting
from trainperf_mlflow.workloads.causal_lm import CausalLM
from trainperf_mlflow.workloads.config import CausalLMConfig
from trainperf_mlflow.workloads.effects import PROOFS, Observed, matmul_error, verify_effects
from trainperf_mlflow.workloads.task import CallableTask, Task, build_task, run_step

CPU = torch.device("cpu")


class Watch(TorchDispatchMode):
    """Counts matmul work per dtype and the names of the operators."""

    def __init__(self) -> None:
        super().__init__()
        self.work: Counter[str] = Counter()
        self.ops: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func._schema.name
        self.ops.add(name)
        if name in ("aten::mm", "aten::addmm", "aten::bmm"):
            a, b = [arg for arg in args if isinstance(arg, Tensor)][-2:]
            self.work[str(a.dtype).removeprefix("torch.")] += a.numel() * b.shape[-1]
        return func(*args, **(kwargs or {}))


def observe(task: Task) -> Observed:
    """One step under a watch, with the recomputed calls of a model's layers."""
    recomputed = 0

    def count(module: nn.Module, inputs: Any) -> None:
        nonlocal recomputed
        recomputed += torch._C._current_graph_task_id() != -1

    hooks = [
        module.register_forward_pre_hook(count)
        for root in task.modules()
        for module in root.modules()
    ]
    with Watch() as watch:
        run_step(task)
    for hook in hooks:
        hook.remove()
    return Observed(
        matmul_flops=dict(watch.work), recomputed_modules=recomputed, ops=frozenset(watch.ops)
    )


def build(**settings: Any) -> CausalLM:
    config = {"batch_size": 2, "seq_len": 16, **settings}
    task = build_task("causal_lm", config, 0, CPU, 0)
    assert isinstance(task, CausalLM)
    return task


def verified(task: Task, changed: dict[str, Any], observed: Observed) -> dict[str, bool | None]:
    effects = verify_effects(task, changed, observed)
    assert all(effect.detail for effect in effects)
    return {effect.key: effect.verified for effect in effects}


@pytest.mark.parametrize(
    "changed",
    [
        {"precision": "bf16"},
        {"precision": "fp16"},
        {"precision": "amp"},
        {"checkpoint": True},
        {"fused": True},
        {"optimizer": "adam"},
        {"learning_rate": 0.5},
        {"optimizer": "sgd", "momentum": 0.9},
        {"batch_size": 3},
        {"seq_len": 8},
        {"grad_accumulation": 2},
        {"attention": "eager"},
        {"data": "stdlib"},
        {"model_source": "config"},
    ],
)
def test_a_change_in_effect_is_verified_and_its_absence_is_noticed(
    changed: dict[str, Any],
) -> None:
    live = build(**changed)
    assert verified(live, changed, observe(live)) == dict.fromkeys(changed, True)
    if "model_source" not in changed:  # tiny has one source only
        base = build()
        if "precision" in changed:
            # What a wrapper that drops autocast would leave behind.
            live.dtype, base = None, live
            base.dtype = torch.bfloat16 if changed["precision"] != "fp16" else torch.float16
            unchanged = Observed(matmul_flops={"float32": 1e6})
            assert verified(base, changed, unchanged) == {"precision": False}
            return
        assert False in verified(base, changed, observe(base)).values()


def test_turning_a_strategy_off_is_a_change_too() -> None:
    task = build()
    changed = {"precision": "fp32", "checkpoint": False, "attention": "sdpa", "fused": False}
    assert verified(task, changed, observe(task)) == dict.fromkeys(changed, True)
    kept = build(checkpoint=True)
    assert verified(kept, {"checkpoint": False}, observe(kept)) == {"checkpoint": False}


def test_the_detail_says_the_share_of_the_matmuls() -> None:
    task = build(precision="bf16")
    (effect,) = verify_effects(
        task, {"precision": "bf16"}, Observed(matmul_flops={"bfloat16": 3.0, "torch.float32": 1.0})
    )
    assert effect.verified
    assert effect.detail == "75.0% of the matmul FLOPs ran in bfloat16"
    (effect,) = verify_effects(task, {"precision": "bf16"}, Observed())
    assert effect.verified is None


def test_offload_and_compile_are_read_from_what_was_observed() -> None:
    task = build()
    changed = {"offload": True, "compile": "default"}
    seen = Observed(device_to_host_bytes=2**20, compiled_regions=2)
    assert verified(task, changed, seen) == {"offload": True, "compile": True}
    unseen = Observed(compiled_regions=0)
    assert verified(task, changed, unseen) == {"offload": False, "compile": False}
    assert verified(task, {"compile": "default"}, Observed()) == {"compile": None}


def test_a_matmul_precision_without_effect_on_this_device_is_shown_as_such() -> None:
    before = torch.get_float32_matmul_precision()
    try:
        task = build(matmul_precision="high")
        reduced = matmul_error(CPU) > 1e-5
        assert verified(task, {"matmul_precision": "high"}, observe(task)) == {
            "matmul_precision": reduced
        }
        all_bf16 = Observed(matmul_flops={"bfloat16": 1.0})
        (effect,) = verify_effects(task, {"matmul_precision": "high"}, all_bf16)
        assert effect.verified is False
        assert "nothing to act on" in effect.detail
    finally:
        torch.set_float32_matmul_precision(before)


def test_every_key_of_the_built_in_task_has_a_proof() -> None:
    assert set(PROOFS) == set(CausalLMConfig.model_fields)


def test_workers_are_counted_on_the_live_loader() -> None:
    task = build(data="stdlib", num_workers=1)
    try:
        assert verified(task, {"num_workers": 1}, Observed()) == {"num_workers": True}
        assert verified(task, {"num_workers": 2}, Observed()) == {"num_workers": False}
    finally:
        task.close()


def custom(**settings: Any) -> CallableTask:
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 1))

    def step() -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=bool(settings.get("autocast"))):
            loss = model(torch.ones(4, 8)).sum()
        loss.backward()
        return loss

    return CallableTask(step)


def test_a_step_of_ones_own_is_believed_when_it_shows_bf16() -> None:
    changed = {"precision": "bf16"}
    live, ignored = custom(autocast=True), custom()
    assert verified(live, changed, observe(live)) == {"precision": True}
    assert verified(ignored, changed, observe(ignored)) == {"precision": False}
    in_part = Observed({"float32": 3.0, "bfloat16": 1.0})
    assert verified(ignored, changed, in_part) == {"precision": None}


def test_absence_disproves_nothing_in_a_task_of_ones_own() -> None:
    task = custom()
    changed = {"checkpoint": True, "offload": True, "compile": True, "fused": True, "width": 3}
    assert verified(task, changed, observe(task)) == dict.fromkeys(changed, None)
    (effect,) = verify_effects(task, {"width": 3}, Observed())
    assert effect.detail == "this task gives no proof"
    seen = Observed(
        recomputed_modules=1,
        device_to_host_bytes=1,
        compiled_regions=1,
        ops=frozenset({"aten._fused_adamw_.default"}),
    )
    assert verified(task, changed, seen) == {**dict.fromkeys(changed, True), "width": None}


def test_a_task_may_prove_its_own_settings() -> None:
    class Own(CallableTask):
        def effects(self, changed: Mapping[str, Setting], observed: Observed) -> Mapping[str, bool]:
            return {"width": changed["width"] == 3}

    task = Own(lambda: None)
    assert verified(task, {"width": 3, "depth": 1}, Observed()) == {"width": True, "depth": None}
    assert verified(task, {"width": 4}, Observed()) == {"width": False}
