"""What the memory of a step consists of, phase by phase, at the moment of each phase's peak.

Every storage's life is written down while the step runs and judged afterwards:
only then is it known what outlived the pass that made it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from trainperf_mlflow.attribution import CATEGORIES, PHASES
from trainperf_mlflow.measurement.memory import TensorTracker, resident_tensors
from trainperf_mlflow.workloads.task import Task

_FOREVER = 2**62


@dataclass
class _Life:
    """A storage of one size, from its first to its last tick."""

    size: int
    born: int
    category: str | None  # None: judged by when it was born and when it died
    span: int | None  # the pass that made it, where that was a forward pass or a recomputed one
    died: int = _FOREVER


class CategoryTracker(TensorTracker):
    """A ``TensorTracker`` that knows phases and categories.

    ``enter`` names the phase that runs, ``label`` what is known of a tensor. Time is
    a count of storages made and freed. A storage first met as an operation's input
    was there before, so it is ``other`` unless labelled.
    """

    def __init__(self, device_type: str = "cpu") -> None:
        super().__init__(device_type)
        self._phase = "other"
        self._tick = 0
        self._living: dict[int, _Life] = {}
        self._lives: list[_Life] = []
        self._peaks: dict[str, tuple[int, int]] = {}  # bytes and tick, by phase
        self._spans: list[int] = []  # the tick at which each pass ended
        self._span: int | None = None
        self._known: str | None = "other"

    def enter(self, phase: str) -> None:
        self._end_span()
        self._phase = phase
        if phase == "forward":
            self._begin_span()
        self._look()

    def label(self, tensors: Iterable[torch.Tensor], category: str) -> None:
        """Say what these are, from their beginning on."""
        for tensor in tensors:
            if tensor.device.type == self.device_type:
                storage = tensor.untyped_storage()
                self._see(storage)
                life = self._living.get(storage._cdata)
                if life is not None:
                    life.category = category

    def peaks(self) -> dict[str, int]:
        """The most bytes alive in each phase that ran."""
        return {phase: self._peaks[phase][0] for phase in PHASES if phase in self._peaks}

    def composition(self, phase: str) -> dict[str, int]:
        """Bytes by category at the moment of the phase's peak; they add up to it."""
        _, tick = self._peaks[phase]
        found = dict.fromkeys(CATEGORIES, 0)
        for life in self._lives:
            if life.born <= tick < life.died:
                found[life.category or self._judged(life)] += life.size
        return {category: size for category, size in found.items() if size}

    def _judged(self, life: _Life) -> str:
        outlived = life.span is not None and life.died > self._spans[life.span]
        return "activations" if outlived else "temporaries"

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if self._phase == "backward":
            # The engine runs without grad mode; a recomputed forward pass needs it.
            if torch.is_grad_enabled():
                self._begin_span()
            else:
                self._end_span()
        return super().__torch_dispatch__(func, types, args, kwargs)

    def _made(self, tensors: Iterable[torch.Tensor]) -> None:
        # A batch is made in its phase and then there for the whole step.
        self._known = "other" if self._phase == "data" else None
        try:
            super()._made(tensors)
        finally:
            self._known = "other"

    def _see(self, storage: torch.UntypedStorage) -> None:
        before = self.current
        super()._see(storage)
        if self.current != before:
            self._changed(storage._cdata, storage.nbytes())

    def _changed(self, key: int, size: int) -> None:
        self._tick += 1
        old = self._living.get(key)
        life = _Life(size, self._tick, self._known, self._span)
        if old is not None:  # it was resized
            old.died = self._tick
            life.category, life.span = old.category, old.span
        self._living[key] = life
        self._lives.append(life)
        self._look()

    def _forget(self, key: int) -> None:
        super()._forget(key)
        life = self._living.pop(key, None)
        if life is not None:
            self._tick += 1
            life.died = self._tick

    def _look(self) -> None:
        if self.current > self._peaks.get(self._phase, (-1, 0))[0]:
            self._peaks[self._phase] = (self.current, self._tick)

    def _begin_span(self) -> None:
        if self._span is None:
            self._span = len(self._spans)
            self._spans.append(_FOREVER)

    def _end_span(self) -> None:
        if self._span is not None:
            self._spans[self._span] = self._tick
            self._span = None


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
        tracker.label(parameters, "parameters")
        for module in self._task.modules():
            tracker.label(module.buffers(), "parameters")
        tracker.label(self._state(parameters), "optimizer_state")
        self.label_gradients(tracker)

    def label_gradients(self, tracker: CategoryTracker) -> None:
        gradients = (p.grad for p in self._parameters() if p.grad is not None)
        tracker.label(gradients, "gradients")

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
