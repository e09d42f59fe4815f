"""The tensor peak on a CPU is exact, and the observed step sees what really runs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
import torch
from torch import nn

from trainperf_mlflow.measurement.audit import audit
from trainperf_mlflow.measurement.memory import (
    MIB,
    AllocatorPeak,
    TensorTracker,
    allocator_peak,
    compiled_step,
    reset_allocator_peak,
    reset_rss_peak,
    resident_tensors,
    rss_peak_mb,
)
from trainperf_mlflow.plan import Candidate, Plan
from trainperf_mlflow.workloads.effects import verify_effects
from trainperf_mlflow.workloads.task import CallableTask, Task, build_task, run_step

CPU = torch.device("cpu")
FLOATS_PER_MIB = MIB // 4


def floats(mib: int) -> torch.Tensor:
    return torch.zeros(mib * FLOATS_PER_MIB)


def test_the_peak_is_what_lives_at_once_not_what_was_ever_made() -> None:
    tracker = TensorTracker()
    with tracker:
        a = floats(4)
        b = a + 1  # 8 alive
        del a
        c = b * 2  # 8 alive
        del b, c
        floats(2)
    assert tracker.peak == 8 * MIB
    assert tracker.current == 0


def test_views_and_in_place_results_are_no_new_memory() -> None:
    tracker = TensorTracker()
    with tracker:
        a = floats(4)
        b = a[10:]
        c = a.view(2, -1).t()
        a.add_(1)
        a.mul_(b.sum())
        assert c.numel()
    assert tracker.peak < 4 * MIB + 1024


def test_what_was_there_before_counts_from_its_first_use() -> None:
    weight = floats(3)
    tracker = TensorTracker()
    with tracker:
        weight * 2
    assert tracker.peak == 6 * MIB
    told = TensorTracker()
    told.track([weight])
    assert told.peak == 3 * MIB


def model_tasks() -> dict[str, Task]:
    plan = Plan(
        candidates=(Candidate(name="bf16"), Candidate(name="checkpoint")),
        set={"batch_size": 2, "seq_len": 64},
    )
    tasks = {}
    for variant in plan.variants():
        task = build_task("causal_lm", variant.config, 1, CPU, 1)
        for _ in range(2):  # the optimizer's state and the first gradients
            run_step(task)
        tasks[variant.name] = task
    return tasks


@pytest.fixture(scope="module")
def tasks() -> dict[str, Task]:
    torch.set_num_threads(1)
    return model_tasks()


@pytest.mark.parametrize("name", ["baseline", "bf16", "checkpoint"])
def test_two_independent_ways_to_count_agree_on_the_peak(tasks: dict[str, Task], name: str) -> None:
    tracker = TensorTracker()
    tracker.track(resident_tensors(tasks[name]))
    with tracker:
        run_step(tasks[name])
    profiled, regions = compiled_step(tasks[name])
    assert profiled is not None
    # One by tensors' lives, one by the allocator's events, which also see an operation's buffers.
    assert tracker.peak / MIB == pytest.approx(profiled, rel=0.005)
    assert regions == 0


def test_checkpointing_lowers_the_peak_and_recomputes(tasks: dict[str, Task]) -> None:
    plain, checkpointed = (audit(tasks[n], CPU, False) for n in ("baseline", "checkpoint"))
    assert plain.peak_mem_mb is not None
    assert checkpointed.peak_mem_mb is not None
    assert checkpointed.peak_mem_mb < plain.peak_mem_mb
    assert plain.observed.recomputed_modules == 0
    assert checkpointed.observed.recomputed_modules > 0
    # The recomputed products are seen, too.
    assert sum(checkpointed.observed.matmul_flops.values()) > 1.1 * sum(
        plain.observed.matmul_flops.values()
    )


def test_the_dtype_of_the_matrix_products_is_seen_as_it_runs(tasks: dict[str, Task]) -> None:
    plain, bf16 = (audit(tasks[n], CPU, False).observed for n in ("baseline", "bf16"))
    assert set(plain.matmul_flops) == {"float32"}
    assert bf16.share(torch.bfloat16) == 1.0


def test_an_effect_is_verified_where_it_happens_and_refuted_where_it_does_not(
    tasks: dict[str, Task],
) -> None:
    seen = audit(tasks["checkpoint"], CPU, False).observed
    assert verify_effects(tasks["checkpoint"], {"checkpoint": True}, seen)[0].verified is True
    # The baseline's task under the candidate's flag: set, but dropped on the way.
    seen = audit(tasks["baseline"], CPU, False).observed
    for changed in ({"checkpoint": True}, {"fused": True}, {"batch_size": 99}):
        effect = verify_effects(tasks["baseline"], changed, seen)[0]
        assert effect.verified is False, effect
        assert effect.detail


def test_the_observed_step_of_a_plain_callable_counts_all_its_tensors() -> None:
    model = nn.Linear(256, 256, bias=False)
    optimizer = torch.optim.AdamW(model.parameters())
    batch = torch.randn(8, 256)

    def step() -> Any:
        optimizer.zero_grad()
        loss = model(batch).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    step()
    peak = audit(CallableTask(step), CPU, False).peak_mem_mb
    assert peak is not None
    # Weight, gradient and two moments live together at the optimizer's step.
    assert peak * MIB >= 4 * 256 * 256 * 4


def test_a_step_without_tensors_has_no_peak() -> None:
    assert audit(CallableTask(lambda: 1.0), CPU, False).peak_mem_mb is None


class Kept(Task):
    """Gradients that are zeroed in place live through: they are part of every step's peak."""

    def __init__(self, set_to_none: bool) -> None:
        self.model = nn.Linear(512, 512, bias=False)
        self.set_to_none = set_to_none

    def zero_grad(self) -> None:
        self.model.zero_grad(set_to_none=self.set_to_none)

    def next_batch(self) -> torch.Tensor:
        return torch.ones(4, 512)

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        return self.model(batch).sum()  # type: ignore[no-any-return]

    def optimizer_step(self) -> None:
        pass

    def state_tensors(self) -> Iterable[torch.Tensor]:
        return self.model.parameters()


@pytest.mark.parametrize("set_to_none", [True, False])
def test_gradients_of_the_step_before_are_counted_as_they_live(set_to_none: bool) -> None:
    task = Kept(set_to_none)
    run_step(task)
    tracked = audit(task, CPU, False).peak_mem_mb
    profiled, _ = compiled_step(task)
    assert profiled is not None
    assert tracked == pytest.approx(profiled, rel=0.01)


def test_a_compiled_step_is_seen_to_be_compiled_and_its_peak_is_its_own() -> None:
    model = nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 64))
    compiled = torch.compile(model, backend="aot_eager")

    class Compiled(Kept):
        def forward(self, batch: torch.Tensor) -> torch.Tensor:
            return compiled(batch).sum()  # type: ignore[no-any-return]

        def next_batch(self) -> torch.Tensor:
            return torch.ones(4, 64)

        def state_tensors(self) -> Iterable[torch.Tensor]:
            return model.parameters()

    task = Compiled(True)
    run_step(task)
    seen = audit(task, CPU, True)
    assert seen.observed.compiled_regions is not None
    assert seen.observed.compiled_regions > 0
    assert seen.peak_mem_mb is not None
    # The same task, silently eager.
    assert audit(Kept(True), CPU, True).observed.compiled_regions == 0


def test_a_cpu_has_no_allocator_peak_but_a_resident_one() -> None:
    assert allocator_peak(CPU) is None
    reset_rss_peak()
    before = rss_peak_mb()
    big = torch.ones(64 * FLOATS_PER_MIB)
    after = rss_peak_mb()
    assert before is not None
    assert after is not None
    assert after - before > 60
    assert big.sum() > 0


def test_peaks_and_retries_are_those_since_the_last_reset(monkeypatch: pytest.MonkeyPatch) -> None:
    """The counters are scripted: warmup retried three times, the measured part once."""
    counted = {"retries": 3, "peak": 900 * MIB}
    memory = torch.accelerator.memory
    for name, made in {
        "memory_stats": lambda device: {"num_alloc_retries": counted["retries"]},
        "max_memory_allocated": lambda device: counted["peak"],
        "max_memory_reserved": lambda device: counted["peak"],
        "reset_peak_memory_stats": lambda device: counted.update(peak=0),
        "reset_accumulated_memory_stats": lambda device: counted.update(retries=0),
    }.items():
        monkeypatch.setattr(memory, name, made)
    reset_allocator_peak(torch.device("cuda"))
    counted["retries"] += 1
    counted["peak"] = 5 * MIB
    assert allocator_peak(torch.device("cuda")) == AllocatorPeak(5.0, 5.0, 1)
