"""One untimed step under observation: does the change take effect, and what is the tensor peak?

It runs after everything that is timed, so that watching costs no measured step.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any, NamedTuple

import torch
from torch.nn.modules.module import register_module_forward_pre_hook

from trainperf_mlflow.measurement.counting import counted_flops, moved_bytes
from trainperf_mlflow.measurement.memory import (
    MIB,
    TensorTracker,
    compiled_step,
    resident_tensors,
    tensors_in,
)
from trainperf_mlflow.workloads.effects import Observed
from trainperf_mlflow.workloads.task import CallableTask, Task, run_step


class Audit(NamedTuple):
    """What one observed step showed; ``peak_mem_mb`` is the CPU tensors' peak in MiB."""

    observed: Observed
    peak_mem_mb: float | None


class Observer(TensorTracker):
    """Watches the operations of a step: tensors, matrix products by dtype, copies to the host,
    and the bytes that operations move on its kind of device."""

    def __init__(self, device_type: str = "cpu") -> None:
        super().__init__(device_type)
        self.matmul_flops: dict[str, float] = defaultdict(float)
        self.moved_bytes = 0
        self.device_to_host_bytes = 0
        self.ops: set[str] = set()
        self.recomputed_modules = 0

    def count_recompute(self, module: torch.nn.Module, inputs: Any) -> None:
        # Inside autograd's backward a graph task is running; a module's forward there recomputes.
        if torch._C._current_graph_task_id() != -1:
            self.recomputed_modules += 1

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = super().__torch_dispatch__(func, types, args, kwargs)
        self.ops.add(str(func))
        tensors = list(tensors_in((args, kwargs)))
        self.moved_bytes += moved_bytes(func, args, kwargs, result, self.device_type)
        flops = counted_flops(func, args, kwargs, result)
        if flops and tensors:
            self.matmul_flops[str(tensors[0].dtype).removeprefix("torch.")] += flops
        if isinstance(result, torch.Tensor) and result.device.type == "cpu":
            source = next((t for t in reversed(tensors) if t.device.type != "cpu"), None)
            if source is not None:
                self.device_to_host_bytes += source.nbytes
        return result


def audit(task: Task, device: torch.device, compiled: bool) -> Audit:
    """Run one or two untimed steps under observation.

    A task that does not name its tensors (a plain callable) runs a first step
    only to make them known, so that the second one's peak is complete.
    """
    # Compiled code first: hooks on modules would make it compile again, modes run it eagerly.
    compiled_peak, regions = compiled_step(task) if compiled else (None, None)
    observer = Observer()
    on_cpu = device.type == "cpu"
    hook = register_module_forward_pre_hook(observer.count_recompute)
    try:
        for _ in range(2 if isinstance(task, CallableTask) and on_cpu else 1):
            observer.track(resident_tensors(task))
            observer.peak = observer.current
            with observer:
                run_step(task)
    finally:
        hook.remove()
    peak = compiled_peak if compiled else observer.peak / MIB or None
    observed = Observed(
        matmul_flops=dict(observer.matmul_flops),
        recomputed_modules=observer.recomputed_modules,
        device_to_host_bytes=observer.device_to_host_bytes,
        ops=frozenset(observer.ops),
        compiled_regions=regions,
    )
    return Audit(observed, peak if on_cpu else None)
