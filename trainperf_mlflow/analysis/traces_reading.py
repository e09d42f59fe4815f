"""Reads a trace of torch.profiler into columns, block by block, in bounded memory.

The events are decoded straight into typed structs and from there into numpy
columns: nothing larger than a block of text and the columns is ever held.
"""

from __future__ import annotations

import gc
import re
from enum import IntEnum
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trainperf_mlflow.analysis.traces_events import (
    NO_ARGS,
    Event,
    Surroundings,
    blocks_of_events,
)
from trainperf_mlflow.analysis.traces_unpacking import unpacked
from trainperf_mlflow.errors import PlanError


class Category(IntEnum):
    """What an event is."""

    OPERATOR = 1
    MARK = 2
    CALL = 3  # a call of the device's runtime or driver by the host
    KERNEL = 4
    MEMCPY = 5
    MEMSET = 6


_CATEGORIES = {
    "cpu_op": Category.OPERATOR,
    "operator": Category.OPERATOR,
    "user_annotation": Category.MARK,
    "runtime": Category.CALL,
    "kernel": Category.KERNEL,
    "gpu_memcpy": Category.MEMCPY,
    "memcpy": Category.MEMCPY,
    "gpu_memset": Category.MEMSET,
    "memset": Category.MEMSET,
}
_FLOWS = {"ac2g", "async_cpu_to_gpu", "async_gpu"}
# Old profilers write marks as operators.
_MARK_NAME = re.compile(r"ProfilerStep#|phase\.|enumerate\(DataLoader\)|Optimizer\.\w+#")


class Columns(NamedTuple):
    """Events as columns, all of the same length.

    ``name`` and ``lane`` index ``Trace.names`` and ``Trace.lanes``; times are in
    microseconds since the trace's first event. ``correlation`` joins a device's
    event to the call that launched it, -1 where unknown. ``forward``: an
    operator that autograd recorded, so no part of a backward function.
    """

    category: NDArray[np.int8]
    name: NDArray[np.int32]
    lane: NDArray[np.int32]
    start: NDArray[np.float64]
    end: NDArray[np.float64]
    correlation: NDArray[np.int64]
    forward: NDArray[np.bool_]

    def where(self, chosen: NDArray[Any]) -> Columns:
        """Only these rows: a mask or indices."""
        return Columns(*(column[chosen] for column in self))

    @property
    def size(self) -> int:
        """How many."""
        return len(self.category)


class Trace(NamedTuple):
    """A trace: its events, the texts that they index, and what the file says about itself.

    ``lanes`` are (process, thread) on the host, (device, stream) on a device.
    ``problems`` are sentences about what could not be read.
    """

    events: Columns
    names: list[str]
    lanes: list[tuple[str, str]]
    metadata: dict[str, Any]
    problems: list[str]
    sequenced: bool


def read_trace(path: str | Path) -> Trace:
    """The events of a .json or .json.gz file that torch.profiler has written.

    Raises:
        PlanError: no file, no trace, cut off, damaged, or too large.
    """
    path = Path(path)
    table, around = _Table(), Surroundings(path.name)
    collecting = gc.isenabled()
    gc.disable()  # thousands of small objects that live for one block only
    try:
        for events in blocks_of_events(unpacked(path), around):
            table.add(events)
    finally:
        if collecting:
            gc.enable()
    if not table.blocks:
        raise PlanError(
            f"{path.name} has no events of training in it: record at least one active step "
            "with torch.profiler, and export the trace after it"
        )
    return table.trace(around)


class _Table:
    """Gathers blocks of events as columns."""

    def __init__(self) -> None:
        self.blocks: list[tuple[NDArray[Any], ...]] = []
        self.flows: dict[tuple[Any, Any, float], int] = {}
        self.names: dict[Any, int] = {}
        self.lanes: dict[tuple[Any, Any], int] = {}
        self.categories: dict[str | None, int] = {}
        self.sequenced = False
        self.uncorrelated = False

    def add(self, events: list[Event]) -> None:
        kept = [
            event
            for event in events
            if event.ph == "X" and self._category(event.cat) and event.dur >= 0.0
        ]
        if kept:
            self.blocks.append(self._columns(kept))
        if self.uncorrelated:
            self.flows |= {
                (event.pid, event.tid, event.ts): _whole(event.id)
                for event in events
                if event.ph in ("s", "f") and event.cat in _FLOWS
            }

    def _category(self, text: str | None) -> int:
        code = self.categories.get(text)
        if code is None:
            plain = (text or "").lower()
            if plain.endswith(("_runtime", "_driver")):
                plain = "runtime"
            code = self.categories[text] = int(_CATEGORIES.get(plain, 0))
        return code

    def _columns(self, events: list[Event]) -> tuple[NDArray[Any], ...]:
        names, lanes, categories = self.names, self.lanes, self.categories
        args = [event.args or NO_ARGS for event in events]
        category = np.array([categories[event.cat] for event in events], np.int8)
        correlation = np.array([arg.correlation for arg in args])
        sequence = np.array([arg.sequence for arg in args])
        forward_thread = np.array([arg.forward_thread for arg in args])
        start = np.array([event.ts for event in events])
        self.sequenced |= bool(np.any(sequence >= 0))
        self.uncorrelated |= bool(np.any((correlation < 0) & (category >= Category.CALL)))
        return (
            category,
            np.array([names.setdefault(event.name, len(names)) for event in events], np.int32),
            np.array(
                [lanes.setdefault((event.pid, event.tid), len(lanes)) for event in events],
                np.int32,
            ),
            start,
            start + np.array([event.dur for event in events]),
            correlation,
            (sequence >= 0) & (forward_thread == 0),
        )

    def trace(self, around: Surroundings) -> Trace:
        events = Columns(*(np.concatenate(column) for column in zip(*self.blocks, strict=True)))
        names = [str(name) for name in self.names]
        marks = np.array([bool(_MARK_NAME.match(name)) for name in names])
        is_mark = marks[events.name] & (events.category == Category.OPERATOR)
        events.category[is_mark] = Category.MARK
        self._correlate(events)
        first = events.start.min()
        if around.unreadable:
            around.problems.append(
                f"{around.unreadable} events could not be read and were left out"
            )
        return Trace(
            events._replace(start=events.start - first, end=events.end - first),
            names,
            [(str(process), str(thread)) for process, thread in self.lanes],
            around.metadata,
            around.problems,
            self.sequenced,
        )

    def _correlate(self, events: Columns) -> None:
        """Joins by the flow arrows what names no correlation itself."""
        joins = (events.correlation < 0) & (events.category >= Category.CALL)
        lanes = list(self.lanes)
        for index in np.flatnonzero(joins) if self.flows else ():
            place = (*lanes[events.lane[index]], float(events.start[index]))
            events.correlation[index] = self.flows.get(place, -1)


def _whole(value: object) -> int:
    """A number that a profiler may have written as a text; -1 where it is none."""
    try:
        return int(value)  # type: ignore[call-overload, no-any-return]
    except (TypeError, ValueError, OverflowError):
        return -1
