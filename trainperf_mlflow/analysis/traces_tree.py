"""Which host events contain one another, and so whose time is their own."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from trainperf_mlflow.analysis.intervals import (
    EMPTY,
    Intervals,
    contains,
    intersect,
    intervals,
    measure,
    union,
)
from trainperf_mlflow.analysis.traces_marks import BACKWARD, Rank, named
from trainperf_mlflow.analysis.traces_reading import Category, Columns, Trace


class Tree:
    """Host events of one kind or another, ordered by lane and start, with what encloses each."""

    def __init__(self, events: Columns) -> None:
        order = np.lexsort((-events.end, events.start, events.lane))
        self.events = events.where(order)
        self.parent = _parents(self.events)

    def own_time(self) -> NDArray[np.float64]:
        """The duration of each event without that of the events right inside of it."""
        duration = self.events.end - self.events.start
        has_parent = self.parent >= 0
        inside = np.bincount(
            self.parent[has_parent], duration[has_parent], minlength=self.events.size
        )
        return np.maximum(duration - inside, 0.0)

    def repeats(self) -> NDArray[np.bool_]:
        """Which events are the only one in an event of the same name.

        An operator that calls itself for another backend ran once, as torch counts it, too.
        """
        has_parent = self.parent >= 0
        children = np.bincount(self.parent[has_parent], minlength=self.events.size)
        name = self.events.name
        alone = has_parent & (children[self.parent] == 1)
        repeated: NDArray[np.bool_] = alone & (name[self.parent] == name)
        return repeated

    def innermost(self, lane: NDArray[np.int32], time: NDArray[np.float64]) -> NDArray[np.int64]:
        """The row of the innermost event around each (lane, time); -1 where there is none."""
        found = np.full(len(time), -1)
        for one in np.unique(lane):
            rows = np.flatnonzero(self.events.lane == one)
            asked = np.flatnonzero(lane == one)
            if not len(rows):
                continue
            place = np.searchsorted(self.events.start[rows], time[asked], side="right") - 1
            row = np.where(place >= 0, rows[np.maximum(place, 0)], -1)
            while True:
                over = (row >= 0) & (self.events.end[row] < time[asked])
                if not over.any():
                    break
                row = np.where(over, self.parent[row], row)
            found[asked] = row
        return found


def _parents(events: Columns) -> NDArray[np.int64]:
    """For events ordered by lane, start and -end: the row of the one right around each."""
    parents = []
    stack: list[tuple[int, float]] = []
    lane_before = -1
    rows = zip(events.lane.tolist(), events.start.tolist(), events.end.tolist(), strict=True)
    for row, (lane, start, end) in enumerate(rows):
        if lane != lane_before:
            stack.clear()
            lane_before = lane
        while stack and stack[-1][1] <= start:
            stack.pop()
        parents.append(stack[-1][0] if stack else -1)
        stack.append((row, end))
    return np.array(parents, dtype=np.int64)


def recomputed(trace: Trace, rank: Rank, within: Intervals) -> dict[int, Intervals]:
    """By lane, when operators ran that autograd recorded although it was in backward.

    That is how activation checkpointing recomputes; a double backward looks the same.
    """
    found = {}
    host = rank.host
    for lane in np.unique(host.lane):
        there = host.where(host.lane == lane)
        backward = named(trace, there, BACKWARD)
        again = (
            (there.category == Category.OPERATOR) & there.forward & contains(backward, there.start)
        )
        spans = intersect(intervals(there.start[again], there.end[again]), within)
        if len(spans):
            found[int(lane)] = spans
    return found


def recompute_times(
    again: dict[int, Intervals], rank: Rank, row: NDArray[np.int64]
) -> tuple[float, float]:
    """Host and device time of what was recomputed, in microseconds.

    ``row``: the launching call of each device event, as `launches` gives it.
    """
    host_us = measure(union(EMPTY, *again.values()))
    device_us = 0.0
    for lane, spans in again.items():
        launched = (row >= 0) & (rank.host.lane[row] == lane)
        launched &= contains(spans, rank.host.start[row])
        device_us += float(np.sum((rank.device.end - rank.device.start)[launched]))
    return host_us, device_us
