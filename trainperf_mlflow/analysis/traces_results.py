"""What a trace says, as data. All times are in microseconds."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict


class _Result(BaseModel):
    model_config = ConfigDict(frozen=True)


SAME = 0.005  # a smaller share than that is no change that a table of whole percents shows


class Breakdown(_Result):
    """A stretch of time and its disjoint parts, which add up to it."""

    total_us: float
    parts_us: dict[str, float]


class Step(Breakdown):
    """One marked step."""

    name: str


class Phase(Breakdown):
    """All of one phase. ``device_us``: the device's time for what the phase launched."""

    device_us: float


class KindTime(_Result):
    """All work of one kind. Work on several streams at once counts on each."""

    count: int
    total_us: float
    precision_us: dict[str, float] = {}


class Kernel(_Result):
    """All runs of one kernel or copy within the steps."""

    name: str
    kind: str
    precision: str
    count: int
    total_us: float


class Operator(_Result):
    """All runs of one operator within the steps.

    ``self_us`` is its time on the host without the operators that it calls, ``device_us`` that
    of the kernels that it launched itself.
    """

    name: str
    kind: str
    count: int
    self_us: float
    device_us: float


class DataWait(_Result):
    """Waiting for data: on the host, and what of it no other work hid."""

    count: int
    host_us: float
    exposed_us: float


class Recompute(_Result):
    """Forward operators that ran again in backward, as activation checkpointing does."""

    host_us: float
    device_us: float


class RankTime(Breakdown):
    """One training process of a merged trace."""

    process: str
    steps: int


class TraceAnalysis(_Result):
    """One trace; of a merged one, the rank that took longest.

    ``parts_us`` is explained in `traces_parts`. ``device``: `cpu` where no device was traced.
    ``data_wait`` and ``recompute`` are None where the trace cannot tell.
    """

    schema_version: Literal["trainperf-trace/v1"] = "trainperf-trace/v1"
    file: str
    device: str
    rank: int | None
    world_size: int | None
    steps: int
    total_us: float
    busy_us: float
    idle_us: float
    parts_us: dict[str, float]
    per_step: list[Step]
    phases: dict[str, Phase]
    phases_from: Literal["marks", "inferred", "none"]
    kernels: dict[str, KindTime]
    operators: dict[str, KindTime]
    data_wait: DataWait | None
    recompute: Recompute | None
    top_kernels: list[Kernel]
    top_operators: list[Operator]
    ranks: list[RankTime]
    missing: list[str]

    def summary(self, top: int) -> dict[str, Any]:
        """For machines, with the largest kernels and operators only."""
        found = self.model_dump(mode="json")
        for name in ("top_kernels", "top_operators"):
            found[name] = found[name][:top]
        return found


class Change(_Result):
    """One figure in two traces, per step where both have steps. None: not there at all."""

    name: str
    before_us: float | None
    after_us: float | None

    @property
    def delta_us(self) -> float:
        """How much more it is in the second trace."""
        return (self.after_us or 0.0) - (self.before_us or 0.0)


class TraceComparison(_Result):
    """Two traces side by side; all figures ``per`` step or per whole trace.

    ``kernels`` and ``operators`` are ordered by the size of their change. An
    operator's figure is the time of the kernels it launched, or, where either
    trace has no device, its own time on the host.
    """

    schema_version: Literal["trainperf-trace-comparison/v1"] = "trainperf-trace-comparison/v1"
    before: TraceAnalysis
    after: TraceAnalysis
    per: Literal["step", "trace"]
    total: Change
    parts: list[Change]
    phases: list[Change]
    kinds: list[Change]
    kernels: list[Change]
    operators: list[Change]
    missing: list[str]

    def summary(self, top: int) -> dict[str, Any]:
        """For machines, with the largest changes of each sort only."""
        return {
            "schema_version": self.schema_version,
            "per": self.per,
            "traces": [self.before.summary(top), self.after.summary(top)],
            "total_us": _row(self.total),
            "parts_us": {change.name: _row(change) for change in self.parts},
            "phases": {change.name: _row(change) for change in self.phases},
            "kinds": {change.name: _row(change) for change in self.kinds},
            "kernels": _sorted_out(self.kernels, top),
            "operators": _sorted_out(self.operators, top),
            "missing": self.missing,
        }


def verdict(change: Change) -> str:
    """One of grew, shrank, new, vanished, same, the last within half a percent.

    >>> verdict(Change(name="x", before_us=None, after_us=1.0))
    'new'
    """
    if change.before_us is None:
        return "new"
    if change.after_us is None:
        return "vanished"
    if abs(change.delta_us) < SAME * max(abs(change.before_us), abs(change.after_us)):
        return "same"
    return "grew" if change.delta_us > 0 else "shrank" if change.delta_us < 0 else "same"


def _row(change: Change) -> dict[str, float | None]:
    return {
        "before_us": change.before_us,
        "after_us": change.after_us,
        "delta_us": change.delta_us,
    }


def _sorted_out(changes: list[Change], top: int) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {
        name: [] for name in ("grew", "shrank", "new", "vanished")
    }
    for change in changes:
        rows = found.get(verdict(change), [])
        if len(rows) < top:
            rows.append({"name": change.name, **_row(change)})
    return found
