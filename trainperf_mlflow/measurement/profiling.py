"""A torch.profiler trace of a few steps, bounded in size, and what it cost to take it.

Plain steps are timed first, in the same process, so that the profiler's own
slowdown is known. The first profiled step is thrown away: it starts the profiler
up, and its size tells how many steps the budget allows.
"""

from __future__ import annotations

import gzip
import shutil
import time
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, record_function, schedule

from trainperf_mlflow.analysis.traces import analyse
from trainperf_mlflow.analysis.traces_summary import (
    kind_times,
    matmul_precisions,
    part_times,
    phase_times,
    recompute_time,
    top_operators,
)
from trainperf_mlflow.attribution import TraceMeasurement
from trainperf_mlflow.measurement.memory import (
    MIB,
    AllocatorPeak,
    TensorTracker,
    allocator_peak,
    reset_allocator_peak,
    resident_tensors,
)
from trainperf_mlflow.measurement.timing import (
    NS_PER_MS,
    no_gc,
    read_losses,
    synchronize,
    timed_block,
)
from trainperf_mlflow.workloads.marked import MarkedTask
from trainperf_mlflow.workloads.task import CallableTask, Task, run_step

MARK = "phase."
WAIT_STEPS, WARMUP_STEPS = 1, 2
MIN_PLAIN_STEPS = 5
# Viewers take a trace of this size, and the analysis reads it in seconds.
TRACE_BUDGET_BYTES = 200 * MIB
_COMPRESSION = 6


def measure_trace(
    task: Task,
    steps: int,
    top: int,
    path: str,
    device: torch.device,
    compiled: bool,
    budget_bytes: int = TRACE_BUDGET_BYTES,
) -> TraceMeasurement:
    """Profile up to ``steps`` steps and write their trace to ``path``, a ``.json.gz``.

    A plain callable has no phases to mark; its trace says so in a note.
    """
    notes: list[str] = []
    traced = task
    if isinstance(task, CallableTask):
        notes.append("the task is a plain callable, so the trace has no phase marks")
    else:
        traced = MarkedTask(task, _mark)
    plain = timed_block(lambda: run_step(task), max(steps, MIN_PLAIN_STEPS), device, index=0)
    target = Path(path)
    raw = target.with_suffix("")  # .json
    activities = _activities(device)
    _record(traced, 1, raw, activities, device, wait=0, warmup=1)
    active = max(1, min(steps, budget_bytes // max(1, raw.stat().st_size)))
    if active < steps:
        notes.append(
            f"{active} of {steps} steps are in the trace: one step takes "
            f"{raw.stat().st_size / MIB:.0f} MiB of the {budget_bytes / MIB:.0f} MiB allowed"
        )
    reset_allocator_peak(device)
    step_ms, loss = _record(traced, active, raw, activities, device, WAIT_STEPS, WARMUP_STEPS)
    allocator = allocator_peak(device)
    size = raw.stat().st_size
    with raw.open("rb") as plain_file, gzip.open(target, "wb", _COMPRESSION) as packed:
        shutil.copyfileobj(plain_file, packed)
    raw.unlink()
    found = analyse(target)
    peak_mb, source = _peak(task, device, compiled, allocator)
    return TraceMeasurement(
        active_steps=active,
        step_ms=step_ms,
        plain_step_ms=plain.wall_ms / len(plain.step_ms),
        activities=tuple(activity.name for activity in activities),
        trace_bytes=size,
        operators=top_operators(found, top),
        phase_ms=phase_times(found),
        parts_ms=part_times(found),
        kinds_ms=kind_times(found),
        matmul_precision_ms=matmul_precisions(found),
        recompute_ms=recompute_time(found),
        loss=read_losses([loss])[0],
        peak_mem_mb=peak_mb,
        peak_mem_source=source,
        peak_reserved_mb=allocator.reserved_mb if allocator else None,
        notes=tuple(notes),
    )


def _mark(phase: str) -> AbstractContextManager[Any]:
    return record_function(MARK + phase)


def _activities(device: torch.device) -> list[ProfilerActivity]:
    found = [ProfilerActivity.CPU]
    accelerator = getattr(ProfilerActivity, device.type.upper(), None)
    if device.type != "cpu" and accelerator is not None:
        found.append(accelerator)
    return found


def _record(
    task: Task,
    active: int,
    path: Path,
    activities: list[ProfilerActivity],
    device: torch.device,
    wait: int,
    warmup: int,
) -> tuple[float, Any]:
    """Profile ``active`` steps after others and export them; a step's mean ms, the last loss."""

    def export(profiler: Any) -> None:
        profiler.export_chrome_trace(str(path))

    with (
        no_gc(),
        profile(
            activities=activities,
            schedule=schedule(wait=wait, warmup=warmup, active=active, repeat=1),
            on_trace_ready=export,
            record_shapes=True,
            profile_memory=True,
            acc_events=False,
        ) as profiler,
    ):
        for _ in range(wait + warmup):
            run_step(task)
            profiler.step()
        synchronize(device)
        begin = time.perf_counter_ns()
        for step in range(active):
            if step:
                profiler.step()
            loss = run_step(task)
        synchronize(device)
        wall_ns = time.perf_counter_ns() - begin
        profiler.step()  # exports, which belongs to no step
    return wall_ns / active / NS_PER_MS, loss


def _peak(
    task: Task, device: torch.device, compiled: bool, allocator: AllocatorPeak | None
) -> tuple[float | None, Any]:
    """Peak memory of a step in MiB, and what counted it."""
    if allocator is not None:
        return allocator.allocated_mb, "accelerator_allocator"
    if device.type != "cpu" or compiled:
        return None, None
    tracker = TensorTracker()
    tracker.track(resident_tensors(task))
    with tracker:
        run_step(task)
    return tracker.peak / MIB, "tensor_tracker"
