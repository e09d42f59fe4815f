"""What a trace cannot tell, in sentences, each with what would make it tell."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from trainperf_mlflow.analysis.intervals import EMPTY, gaps, intersect, intervals, measure
from trainperf_mlflow.analysis.traces_marks import (
    Phases,
    Rank,
    Windows,
    data_waits,
    devices_of,
)
from trainperf_mlflow.analysis.traces_reading import Category, Trace


def missing_of(
    trace: Trace,
    rank: Rank,
    windows: Windows,
    phases: Phases,
    call: NDArray[np.int64],
    ranks: int,
) -> list[str]:
    """One sentence for each thing."""
    return [
        *trace.problems,
        *_of_the_device(trace, rank, windows, call),
        *_of_the_host(trace, rank, windows, phases),
        *_of_ranks(trace, rank, ranks),
    ]


def _of_the_device(
    trace: Trace, rank: Rank, windows: Windows, call: NDArray[np.int64]
) -> Iterator[str]:
    device = rank.device
    if not device.size:
        yield (
            "no device was traced: no kernels, copies or idle time of one; the parts are the "
            "host's (on a GPU, record with ProfilerActivity.CUDA)"
        )
        return
    if not np.any(device.category == Category.KERNEL):
        yield "no kernels, only copies: was the work run outside the traced steps?"
    unknown = int(np.sum(call < 0))
    if unknown == device.size:
        yield (
            "no calls that launched the kernels: launch-bound time and the device's time of "
            "phases and operators cannot be told (record with ProfilerActivity.CPU, too)"
        )
    elif unknown:
        yield f"{unknown} of {device.size} device events have no launching call"
    after = _after(rank, windows, call)
    if after > 1.0:
        yield (
            f"{after:.0f} us of device work of the last step ran after its mark ended: it is in "
            "the kernels, not in the parts (synchronise before the profiler's step)"
        )
    if len(devices := devices_of(trace, rank)) > 1:
        yield f"{len(devices)} devices in one process: busy here means that any of them is"


def _of_the_host(trace: Trace, rank: Rank, windows: Windows, phases: Phases) -> Iterator[str]:
    if not windows.marked:
        yield (
            "no step marks (ProfilerStep#): the whole trace is one stretch, with whatever came "
            "before and after training (call the profiler's step() after each step)"
        )
    if not np.any(rank.host.category == Category.OPERATOR):
        yield "no operators of the host (record with ProfilerActivity.CPU)"
    if phases.source != "marks":
        found = [name for name in phases.spans if name != "other"]
        told = f"only {', '.join(found)} from the profiler's own marks" if found else "no phases"
        yield (
            f"{told}: mark them with torch.profiler.record_function, as phase.data, "
            "phase.forward, phase.backward and phase.optimizer"
        )
    if not len(data_waits(trace, rank.host)):
        yield "waiting for data: no DataLoader and no phase.data was marked"
    if not trace.sequenced:
        yield "recompute: the operators bear no sequence numbers"


def _of_ranks(trace: Trace, rank: Rank, ranks: int) -> Iterator[str]:
    if ranks > 1:
        yield (
            f"{ranks} ranks are in this trace: the figures are those of process "
            f"{rank.process}, which took longest"
        )
    distributed = trace.metadata.get("distributedInfo")
    size = distributed.get("world_size") if isinstance(distributed, dict) else None
    if ranks == 1 and isinstance(size, int) and size > 1:
        yield f"the other {size - 1} of {size} ranks: compare with one of their traces"


def _after(rank: Rank, windows: Windows, call: NDArray[np.int64]) -> float:
    """Device time after the last step that it launched."""
    device, last = rank.device, windows.spans[-1]
    if not windows.marked or not rank.host.size:
        return 0.0
    launched = rank.host.start[call]
    of_last = (call >= 0) & (launched >= last[0]) & (launched < last[1])
    work = intervals(device.start[of_last], device.end[of_last])
    if not len(work):
        return 0.0
    return measure(intersect(work, gaps(EMPTY, float(last[1]), float(work[-1, 1]))))
