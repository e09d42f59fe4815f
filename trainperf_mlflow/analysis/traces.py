"""What a trace of torch.profiler says about where the time of training went."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainperf_mlflow.analysis.intervals import (
    Intervals,
    contains,
    intersect,
    intervals,
    measure,
    measure_within,
)
from trainperf_mlflow.analysis.traces_kinds import (
    KINDS,
    OF_THE_OPTIMIZER,
    kind_of_kernel,
    kind_of_operator,
    precision_of_kernel,
)
from trainperf_mlflow.analysis.traces_marks import (
    Rank,
    Windows,
    data_waits,
    devices_of,
    launches,
    optimizer_steps,
    phases_of,
    ranks_of,
    windows_of,
)
from trainperf_mlflow.analysis.traces_missing import missing_of
from trainperf_mlflow.analysis.traces_parts import BUSY, parts_of
from trainperf_mlflow.analysis.traces_reading import Category, Trace, read_trace
from trainperf_mlflow.analysis.traces_results import (
    DataWait,
    Kernel,
    KindTime,
    Operator,
    Phase,
    RankTime,
    Recompute,
    Step,
    TraceAnalysis,
)
from trainperf_mlflow.analysis.traces_tree import Tree, recompute_times, recomputed

# Rounding of a double over hours in microseconds, and of the sums.
CLOSES_WITHIN = 1e-6


def analyse(path: str | Path) -> TraceAnalysis:
    """The breakdown of one trace.

    Raises:
        PlanError: the file is no trace, or cannot be read in full.
    """
    trace = read_trace(path)
    ranks = ranks_of(trace)
    times = [_time_of(trace, rank) for rank in ranks]
    slowest = max(range(len(ranks)), key=lambda index: times[index].total_us)
    return _analysis(Path(path).name, trace, ranks[slowest], times)


def _time_of(trace: Trace, rank: Rank) -> RankTime:
    windows = windows_of(trace, rank)
    parts = parts_of(trace, rank, windows.spans)
    total, parts_us = _closed(parts, windows.spans)
    steps = len(windows.names) if windows.marked else 0
    return RankTime(process=rank.process, steps=steps, total_us=total, parts_us=parts_us)


def _closed(parts: dict[str, Intervals], spans: Intervals) -> tuple[float, dict[str, float]]:
    """The length of some spans, and what each part has of it: together no more and no less."""
    total = measure(spans)
    parts_us = {name: float(np.sum(measure_within(part, spans))) for name, part in parts.items()}
    lost = total - sum(parts_us.values())
    if abs(lost) > CLOSES_WITHIN * total + 0.01:
        raise AssertionError(f"the parts {parts_us} do not add up to {total}: {lost} us differ")
    return total, parts_us


def _analysis(file: str, trace: Trace, rank: Rank, times: list[RankTime]) -> TraceAnalysis:
    windows = windows_of(trace, rank)
    parts = parts_of(trace, rank, windows.spans)
    total, parts_us = _closed(parts, windows.spans)
    call = launches(rank)
    asked = (
        np.where(call >= 0, rank.host.start[call], rank.device.start)
        if rank.host.size
        else (rank.device.start)
    )
    within = contains(windows.spans, asked) if windows.marked else np.ones(len(asked), bool)
    kernels = _kernels(trace, rank, asked, within)
    operators = _operators(trace, rank, windows, call, within)
    phases = phases_of(trace, rank.host, windows.spans)
    waits = intersect(data_waits(trace, rank.host), windows.spans)
    again = recomputed(trace, rank, windows.spans) if trace.sequenced else None
    distributed = trace.metadata.get("distributedInfo")
    distributed = distributed if isinstance(distributed, dict) else {}
    return TraceAnalysis(
        file=file,
        device=_device(trace, rank),
        rank=_number(distributed.get("rank")),
        world_size=_number(distributed.get("world_size")),
        steps=len(windows.names) if windows.marked else 0,
        total_us=total,
        busy_us=sum(parts_us.get(name, 0.0) for name in BUSY),
        idle_us=sum(us for name, us in parts_us.items() if name not in BUSY),
        parts_us=parts_us,
        per_step=_steps(parts, windows),
        phases={
            name: _phase(parts, spans, rank, asked)
            for name, spans in phases.spans.items()
            if phases.source != "none"
        },
        phases_from=phases.source,
        kernels=_by_kind((kernel, kernel.total_us, kernel.precision) for kernel in kernels),
        operators=_by_kind((operator, operator.self_us, "") for operator in operators),
        data_wait=DataWait(
            count=len(waits), host_us=measure(waits), exposed_us=parts_us["data_wait"]
        )
        if len(waits)
        else None,
        recompute=_recompute(again, rank, call),
        top_kernels=kernels,
        top_operators=operators,
        ranks=times,
        missing=missing_of(trace, rank, windows, phases, call, len(times)),
    )


def _steps(parts: dict[str, Intervals], windows: Windows) -> list[Step]:
    if not windows.marked:
        return []
    columns = {name: measure_within(part, windows.spans) for name, part in parts.items()}
    return [
        Step(
            name=name,
            total_us=float(windows.spans[row, 1] - windows.spans[row, 0]),
            parts_us={part: float(column[row]) for part, column in columns.items()},
        )
        for row, name in enumerate(windows.names)
    ]


def _phase(
    parts: dict[str, Intervals], spans: Intervals, rank: Rank, asked: NDArray[np.float64]
) -> Phase:
    total, parts_us = _closed(parts, spans)
    of_phase = contains(spans, asked)
    work = intervals(rank.device.start[of_phase], rank.device.end[of_phase])
    return Phase(total_us=total, parts_us=parts_us, device_us=measure(work))


def _recompute(
    again: dict[int, Intervals] | None, rank: Rank, call: NDArray[np.int64]
) -> Recompute | None:
    if again is None:
        return None
    host_us, device_us = recompute_times(again, rank, call)
    return Recompute(host_us=host_us, device_us=device_us)


def _kernels(
    trace: Trace, rank: Rank, asked: NDArray[np.float64], within: NDArray[np.bool_]
) -> list[Kernel]:
    """The device's work by kernel, the longest first."""
    device = rank.device
    in_optimizer = contains(optimizer_steps(trace, rank.host), asked)
    key = device.name.astype(np.int64) * 2 + in_optimizer
    found = []
    for one, count, total in _sums(key, device.end - device.start, within):
        name = trace.names[one // 2]
        copies = bool(np.any(device.category[device.name == one // 2] != Category.KERNEL))
        kind = "copy" if copies else kind_of_kernel(name)
        if one % 2 and kind in OF_THE_OPTIMIZER and not copies:
            kind = "optimizer"
        precision = "unknown" if copies else precision_of_kernel(name)
        found.append(Kernel(name=name, kind=kind, precision=precision, count=count, total_us=total))
    return sorted(found, key=lambda kernel: -kernel.total_us)


def _operators(
    trace: Trace,
    rank: Rank,
    windows: Windows,
    call: NDArray[np.int64],
    within: NDArray[np.bool_],
) -> list[Operator]:
    """The host's operators, those with the most time of their own and on the device first."""
    host, device = rank.host, rank.device
    tree = Tree(host.where(host.category == Category.OPERATOR))
    if not tree.events.size:
        return []
    inside = contains(windows.spans, tree.events.start) | (not windows.marked)
    launched = np.flatnonzero(within & (call >= 0))
    caller = tree.innermost(host.lane[call[launched]], host.start[call[launched]])
    work = (device.end - device.start)[launched]
    names = np.where(caller >= 0, tree.events.name[caller], -1)
    device_us = {name: total for name, _, total in _sums(names, work, caller >= 0)}
    own = tree.own_time()
    counts = {
        name: count for name, count, _ in _sums(tree.events.name, own, inside & ~tree.repeats())
    }
    found = [
        Operator(
            name=trace.names[name],
            kind=kind_of_operator(trace.names[name]),
            count=counts.get(name, 0),
            self_us=total,
            device_us=device_us.get(name, 0.0),
        )
        for name, _, total in _sums(tree.events.name, own, inside)
    ]
    return sorted(found, key=lambda operator: -(operator.self_us + operator.device_us))


def _sums(
    key: NDArray[Any], values: NDArray[np.float64], chosen: NDArray[np.bool_]
) -> list[tuple[int, int, float]]:
    """Key, count and sum of the chosen values."""
    keys, inverse, counts = np.unique(key[chosen], return_inverse=True, return_counts=True)
    sums = np.bincount(inverse, values[chosen], minlength=len(keys))
    return list(zip(keys.tolist(), counts.tolist(), sums.tolist(), strict=True))


def _by_kind(rows: Iterable[tuple[Kernel | Operator, float, str]]) -> dict[str, KindTime]:
    counts: dict[str, int] = defaultdict(int)
    times: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for row, us, precision in rows:
        counts[row.kind] += row.count
        times[row.kind][precision] += us
    return {
        kind: KindTime(
            count=counts[kind],
            total_us=sum(times[kind].values()),
            precision_us={name: us for name, us in times[kind].items() if name},
        )
        for kind in KINDS
        if counts[kind]
    }


def _device(trace: Trace, rank: Rank) -> str:
    if not rank.device.size:
        return "cpu"
    used = devices_of(trace, rank)
    listed = trace.metadata.get("deviceProperties")
    properties = (
        [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []
    )
    names = [str(each.get("name")) for each in properties if str(each.get("id")) in used]
    return ", ".join(dict.fromkeys(names)) or "unknown"


def _number(value: object) -> int | None:
    return value if isinstance(value, int) else None
