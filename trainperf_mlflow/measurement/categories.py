"""What the memory of a real step consists of: by phase, by category, over time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from trainperf_mlflow.attribution import PHASES, MemorySample
from trainperf_mlflow.measurement.account import (
    GRADIENTS,
    PARAMETERS,
    STATE,
    Moment,
    Peak,
    moments,
    peaks_by_phase,
    telling,
)
from trainperf_mlflow.measurement.allocator import ExactAllocator
from trainperf_mlflow.measurement.memory import MIB, resident_tensors
from trainperf_mlflow.measurement.storages import StorageLog
from trainperf_mlflow.workloads.task import Task

MAX_SAMPLES = 400
_NS_PER_MS = 1e6


class CategoryTracker(StorageLog):
    """The storages of one watched step; ask it when the step is over."""

    def peaks(self) -> dict[str, int]:
        """The most bytes alive in each phase that ran."""
        return {phase: self._peaks[phase].bytes for phase in PHASES if phase in self._peaks}

    def composition(self, phase: str) -> dict[str, int]:
        """Bytes by category at the moment of the phase's peak; they add up to it."""
        return _present(self._peaks[phase].categories)

    def over_time(self) -> tuple[MemorySample, ...]:
        """The step from its first phase on; each phase's peak is among the samples."""
        sizes, names = [], []
        for moment in self._moments():
            sizes.append(moment.bytes)
            names.append(self.segments[moment.segment].name)
        chosen = set(telling(sizes, names, MAX_SAMPLES))
        return tuple(
            self._sample(moment)
            for position, moment in enumerate(self._moments())
            if position in chosen
        )

    @cached_property
    def _peaks(self) -> dict[str, Peak]:
        return peaks_by_phase(self._moments(), self.segments)

    def _moments(self) -> Iterator[Moment]:
        step = range(1, len(self.segments))
        return moments(self.lives, self.segments, [0], step, ExactAllocator())

    def _sample(self, moment: Moment) -> MemorySample:
        segment = self.segments[moment.segment]
        at_ns = segment.began_ns if moment.event is None else segment.times_ns[moment.event]
        return MemorySample(
            at_ms=round((at_ns - self.segments[1].began_ns) / _NS_PER_MS, 3),
            phase=segment.name,
            memory_mb={k: round(v / MIB, 3) for k, v in _present(moment.categories).items()},
        )


def _present(categories: dict[str, int]) -> dict[str, int]:
    return {category: size for category, size in categories.items() if size}


class Belongings:
    """What a task keeps from step to step, by category, also where it does not name it.

    Optimizers are met when they step, and know their parameters.
    """

    def __init__(self, task: Task) -> None:
        self._task = task
        self._optimizers: list[torch.optim.Optimizer] = []

    @contextmanager
    def meet_optimizers(self) -> Iterator[None]:
        """Notice the optimizers that step inside."""

        def notice(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
            if not any(optimizer is known for known in self._optimizers):
                self._optimizers.append(optimizer)

        hook = register_optimizer_step_pre_hook(notice)
        try:
            yield
        finally:
            hook.remove()

    def label(self, tracker: CategoryTracker) -> None:
        """Tell the tracker what is there now."""
        tracker.track(resident_tensors(self._task))
        parameters = list(self._parameters())
        tracker.label(parameters, PARAMETERS)
        for module in self._task.modules():
            tracker.label(module.buffers(), PARAMETERS)
        tracker.label(self._state(parameters), STATE)
        self.label_gradients(tracker)

    def label_gradients(self, tracker: CategoryTracker) -> None:
        gradients = (p.grad for p in self._parameters() if p.grad is not None)
        tracker.label(gradients, GRADIENTS)

    def _parameters(self) -> Iterator[torch.Tensor]:
        for module in self._task.modules():
            yield from module.parameters()
        for optimizer in self._optimizers:
            for group in optimizer.param_groups:
                yield from group["params"]
        for tensor in self._task.state_tensors():
            if isinstance(tensor, torch.nn.Parameter):
                yield tensor

    def _state(self, parameters: list[torch.Tensor]) -> Iterator[torch.Tensor]:
        # Some optimizers keep the parameters themselves in their state.
        known = {id(parameter) for parameter in parameters}
        for optimizer in self._optimizers:
            for state in optimizer.state.values():
                for value in state.values():
                    if isinstance(value, torch.Tensor) and id(value) not in known:
                        yield value
