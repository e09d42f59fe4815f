"""Time and memory of a step's phases, in steps of their own that feed no comparison.

Timed steps first: at each boundary the device is synchronised, the clock is read
and, on an accelerator, the allocator's peak is taken and reset. Then one untimed
step under the tracker, which knows every tensor: on a CPU it is the only count of
memory there is, and everywhere the only one by category.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch.nn.modules.module import register_module_forward_pre_hook

from trainperf_mlflow.attribution import PHASES, PhaseMeasurement
from trainperf_mlflow.measurement.audit import Observer
from trainperf_mlflow.measurement.categories import Belongings, CategoryTracker
from trainperf_mlflow.measurement.memory import (
    MIB,
    AllocatorPeak,
    allocator_peak,
    reset_allocator_peak,
)
from trainperf_mlflow.measurement.timing import NS_PER_MS, no_gc, read_losses, synchronize
from trainperf_mlflow.measurement.work import PhaseWork
from trainperf_mlflow.workloads.marked import MarkedTask
from trainperf_mlflow.workloads.task import Task, run_step

COMPILED_NOTE = (
    "memory by category, FLOPs and recomputed modules are unknown: compiled code would run "
    "eagerly while it is watched"
)


def measure_phases(
    task: Task, steps: int, device: torch.device, compiled: bool
) -> PhaseMeasurement:
    """Time ``steps`` marked steps, then watch one.

    Raises:
        UnsupportedError: the task is a plain callable, so its phases are unknown.
    """
    boundaries = _Boundaries(device)
    marked = MarkedTask(task, boundaries.mark)
    belongings = Belongings(task)
    with belongings.meet_optimizers():
        run_step(marked)  # the first marked step may compile, and it meets the optimizers
    boundaries.forget()
    losses = []
    with no_gc():
        for _ in range(steps):
            with boundaries.step():
                losses.append(run_step(marked))
    loss = read_losses(losses)[-1]
    measured = PhaseMeasurement(
        step_ms=tuple(boundaries.step_ms),
        phase_ms={phase: tuple(values) for phase, values in boundaries.phase_ms.items()},
        loss=loss,
    )
    if boundaries.peaks:
        measured = measured.model_copy(
            update={
                "peak_mem_source": "accelerator_allocator",
                "peak_mem_mb": {p: peak.allocated_mb for p, peak in boundaries.peaks.items()},
                "peak_reserved_mb": {p: peak.reserved_mb for p, peak in boundaries.peaks.items()},
            }
        )
    if compiled:
        return measured.model_copy(update={"notes": (COMPILED_NOTE,)})
    return _watched(measured, task, belongings, device)


def _watched(
    measured: PhaseMeasurement, task: Task, belongings: Belongings, device: torch.device
) -> PhaseMeasurement:
    """The measurement with what one step under the tracker shows."""
    tracker, observer = CategoryTracker(device.type), Observer(device.type)
    work = PhaseWork(observer)

    @contextmanager
    def mark(phase: str) -> Iterator[None]:
        tracker.begin(phase)
        try:
            with work.phase(phase):
                yield
        finally:
            if phase == "backward":
                belongings.label_gradients(tracker)
            tracker.begin("other")

    belongings.label(tracker)
    tracker.begin("other")
    hook = register_module_forward_pre_hook(observer.count_recompute)
    try:
        with tracker, observer:
            run_step(MarkedTask(task, mark))
    finally:
        hook.remove()
    peaks = {phase: size / MIB for phase, size in tracker.peaks().items()}
    memory = {
        phase: {category: size / MIB for category, size in tracker.composition(phase).items()}
        for phase in peaks
    }
    found = {
        **work.found(),
        "recomputed_modules": observer.recomputed_modules,
        "memory_over_step": tracker.over_time(),
    }
    if measured.peak_mem_source is None:
        found |= {"peak_mem_mb": peaks, "peak_mem_source": "tensor_tracker"}
    else:
        for phase, parts in memory.items():
            parts["untracked"] = measured.peak_mem_mb.get(phase, peaks[phase]) - peaks[phase]
    return measured.model_copy(update={**found, "memory_mb": memory})


class _Boundaries:
    """Reads clock and allocator where phases begin and end."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self.forget()

    def forget(self) -> None:
        self.step_ms: list[float] = []
        self.phase_ms: dict[str, list[float]] = {phase: [] for phase in PHASES}
        self.peaks: dict[str, AllocatorPeak] = {}
        self._ns = dict.fromkeys(PHASES, 0)

    @contextmanager
    def step(self) -> Iterator[None]:
        self._ns = dict.fromkeys(PHASES, 0)
        self._leave("other")
        begin = time.perf_counter_ns()
        yield
        total = self._leave("other") - begin
        # What reading the allocator at the boundaries takes is not hidden: it is in there, too.
        self._ns["other"] = total - sum(self._ns.values())
        self.step_ms.append(total / NS_PER_MS)
        for phase, ns in self._ns.items():
            self.phase_ms[phase].append(ns / NS_PER_MS)

    @contextmanager
    def mark(self, phase: str) -> Iterator[None]:
        self._leave("other")
        begin = time.perf_counter_ns()
        try:
            yield
        finally:
            self._ns[phase] += self._leave(phase) - begin

    def _leave(self, phase: str) -> int:
        """When the phase ended, in ns; its peaks are then taken and reset."""
        synchronize(self._device)
        ended = time.perf_counter_ns()
        peak = allocator_peak(self._device)
        if peak is not None:
            self.peaks[phase] = _together(peak, self.peaks.get(phase))
            reset_allocator_peak(self._device)
        return ended


def _together(peak: AllocatorPeak, known: AllocatorPeak | None) -> AllocatorPeak:
    if known is None:
        return peak
    return AllocatorPeak(
        allocated_mb=max(peak.allocated_mb, known.allocated_mb),
        reserved_mb=max(peak.reserved_mb, known.reserved_mb),
        alloc_retries=peak.alloc_retries + known.alloc_retries,
    )
