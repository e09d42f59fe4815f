"""What is made and freed when: every storage from its birth to its death, phase by phase."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any

import torch
from torch.utils.flop_counter import flop_registry

from trainperf_mlflow.measurement.estimate.account import (
    BACKWARD,
    EVALUATION,
    OPTIMIZER,
    SETUP,
    TEMPORARIES,
    Life,
    Segment,
)
from trainperf_mlflow.measurement.memory import TensorTracker, tensors_in

_aten = torch.ops.aten
# Operations that cuBLAS runs, which then wants a workspace.
_MATMULS = frozenset(
    {_aten.mm, _aten.addmm, _aten.bmm, _aten.baddbmm, _aten.addmv, _aten.mv, _aten.dot}
)
_SCALAR_BYTES = 8
# What reading a number answers where it decides nothing but a value: a step's count, a loss.
_READS = {OPTIMIZER: 1.0, EVALUATION: 0.0}


class Ledger(TensorTracker):
    """Writes down which storages are made and freed, phase by phase; and the FLOPs.

    Storages of the device only: what is made while ``on_host`` is set is left
    out. Buffers inside an operation are not seen.

    Args:
        workspace: bytes that each library handle holds from its first matrix product on.
        host_scalars: numbers that an optimizer makes (its counters of steps) stay on the host.
    """

    def __init__(self, *, workspace: int = 0, host_scalars: bool = False) -> None:
        super().__init__()
        self.lives: list[Life] = []
        self.segments = [Segment(SETUP)]
        self.on_host = False
        self.autocast_seen = False
        self._workspace = workspace
        self._host_scalars = host_scalars
        self._handles_with_workspace: set[bool] = set()
        self._alive: dict[int, int] = {}  # storage -> its life

    def begin(self, name: str) -> None:
        """From here on everything belongs to this phase."""
        self.segments.append(Segment(name))

    def mark(self, tensors: Iterable[torch.Tensor | None], category: str) -> None:
        """Say what these tensors are, from their birth on."""
        for tensor in tensors:
            if tensor is not None:
                self.track([tensor])
                life = self._alive.get(tensor.untyped_storage()._cdata)
                if life is not None:
                    self.lives[life].category = category

    # --- storages ------------------------------------------------------------------------------

    def _see(self, storage: torch.UntypedStorage) -> None:
        key = storage._cdata
        if key in self._watches:
            return
        size = storage.nbytes()
        self._watches[key] = weakref.ref(storage, lambda _: self._forget(key))
        scalar = self._host_scalars and size <= _SCALAR_BYTES
        if size and not self.on_host and not (scalar and self._segment.name == OPTIMIZER):
            recorded = torch.is_grad_enabled()
            self._alive[key] = self._born(Life(size, len(self.segments) - 1, recorded))

    def _born(self, life: Life) -> int:
        self.lives.append(life)
        self._segment.events.append((len(self.lives) - 1, True))
        return len(self.lives) - 1

    def _forget(self, key: int) -> None:
        del self._watches[key]
        life = self._alive.pop(key, None)
        if life is not None:
            self.lives[life].died = len(self.segments) - 1
            self._segment.events.append((life, False))

    @property
    def _segment(self) -> Segment:
        return self.segments[-1]

    # --- operations ----------------------------------------------------------------------------

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        packet = func._overloadpacket
        if packet is _aten._local_scalar_dense and self._segment.name in _READS:
            return _READS[self._segment.name]
        self.autocast_seen |= torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda")
        if packet in _MATMULS:
            self._take_workspace()
        result = func(*args, **kwargs)
        self.track(tensors_in(result))
        count = flop_registry.get(packet)
        if count is not None:
            self._segment.flops += count(*args, **kwargs, out_val=result)
        return result

    def _take_workspace(self) -> None:
        # Autograd's thread has a handle of its own.
        backward = self._segment.name == BACKWARD
        if self._workspace and backward not in self._handles_with_workspace:
            self._handles_with_workspace.add(backward)
            self._born(
                Life(
                    self._workspace,
                    len(self.segments) - 1,
                    recorded=False,
                    category=TEMPORARIES,
                    kept=True,
                )
            )
