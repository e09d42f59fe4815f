"""Traces as torch.profiler writes them, small enough to be worked out by hand."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

HOST, DEVICE = 100, 0
MAIN, BACKWARD, STREAM, SIDE_STREAM = 100, 101, 7, 20

Event = dict[str, Any]


def event(
    category: str, name: str, start: float, duration: float, *, pid: int, tid: int, **args: Any
) -> Event:
    return {
        "ph": "X",
        "cat": category,
        "name": name,
        "pid": pid,
        "tid": tid,
        "ts": start,
        "dur": duration,
        "args": args,
    }


def mark(name: str, start: float, end: float, pid: int = HOST) -> Event:
    return event("user_annotation", name, start, end - start, pid=pid, tid=MAIN)


def operator(
    name: str, start: float, end: float, tid: int = MAIN, pid: int = HOST, **args: Any
) -> Event:
    return event("cpu_op", name, start, end - start, pid=pid, tid=tid, **args)


def call(name: str, start: float, end: float, correlation: int, **more: Any) -> Event:
    where = {"pid": HOST, "tid": MAIN, **more}
    return event("cuda_runtime", name, start, end - start, **where, correlation=correlation)


def kernel(name: str, start: float, end: float, correlation: int, **more: Any) -> Event:
    category = more.pop("category", "kernel")
    where = {"pid": DEVICE, "tid": STREAM, **more}
    return event(category, name, start, end - start, **where, correlation=correlation)


GEMM = "ampere_sgemm_128x64_nn"
ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float> >(int)"
ADAM = "void at::native::vectorized_elementwise_kernel<4, at::native::adam<float> >(int)"
NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
COPY = "Memcpy HtoD (Pinned -> Device)"


def one_step(
    begin: float = 0.0, number: int = 1, pid: int = HOST, device: int = DEVICE
) -> list[Event]:
    """A step of 1000 us whose parts are: see ONE_STEP_US."""
    first = number * 100
    raw = [
        mark(f"ProfilerStep#{number}", 0, 1000, pid),
        mark("phase.data", 0, 100, pid),
        mark("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 5, 95, pid),
        mark("phase.forward", 100, 300, pid),
        mark("phase.backward", 300, 700, pid),
        mark("phase.optimizer", 700, 990, pid),
        mark("Optimizer.step#AdamW.step", 705, 980, pid),
        operator("aten::copy_", 100, 120, pid=pid),
        call("cudaMemcpyAsync", 105, 115, first + 1, pid=pid),
        kernel(COPY, 120, 170, first + 1, pid=device, category="gpu_memcpy"),
        operator("aten::linear", 130, 200, pid=pid, **{"Sequence number": 1, "Fwd thread id": 0}),
        operator("aten::addmm", 140, 190, pid=pid, **{"Sequence number": 1, "Fwd thread id": 0}),
        call("cudaLaunchKernel", 150, 160, first + 2, pid=pid),
        kernel(GEMM, 170, 290, first + 2, pid=device),
        # Launched late: the device has been idle since 290.
        operator("aten::add", 380, 410, pid=pid),
        call("cudaLaunchKernel", 390, 400, first + 3, pid=pid),
        kernel(ADD, 405, 505, first + 3, pid=device),
        # Communication on a stream of its own: 455..605, of which 505..605 are exposed.
        call("cudaLaunchKernel", 420, 430, first + 4, pid=pid),
        kernel(NCCL, 455, 605, first + 4, pid=device, tid=SIDE_STREAM),
        # The host waits until the device has run dry, and then for its own reasons.
        call("cudaStreamSynchronize", 550, 620, first + 5, pid=pid),
        operator("aten::_fused_adamw_", 710, 740, pid=pid),
        call("cudaLaunchKernel", 720, 730, first + 6, pid=pid),
        kernel(ADD, 735, 835, first + 6, pid=device),
        # Launched in time, but 20 us late.
        call("cudaLaunchKernel", 745, 750, first + 7, pid=pid),
        kernel(ADD, 855, 955, first + 7, pid=device),
    ]
    return [{**one, "ts": one["ts"] + begin} for one in raw]


ONE_STEP_US = {
    "compute": 120 + 100 + 100 + 100,
    "exposed_communication": 100,
    "exposed_copy": 50,
    "data_wait": 100,
    "synchronisation": 735 - 605,
    "launch_bound": (120 - 100) + (405 - 290),
    "other_idle": (855 - 835) + (1000 - 955),
}


def document(events: Iterable[Event], **more: Any) -> dict[str, Any]:
    head = {
        "schemaVersion": 1,
        "deviceProperties": [{"id": DEVICE, "name": "NVIDIA A100"}],
    }
    return {**head, **more, "traceEvents": list(events), "traceName": "trace.json"}


def write_trace(path: Path, events: Iterable[Event], **more: Any) -> Path:
    text = json.dumps(document(events, **more))
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text, "utf-8")
    return path


def make_excerpt(source: Path, target: Path, step: str, share: float = 1.0) -> None:
    """One step of a real trace with what the analysis reads, small enough for the repository."""
    found = json.loads(gzip.decompress(source.read_bytes()))
    marks = [one for one in found["traceEvents"] if one.get("name") == step]
    begin, end = marks[0]["ts"], marks[0]["ts"] + share * marks[0]["dur"]
    keep = ("correlation", "Sequence number", "Fwd thread id", "device", "stream")
    events = []
    for one in found["traceEvents"]:
        if one["ph"] == "X" and isinstance(one["pid"], int) and begin <= one["ts"] < end:
            args = {key: one["args"][key] for key in keep if key in one["args"]}
            events.append({**one, "ts": one["ts"] - begin, "args": args})
    found["traceEvents"] = events
    target.write_bytes(gzip.compress(json.dumps(found).encode(), 9, mtime=0))
