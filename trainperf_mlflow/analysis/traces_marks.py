"""Whose events they are, and what the marks in a trace say: steps, phases, waiting for data."""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trainperf_mlflow.analysis.intervals import (
    EMPTY,
    Intervals,
    intersect,
    intervals,
    subtract,
    union,
)
from trainperf_mlflow.analysis.traces_reading import Category, Columns, Trace

STEP = re.compile(r"ProfilerStep#(\d+)")
BACKWARD = "autograd::engine::evaluate_function"
_DATA = re.compile(r"enumerate\(DataLoader\)|phase\.data$")
_OPTIMIZER = re.compile(r"Optimizer\.step#")
# `phase.forward` is this toolkit's; `## forward ##` is that of several trainers.
_PHASE = re.compile(r"phase\.(\w+)$|## (forward|backward|optimizer) ##$")
# Where marks overlap, the time is that of the first of these.
_PRIORITY = ("data", "optimizer", "backward", "forward")


class Rank(NamedTuple):
    """One training process: its events on the host, and those of its devices."""

    process: str
    host: Columns
    device: Columns


class Windows(NamedTuple):
    """What is analysed: the marked steps, or all of the trace where none is marked."""

    names: list[str]
    spans: Intervals
    marked: bool


def ranks_of(trace: Trace) -> list[Rank]:
    """The training processes of a trace: one, unless the traces of several were merged.

    A device belongs to the process whose calls fit most of its events, and best.
    """
    events = trace.events
    on_host = events.category <= Category.CALL
    processes = np.array([process for process, _ in trace.lanes])[events.lane]
    hosts = list(dict.fromkeys(processes[on_host].tolist()))
    if len(hosts) <= 1:
        return [Rank(hosts[0] if hosts else "", events.where(on_host), events.where(~on_host))]
    owners: dict[str, list[str]] = {host: [] for host in hosts}
    for device in dict.fromkeys(processes[~on_host].tolist()):
        of_device = events.where(~on_host & (processes == device))
        launched = [
            _launched(events.where(on_host & (processes == host)), of_device) for host in hosts
        ]
        owners[hosts[launched.index(max(launched))]].append(device)
    found = [
        Rank(
            host,
            events.where(on_host & (processes == host)),
            events.where(~on_host & np.isin(processes, owners[host])),
        )
        for host in hosts
    ]
    # A process without a step next to those with steps only serves them.
    stepping = [rank for rank in found if windows_of(trace, rank).marked]
    return stepping or found


def devices_of(trace: Trace, rank: Rank) -> list[str]:
    """The devices of a rank, as the trace numbers them."""
    return sorted({trace.lanes[lane][0] for lane in np.unique(rank.device.lane)})


def launches(rank: Rank) -> NDArray[np.int64]:
    """For each device event, the row of the host's call that launched it; -1 where unknown."""
    calls = np.flatnonzero((rank.host.category == Category.CALL) & (rank.host.correlation >= 0))
    calls = calls[np.argsort(rank.host.correlation[calls], kind="stable")]
    known = rank.host.correlation[calls]
    place = np.searchsorted(known, rank.device.correlation)
    place = np.minimum(place, max(len(known) - 1, 0))
    if not len(known):
        return np.full(rank.device.size, -1)
    return np.where(known[place] == rank.device.correlation, calls[place], -1)


def windows_of(trace: Trace, rank: Rank) -> Windows:
    """The steps of a rank, in order."""
    marks = rank.host.where(rank.host.category == Category.MARK)
    numbered = {
        index: int(found[1])
        for index, name in enumerate(trace.names)
        if (found := STEP.match(name))
    }
    rows = np.flatnonzero(np.isin(marks.name, list(numbered)) & (marks.end > marks.start))
    rows = rows[np.argsort(marks.start[rows], kind="stable")]
    if len(rows):
        # Their ends may exceed the next one's start by the clock's resolution.
        start = marks.start[rows]
        end = np.minimum(marks.end[rows], np.append(start[1:], np.inf))
        names = [f"step {numbered[int(name)]}" for name in marks.name[rows]]
        return Windows(names, np.column_stack((start, end)), marked=True)
    both = (rank.host, rank.device)
    start_of_all = min(float(part.start.min()) for part in both if part.size)
    end_of_all = max(float(part.end.max()) for part in both if part.size)
    return Windows(["trace"], np.array([[start_of_all, end_of_all]]), marked=False)


class Phases(NamedTuple):
    """Disjoint spans on the host by phase, within the windows; `other` is what is left."""

    spans: dict[str, Intervals]
    source: str


def phases_of(trace: Trace, host: Columns, within: Intervals) -> Phases:
    """The phases of the steps: as marked, else what the profiler's own marks tell of them.

    ``source`` is `marks`, `inferred` or `none`.
    """
    marked: dict[str, Intervals] = {}
    for name, spans in _marks(trace, host, _PHASE).items():
        found = _PHASE.match(name)
        if found:
            phase = found[1] or found[2]
            marked[phase] = union(marked.get(phase, EMPTY), spans)
    source = "marks" if marked else "inferred"
    if not marked:
        marked = {
            "data": data_waits(trace, host),
            "optimizer": union(*_marks(trace, host, _OPTIMIZER).values()),
            "backward": named(trace, host, BACKWARD),
        }
        marked = {phase: spans for phase, spans in marked.items() if len(spans)}
    order = sorted(marked, key=lambda phase: (*(phase != known for known in _PRIORITY), phase))
    disjoint: dict[str, Intervals] = {}
    rest = within
    for phase in order:
        disjoint[phase] = intersect(marked[phase], rest)
        rest = subtract(rest, disjoint[phase])
    in_order = dict(sorted(disjoint.items(), key=lambda item: _first_start(item[1])))
    return Phases({**in_order, "other": rest}, source if marked else "none")


def data_waits(trace: Trace, host: Columns) -> Intervals:
    """When the host was in a data loader's next, or in a marked data phase."""
    return union(*_marks(trace, host, _DATA).values())


def optimizer_steps(trace: Trace, host: Columns) -> Intervals:
    """When the host was in an optimizer's step."""
    return union(*_marks(trace, host, re.compile(r"Optimizer\.step#|phase\.optimizer$")).values())


def named(trace: Trace, events: Columns, start_of_name: str) -> Intervals:
    """What the events cover whose names start so."""
    wanted = [i for i, name in enumerate(trace.names) if name.startswith(start_of_name)]
    chosen = np.isin(events.name, wanted)
    return intervals(events.start[chosen], events.end[chosen])


def _marks(trace: Trace, host: Columns, pattern: re.Pattern[str]) -> dict[str, Intervals]:
    is_mark = host.category == Category.MARK
    found = {}
    for index, name in enumerate(trace.names):
        if pattern.match(name):
            chosen = is_mark & (host.name == index)
            if chosen.any():
                found[name] = intervals(host.start[chosen], host.end[chosen])
    return found


def _first_start(spans: Intervals) -> float:
    return float(spans[0, 0]) if len(spans) else np.inf


def _launched(host: Columns, device: Columns) -> tuple[int, float]:
    """How many of a device's events a process may have launched, and how soon before.

    Each process counts its correlations from 1, so that a number alone proves nothing.
    """
    row = launches(Rank("", host, device))
    known = row >= 0
    delay = device.start[known] - host.start[row[known]]
    delay = delay[delay >= 0]
    return len(delay), -float(np.median(delay)) if len(delay) else 0.0
