"""Writes down which storages are made and freed, phase by phase, while steps run.

The same for real tensors (``categories``) and for fake ones (``estimate.ledger``).
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

import torch

from trainperf_mlflow.measurement.account import BACKWARD, FORWARD, OTHER, SETUP, Life, Segment
from trainperf_mlflow.measurement.memory import TensorTracker


class StorageLog(TensorTracker):
    """A ``TensorTracker`` that remembers every storage's life.

    ``begin`` names the phase that runs, ``label`` says what is known of a tensor. A
    storage first met as an operation's input was there before, so it is ``other``
    unless labelled.
    """

    def __init__(self, device_type: str = "cpu") -> None:
        super().__init__(device_type)
        self.lives: list[Life] = []
        self.segments = [Segment(SETUP)]
        self._living: dict[int, int] = {}  # storage -> its life
        self._pass = 0  # as in ``Life.made_in``
        self._passes = 0
        self._found: str | None = OTHER  # None: made by an operation

    def begin(self, phase: str) -> None:
        """From here on everything belongs to this phase."""
        self._pass = 0
        self.segments.append(Segment(phase, began_ns=time.perf_counter_ns()))
        if phase == FORWARD:
            self._begin_pass()

    def label(self, tensors: Iterable[torch.Tensor], category: str) -> None:
        """Say what these tensors are, from their birth on."""
        for tensor in tensors:
            self.track([tensor])
            life = self._living.get(tensor.untyped_storage()._cdata)
            if life is not None:
                self.lives[life].category = category

    @property
    def segment(self) -> Segment:
        return self.segments[-1]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if self.segment.name == BACKWARD:
            # The engine runs without grad mode; a recomputed forward pass needs it.
            if not torch.is_grad_enabled():
                self._pass = 0
            elif not self._pass:
                self._begin_pass()
        return super().__torch_dispatch__(func, types, args, kwargs)

    def _begin_pass(self) -> None:
        self._passes += 1
        self._pass = self._passes

    def _made(self, tensors: Iterable[torch.Tensor]) -> None:
        self._found = None
        try:
            super()._made(tensors)
        finally:
            self._found = OTHER

    def _see(self, storage: torch.UntypedStorage) -> None:
        before = self.current
        super()._see(storage)
        if self.current != before:
            self._changed(storage._cdata, storage.nbytes())

    def _changed(self, key: int, size: int) -> None:
        """A storage is new, or has another size than before."""
        made_in = self._pass if self._found is None else 0
        life = Life(size, len(self.segments) - 1, self._found, made_in=made_in)
        old = self._living.get(key)
        if old is not None:
            self._died(old)
            life.category, life.made_in = self.lives[old].category, self.lives[old].made_in
        self._living[key] = self._born(life)

    def _forget(self, key: int) -> None:
        super()._forget(key)
        life = self._living.pop(key, None)
        if life is not None:
            self._died(life)

    def _born(self, life: Life) -> int:
        self.lives.append(life)
        self._happened(len(self.lives) - 1, birth=True)
        return len(self.lives) - 1

    def _died(self, index: int) -> None:
        life = self.lives[index]
        life.died, life.died_in = len(self.segments) - 1, self._pass
        self._happened(index, birth=False)

    def _happened(self, life: int, *, birth: bool) -> None:
        self.segment.events.append((life, birth))
        self.segment.times_ns.append(time.perf_counter_ns())
