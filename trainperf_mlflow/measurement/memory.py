"""Peak memory of training steps: the accelerator's allocator, the process's RSS,
and on a CPU, whose allocator counts nothing, the tensors themselves.

The tensor peak answers "does the technique save memory"; the resident set
answers "does it fit", and hides most savings because freed memory stays with
the process.
"""

from __future__ import annotations

import json
import tempfile
import weakref
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from trainperf_mlflow.workloads.task import Task, run_step

MIB = 1024**2
_COUNTED_STEP = "trainperf.counted_step"
_CPU_DEVICE_TYPE = 0  # in the profiler's memory events
_CLEAR_PEAK = "5"  # proc(5): writing 5 to clear_refs resets the peak resident set


class AllocatorPeak(NamedTuple):
    """What an accelerator's caching allocator held at most; MiB."""

    allocated_mb: float
    reserved_mb: float
    alloc_retries: int


def reset_allocator_peak(device: torch.device) -> None:
    """Forget the peaks and the retries so far."""
    if device.type != "cpu":
        with suppress(AttributeError, RuntimeError, NotImplementedError):
            torch.accelerator.memory.reset_peak_memory_stats(device)
            torch.accelerator.memory.reset_accumulated_memory_stats(device)


def allocator_peak(device: torch.device) -> AllocatorPeak | None:
    """Peaks and retries since the last reset; None where the backend keeps no such counts."""
    if device.type == "cpu":
        return None
    try:
        stats = torch.accelerator.memory.memory_stats(device)
        return AllocatorPeak(
            allocated_mb=torch.accelerator.memory.max_memory_allocated(device) / MIB,
            reserved_mb=torch.accelerator.memory.max_memory_reserved(device) / MIB,
            alloc_retries=int(stats.get("num_alloc_retries", 0)),
        )
    except (AttributeError, RuntimeError, NotImplementedError):
        return None


def reset_rss_peak() -> None:
    """Forget the peak so far (Linux); elsewhere the peak is that of the process's whole life."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text(_CLEAR_PEAK)


def rss_peak_mb() -> float | None:
    """Peak resident set of this process since the last reset; MiB."""
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
    with suppress(psutil.Error):
        return float(psutil.Process().memory_info().rss) / MIB
    return None


class TensorTracker(TorchDispatchMode):
    """Counts the bytes of all tensor storages alive on one kind of device, and their peak.

    A storage counts from the first operation that makes or uses it until it is
    freed; views share one, in-place results are no new one. What exists before
    is told by ``track``. Buffers inside an operation are not seen.
    """

    def __init__(self, device_type: str = "cpu") -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.device_type = device_type
        self._bytes: dict[int, int] = {}
        self._watches: dict[int, weakref.ref[torch.UntypedStorage]] = {}
        self.current = 0
        self.peak = 0

    def track(self, tensors: Iterable[torch.Tensor]) -> None:
        for tensor in tensors:
            if tensor.device.type == self.device_type:
                self._see(tensor.untyped_storage())
        self.peak = max(self.peak, self.current)

    def _see(self, storage: torch.UntypedStorage) -> None:
        key = storage._cdata
        size = storage.nbytes()
        known = self._bytes.get(key)
        if known is None:
            self._watches[key] = weakref.ref(storage, lambda _: self._forget(key))
            known = 0
        self._bytes[key] = size
        self.current += size - known

    def _forget(self, key: int) -> None:
        del self._watches[key]
        self.current -= self._bytes.pop(key)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        self.track(tensors_in((args, kwargs)))
        self._made(tensors_in(result))
        return result

    def _made(self, tensors: Iterable[torch.Tensor]) -> None:
        self.track(tensors)


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """The tensors among an operation's arguments or results, which nest plain containers only.

    Torch's own walk through trees knows more kinds and takes twice the time, at each operation.
    """
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from tensors_in(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from tensors_in(item)


def resident_tensors(task: Task) -> Iterator[torch.Tensor]:
    """What a task holds between two steps, gradients of the last one included."""
    for tensor in task.state_tensors():
        yield tensor
        if tensor.is_leaf and tensor.grad is not None:
            yield tensor.grad


def compiled_step(task: Task) -> tuple[float | None, int]:
    """Peak tensor memory (MiB) and number of compiled regions of one profiled step.

    A dispatch mode would make compiled code run eagerly, so the profiler's
    allocation events are summed up instead, on top of what was there before.
    The profiler does not see memory freed that was allocated before it began
    (the last step's gradients): a first step lets that happen, a second counts.
    """
    from torch.profiler import ProfilerActivity, profile, record_function

    before = _cpu_storages(resident_tensors(task))
    sizes = {key: storage.nbytes() for key, storage in before.items()}
    alive = {key: weakref.ref(storage) for key, storage in before.items()}
    before.clear()  # or they would outlive the step that frees them
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        run_step(task)
        with record_function(_COUNTED_STEP):
            run_step(task)
    resident = sum(size for key, size in sizes.items() if alive[key]() is not None)
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(trace))
        events = json.loads(trace.read_text())["traceEvents"]
    begin = min(float(event["ts"]) for event in events if event.get("name") == _COUNTED_STEP)
    regions = sum(
        "Torch-Compiled Region" in str(event.get("name")) and float(event["ts"]) >= begin
        for event in events
    )
    peak = _allocated_peak(events, resident, begin)
    return (None if peak is None else peak / MIB), regions


def _cpu_storages(tensors: Iterable[torch.Tensor]) -> dict[int, torch.UntypedStorage]:
    storages = (tensor.untyped_storage() for tensor in tensors if tensor.device.type == "cpu")
    return {storage._cdata: storage for storage in storages}


def _allocated_peak(events: list[dict[str, Any]], resident: int, begin: float) -> int | None:
    """The most bytes allocated at once from ``begin`` on; None where nothing was recorded."""
    allocations = sorted(
        (event for event in events if event.get("name") == "[memory]"),
        key=lambda event: float(event["ts"]),
    )
    current, peak = resident, None
    for event in allocations:
        if event["args"].get("Device Type") == _CPU_DEVICE_TYPE:
            current += int(event["args"]["Bytes"])
            if float(event["ts"]) >= begin:
                peak = max(peak or 0, current)
    return peak
