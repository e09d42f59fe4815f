"""What is known of one variant: what was measured, and what phases and traces show of it."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from trainperf_mlflow.analysis.traces_parts import BUSY
from trainperf_mlflow.attribution import Peaks, RooflinePoint
from trainperf_mlflow.results.record import Status
from trainperf_mlflow.results.values import VariantValues

Summary = Mapping[str, Any]
# A trace without a device has this part; one with a device never.
HOST_ONLY = "outside_operators"
_WHOLE_MIB = 1000


@dataclass(frozen=True)
class Explained:
    """A variant's values with its summaries ``phases.json`` and ``summary.json``, or ``{}``."""

    values: VariantValues
    phases: Summary = field(default_factory=dict)
    profile: Summary = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.values.name

    @property
    def has_phases(self) -> bool:
        return bool(self.phase_ms)

    @property
    def has_trace(self) -> bool:
        return bool(self.parts_ms)

    @property
    def step_ms(self) -> float:
        """A marked step, as phases were timed; 0 without phases."""
        return float(self.phases.get("step_ms") or 0.0)

    @property
    def phase_ms(self) -> dict[str, float]:
        return dict(self.phases.get("phase_ms") or {})

    @property
    def peak_mb(self) -> dict[str, float]:
        return dict(self.phases.get("peak_mem_mb") or {})

    @property
    def bottleneck(self) -> str | None:
        """The phase that takes the most time."""
        return max(self.phase_ms, key=self.phase_ms.__getitem__, default=None)

    @property
    def peak_phase(self) -> str | None:
        found = self.phases.get("global_peak_phase")
        return None if found is None else str(found)

    @property
    def memory_at_peak_mb(self) -> dict[str, float]:
        """What lives at the highest peak, by category."""
        return dict((self.phases.get("memory_mb") or {}).get(self.peak_phase) or {})

    @property
    def matmul_flops(self) -> dict[str, float]:
        return dict(self.phases.get("matmul_flops") or {})

    @property
    def parts_ms(self) -> dict[str, float]:
        """A profiled step's disjoint parts."""
        return dict(self.profile.get("parts_ms") or {})

    @property
    def on_device(self) -> bool:
        """Whether the trace is one of a device's work."""
        return self.has_trace and HOST_ONLY not in self.parts_ms

    @property
    def device_memory_mb(self) -> float | None:
        found = self.phases.get("device_memory_mb") or self.profile.get("device_memory_mb")
        return None if found is None else float(found)

    @property
    def roofline(self) -> dict[str, RooflinePoint]:
        """By name: the step and its phases."""
        points = [RooflinePoint.model_validate(p) for p in self.phases.get("roofline") or ()]
        return {point.name: point for point in points}

    @property
    def peaks(self) -> Peaks | None:
        """Those of its device."""
        found = self.phases.get("peaks")
        return None if found is None else Peaks.model_validate(found)

    def part_share(self, part: str) -> float | None:
        """A part of the profiled step, 0 to 1; None without a trace."""
        total = sum(self.parts_ms.values())
        return self.parts_ms.get(part, 0.0) / total if total > 0 else None

    @property
    def busy_share(self) -> float | None:
        """How much of a profiled step the device (without one, an operator) works."""
        total = sum(self.parts_ms.values())
        return sum(self.parts_ms.get(p, 0.0) for p in BUSY) / total if total > 0 else None

    def repeats_ms(self, phase: str | None = None) -> list[float]:
        """The mean of each repeat's steps, or of one of their phases."""
        found = [
            run["phases"]["step_ms"] if phase is None else run["phases"]["phase_ms"].get(phase)
            for run in self._ok_runs()
        ]
        return [statistics.fmean(steps) for steps in found if steps]

    def repeats_peak_mb(self, phase: str) -> list[float]:
        found = (run["phases"].get("peak_mem_mb", {}).get(phase) for run in self._ok_runs())
        return [float(mb) for mb in found if mb is not None]

    def measured(self, metric: str) -> list[float]:
        """A metric of each ok repeat that was measured for the comparison."""
        ok = [repeat for repeat in self.values.repeats if repeat.status is Status.OK]
        return [repeat.metrics[metric] for repeat in ok if metric in repeat.metrics]

    def _ok_runs(self) -> list[Summary]:
        return [run for run in self.phases.get("runs") or () if run.get("phases")]


def mib(size: float) -> str:
    """MiB for a sentence or a table: whole ones where tenths of one are nothing to them.

    >>> mib(25.41), mib(9793.2), mib(3.8e-06), mib(-0.04)
    ('25.4', '9793', '0.0', '0.0')
    """
    return f"{size:.0f}" if abs(size) >= _WHOLE_MIB else f"{round(size, 1) + 0.0:.1f}"


def percent(share: float) -> str:
    """A share as a percentage for a sentence.

    >>> percent(0.357), percent(0.0514)
    ('36 %', '5.1 %')
    """
    value = share * 100
    return f"{value:.0f} %" if value >= 10 else f"{value:.2g} %"
