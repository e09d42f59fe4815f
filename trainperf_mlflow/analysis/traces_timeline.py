"""One step of a trace as spans of its phases, on the host and on the device."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np

from trainperf_mlflow.analysis.intervals import Intervals, contains, intersect, intervals, union
from trainperf_mlflow.analysis.traces_marks import launches, phases_of, ranks_of, windows_of
from trainperf_mlflow.analysis.traces_reading import read_trace

# Pieces nearer than this part of the step are drawn as one: no screen tells them apart.
_RESOLUTION = 1 / 1500


class Span(NamedTuple):
    """A phase's piece of a step; ms since the step's start."""

    phase: str
    start_ms: float
    end_ms: float


class TracedStep(NamedTuple):
    """A step of a trace."""

    total_ms: float
    host: tuple[Span, ...]  # disjoint, they fill the step
    device: tuple[Span, ...]  # when the device worked on what a phase had asked for


def typical_step(path: str | Path) -> TracedStep | None:
    """The marked step of median length of a trace's first process; None where none is marked.

    Raises:
        PlanError: the file is no trace, or cannot be read in full.
    """
    trace = read_trace(path)
    rank = ranks_of(trace)[0]
    windows = windows_of(trace, rank)
    if not windows.marked:
        return None
    lengths = windows.spans[:, 1] - windows.spans[:, 0]
    row = int(np.argsort(lengths, kind="stable")[(len(lengths) - 1) // 2])
    step = windows.spans[row : row + 1]
    phases = phases_of(trace, rank.host, step)
    if phases.source == "none":
        return None
    host, device = [], []
    call = launches(rank)
    asked = np.where(call >= 0, rank.host.start[call], np.nan)
    for phase, spans in phases.spans.items():
        host += _spans(phase, intersect(spans, step), step)
        own = contains(spans, asked)
        device += _spans(phase, intervals(rank.device.start[own], rank.device.end[own]), step)
    return TracedStep(float(lengths[row]) / 1000, _in_order(host), _in_order(device))


def _spans(phase: str, spans: Intervals, step: Intervals) -> list[Span]:
    start, length = float(step[0, 0]), float(step[0, 1] - step[0, 0])
    return [
        Span(phase, (float(begin) - start) / 1000, (float(end) - start) / 1000)
        for begin, end in _merged(spans, length * _RESOLUTION)
    ]


def _merged(spans: Intervals, gap: float) -> Intervals:
    """Spans with gaps shorter than ``gap`` between them as one."""
    if not len(spans):
        return spans
    wide = union(np.column_stack((spans[:, 0], spans[:, 1] + gap)))
    return np.column_stack((wide[:, 0], wide[:, 1] - gap))


def _in_order(spans: list[Span]) -> tuple[Span, ...]:
    return tuple(sorted(spans, key=lambda span: span.start_ms))
