"""Phases add up to the step, categories to the peak, and both say what checkpointing does."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from trainperf_mlflow.attribution import PhaseMeasurement
from trainperf_mlflow.errors import UnsupportedError
from trainperf_mlflow.measurement import phases as phases_module
from trainperf_mlflow.measurement.audit import audit
from trainperf_mlflow.measurement.memory import MIB, AllocatorPeak
from trainperf_mlflow.measurement.phases import measure_phases
from trainperf_mlflow.plan import Candidate, Plan
from trainperf_mlflow.workloads.marked import MarkedTask
from trainperf_mlflow.workloads.task import CallableTask, Task, build_task, run_step

CPU = torch.device("cpu")
STATE_MIB = 4


class Known(Task):
    """All sizes are known: weight, batch and momentum 4 MiB each, and so is each result."""

    def __init__(self, microsteps: int = 1) -> None:
        self.microsteps = microsteps
        self.weight = nn.Parameter(torch.zeros(STATE_MIB * MIB // 4))
        self.batch = torch.ones(STATE_MIB * MIB // 4)
        self.optimizer = torch.optim.SGD([self.weight], lr=0.1, momentum=0.9, foreach=False)

    def zero_grad(self) -> None:
        self.optimizer.zero_grad()

    def next_batch(self) -> Tensor:
        return self.batch

    def forward(self, batch: Tensor) -> Tensor:
        return (self.weight * batch).exp().sum()

    def optimizer_step(self) -> None:
        self.optimizer.step()

    def state_tensors(self) -> Iterable[Tensor]:
        # Neither optimizer nor momentum is named: they are met when they step.
        return (self.weight, self.batch)


@pytest.fixture(scope="module")
def measured() -> dict[str, PhaseMeasurement]:
    torch.set_num_threads(1)
    plan = Plan(
        candidates=(Candidate(name="checkpoint"), Candidate(name="bf16")),
        set={"batch_size": 2, "seq_len": 64},
    )
    found = {}
    for variant in plan.variants():
        task = build_task("causal_lm", variant.config, 1, CPU, 1)
        run_step(task)
        found[variant.name] = measure_phases(task, 2, CPU, compiled=False)
        whole = audit(task, CPU, compiled=False).peak_mem_mb
        # The highest phase is the step's peak, as every study has it.
        assert max(found[variant.name].peak_mem_mb.values()) == pytest.approx(whole)
    return found


def test_the_phases_of_each_step_add_up_to_the_step(measured: dict[str, PhaseMeasurement]) -> None:
    for found in measured.values():
        assert len(found.step_ms) == 2
        for step, total in enumerate(found.step_ms):
            parts = {phase: ms[step] for phase, ms in found.phase_ms.items()}
            assert set(parts) == {"data", "forward", "backward", "optimizer", "other"}
            assert min(parts.values()) >= 0
            assert sum(parts.values()) == pytest.approx(total)


def test_the_categories_add_up_to_the_peak_of_each_phase(
    measured: dict[str, PhaseMeasurement],
) -> None:
    for found in measured.values():
        assert found.peak_mem_source == "tensor_tracker"
        assert found.memory_mb.keys() == found.peak_mem_mb.keys()
        for phase, memory in found.memory_mb.items():
            assert sum(memory.values()) == pytest.approx(found.peak_mem_mb[phase], abs=1e-9)
            assert min(memory.values()) > 0


def test_checkpointing_lowers_activations_and_repeats_the_layers_forward_in_backward(
    measured: dict[str, PhaseMeasurement],
) -> None:
    plain, checkpointed = measured["baseline"], measured["checkpoint"]
    before, after = (m.memory_mb["forward"]["activations"] for m in (plain, checkpointed))
    assert after < before / 3
    assert plain.recomputed_modules == 0
    assert checkpointed.recomputed_modules
    assert checkpointed.matmul_flops["forward"] == plain.matmul_flops["forward"]
    repeated = checkpointed.matmul_flops["backward"] - plain.matmul_flops["backward"]
    # The layers are recomputed, the projection to the vocabulary is not.
    assert 0.5 * plain.matmul_flops["forward"] < repeated < plain.matmul_flops["forward"]
    # What lives all the time is not touched.
    for category in ("parameters", "optimizer_state"):
        sizes = {m.memory_mb["optimizer"][category] for m in (plain, checkpointed)}
        assert len(sizes) == 1


def test_adam_keeps_twice_the_weights_and_gradients_as_much_as_them(
    measured: dict[str, PhaseMeasurement],
) -> None:
    memory = measured["baseline"].memory_mb["optimizer"]
    assert memory["optimizer_state"] == pytest.approx(2 * memory["parameters"], rel=0.001)
    assert memory["gradients"] == pytest.approx(memory["parameters"], rel=0.001)
    # Nothing but the loss outlives the step's own passes.
    assert memory.get("activations", 0.0) < 0.001


def test_every_category_is_what_the_sizes_say() -> None:
    task = Known()
    run_step(task)
    found = measure_phases(task, 1, CPU, compiled=False)
    expected = {
        # The product dies with its pass, the exponential is saved for backward.
        "forward": {"activations": 4, "temporaries": 4},
        # exp * grad; when that becomes the gradient, the saved exponential is gone.
        "backward": {"activations": 4, "temporaries": 4},
        "optimizer": {"gradients": 4},
    }
    for phase, parts in expected.items():
        wanted = {"parameters": 4, "optimizer_state": 4, "other": 4, **parts}
        large = {name: mb for name, mb in found.memory_mb[phase].items() if mb > 0.01}
        assert large == pytest.approx(wanted, abs=0.01), phase


def test_memory_over_the_step_is_told_by_few_samples_with_every_peak(
    measured: dict[str, PhaseMeasurement],
) -> None:
    for found in measured.values():
        samples = found.memory_over_step
        assert 100 < len(samples) <= 400
        times = [sample.at_ms for sample in samples]
        assert times == sorted(times)
        assert times[0] == 0
        for phase, peak in found.peak_mem_mb.items():
            of_phase = [s.memory_mb for s in samples if s.phase == phase]
            highest = max(sum(memory.values()) for memory in of_phase)
            assert highest == pytest.approx(peak, abs=0.005)
            assert found.memory_mb[phase] in [pytest.approx(m, abs=0.001) for m in of_phase]


def test_micro_batches_add_their_time_and_share_a_peak() -> None:
    one, three = (measure_phases(Known(n), 1, CPU, compiled=False) for n in (1, 3))
    # From the second micro-batch on, the gradient of those before it is there as well.
    assert three.memory_mb["forward"]["gradients"] == 4
    assert "gradients" not in one.memory_mb["forward"]
    assert three.peak_mem_mb["forward"] == pytest.approx(one.peak_mem_mb["forward"] + 4, abs=0.01)


def test_marked_steps_have_the_order_of_plain_ones() -> None:
    from contextlib import contextmanager

    calls: list[str] = []

    class Recorded(Known):
        def zero_grad(self) -> None:
            calls.append("zero")
            super().zero_grad()

        def forward(self, batch: Tensor) -> Tensor:
            calls.append("run forward")
            return super().forward(batch)

    @contextmanager
    def mark(phase: str) -> Any:
        calls.append(f"enter {phase}")
        yield
        calls.append(f"leave {phase}")

    task = Recorded(microsteps=2)
    loss = run_step(MarkedTask(task, mark))
    assert isinstance(loss, Tensor)
    micro = ["data", "forward", "run forward", "backward"]
    assert [call.removeprefix("enter ") for call in calls if not call.startswith("leave")] == [
        *("zero", *micro, *micro, "optimizer")
    ]
    assert calls.count("leave backward") == 2


def test_a_plain_callable_has_no_phases_and_is_told_what_to_return() -> None:
    with pytest.raises(UnsupportedError, match=r"plain callable.*return a trainperf_mlflow\.Task"):
        measure_phases(CallableTask(lambda: 1.0), 1, CPU, compiled=False)


def test_compiled_steps_are_timed_but_not_watched() -> None:
    found = measure_phases(Known(), 1, CPU, compiled=True)
    assert found.phase_ms["forward"]
    assert found.peak_mem_mb == {}
    assert "compiled" in found.notes[0]


def test_on_an_accelerator_boundaries_synchronise_and_each_phase_has_its_own_peak(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The device is the CPU here, its allocator is scripted: each boundary shows another peak."""
    events: list[str] = []
    readings = iter(range(100, 1000))

    def peak(device: torch.device) -> AllocatorPeak:
        return AllocatorPeak(float(next(readings)), 2000.0, 0)

    monkeypatch.setattr(phases_module, "synchronize", lambda device: events.append("sync"))
    monkeypatch.setattr(phases_module, "allocator_peak", peak)
    monkeypatch.setattr(phases_module, "reset_allocator_peak", lambda device: events.append("0"))
    found = measure_phases(Known(), 1, CPU, compiled=False)
    # Two boundaries a phase and two a step; the peak is reset after each was read.
    assert events.count("sync") == events.count("0") == 8 + 10
    assert found.peak_mem_source == "accelerator_allocator"
    assert found.peak_reserved_mb["backward"] == 2000.0
    assert found.peak_mem_mb["forward"] < found.peak_mem_mb["backward"]
    for phase, memory in found.memory_mb.items():
        # What the allocator holds beyond the tensors is shown as such.
        assert sum(memory.values()) == pytest.approx(found.peak_mem_mb[phase])
        assert memory["untracked"] > 0
