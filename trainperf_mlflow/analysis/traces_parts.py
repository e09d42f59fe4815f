"""Where a rank's time goes: disjoint parts that cover every window.

With a device, the parts are the device's: `compute` (any kernel but
communication), then what these leave exposed, in this order: communication,
copies (copy engines; copy kernels are compute), and the idle gaps by their
cause, as HolisticTraceAnalysis tells host from device:

* `data_wait`: meanwhile the host waited for data;
* `synchronisation`: the device ran dry while the host waited for it;
* `launch_bound`: the next work was launched only after the device had run dry;
* `other_idle`: the next work was launched in time, yet waited (for another
  stream, or the device), or nobody knows who launched it.

Without one, they are the host's: `data_wait`, `compute` (an operator runs),
`exposed_communication`, and `outside_operators` (Python and the framework).
"""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

from trainperf_mlflow.analysis.intervals import (
    EMPTY,
    Intervals,
    contains,
    gaps,
    intersect,
    intervals,
    subtract,
    union,
)
from trainperf_mlflow.analysis.traces_kinds import kind_of_kernel
from trainperf_mlflow.analysis.traces_marks import Rank, data_waits, launches
from trainperf_mlflow.analysis.traces_reading import Category, Columns, Trace

BUSY = ("compute", "exposed_communication", "exposed_copy")

_WAITS_FOR_DEVICE = re.compile(
    r"(?:cuda|cu|hip|ur|ze)\w*Synchronize|(?:cuda|hip)Free$|syclQueueWait"
)
_HOST_COMMUNICATION = re.compile(r"(?:gloo|mpi|ucc):")


def parts_of(trace: Trace, rank: Rank, within: Intervals) -> dict[str, Intervals]:
    """The parts, disjoint, each cut to what the windows cover."""
    parts = _device_parts(trace, rank) if rank.device.size else _host_parts(trace, rank)
    start, end = float(within[0, 0]), float(within[-1, 1])
    covered = union(*parts.values())
    remainder = "other_idle" if rank.device.size else "outside_operators"
    parts[remainder] = union(parts[remainder], gaps(covered, start, end))
    return {name: intersect(spans, within) for name, spans in parts.items()}


def _device_parts(trace: Trace, rank: Rank) -> dict[str, Intervals]:
    device = rank.device
    is_kernel = device.category == Category.KERNEL
    communicates = is_kernel & _named_like(trace, device, "communication")
    compute = _spans(device, is_kernel & ~communicates)
    communication = subtract(_spans(device, communicates), compute)
    copy = subtract(_spans(device, ~is_kernel), union(compute, communication))
    return {
        "compute": compute,
        "exposed_communication": communication,
        "exposed_copy": copy,
        **_idle_parts(trace, rank, union(compute, communication, copy)),
    }


def _idle_parts(trace: Trace, rank: Rank, busy: Intervals) -> dict[str, Intervals]:
    """The gaps of the device by cause; each gap has one, but for the waits for data in it."""
    host, device = rank.host, rank.device
    start = min(float(part.start.min()) for part in (host, device) if part.size)
    end = max(float(part.end.max()) for part in (host, device) if part.size)
    idle = gaps(busy, start, end)
    waits = data_waits(trace, host)
    ran_dry = contains(_device_waits(trace, rank), idle[:, 0]) & (idle[:, 0] > start)
    late = ~ran_dry & _launched_late(rank, idle)
    rest = ~ran_dry & ~late
    return {
        "data_wait": intersect(idle, waits),
        "synchronisation": subtract(idle[ran_dry], waits),
        "launch_bound": subtract(idle[late], waits),
        "other_idle": subtract(idle[rest], waits),
    }


def _launched_late(rank: Rank, idle: Intervals) -> NDArray[np.bool_]:
    """For each gap: was the call that ended it still unfinished when it began."""
    if not rank.host.size:
        return np.zeros(len(idle), dtype=bool)
    order = np.argsort(rank.device.start, kind="stable")
    row = launches(rank)[order]
    next_event = np.searchsorted(rank.device.start[order], idle[:, 1], side="left")
    exists = next_event < len(row)
    call = row[np.minimum(next_event, len(row) - 1)]
    return exists & (call >= 0) & (rank.host.end[call] > idle[:, 0])


def _device_waits(trace: Trace, rank: Rank) -> Intervals:
    """When the host waited for the device: synchronisations, and copies that block the caller."""
    host, device = rank.host, rank.device
    names = [i for i, name in enumerate(trace.names) if _WAITS_FOR_DEVICE.match(name)]
    waits = _spans(host, (host.category == Category.CALL) & np.isin(host.name, names))
    row = launches(rank)
    copies = (device.category == Category.MEMCPY) & (row >= 0)
    calls = row[copies]
    blocks = host.end[calls] >= device.end[copies]
    return union(waits, intervals(host.start[calls][blocks], host.end[calls][blocks]))


def _host_parts(trace: Trace, rank: Rank) -> dict[str, Intervals]:
    host = rank.host
    waits = data_waits(trace, host)
    compute = subtract(_spans(host, host.category == Category.OPERATOR), waits)
    names = [i for i, name in enumerate(trace.names) if _HOST_COMMUNICATION.match(name)]
    communication = _spans(host, np.isin(host.name, names))
    busy = union(waits, compute)
    return {
        "data_wait": waits,
        "compute": compute,
        "exposed_communication": subtract(communication, busy),
        "outside_operators": EMPTY,
    }


def _spans(events: Columns, chosen: NDArray[np.bool_]) -> Intervals:
    return intervals(events.start[chosen], events.end[chosen])


def _named_like(trace: Trace, events: Columns, kind: str) -> NDArray[np.bool_]:
    wanted = [int(i) for i in np.unique(events.name) if kind_of_kernel(trace.names[i]) == kind]
    return np.isin(events.name, wanted)
