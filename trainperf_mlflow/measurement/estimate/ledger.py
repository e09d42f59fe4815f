"""What lives when: every storage from its birth to its death, by phase and category."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.flop_counter import flop_registry

from trainperf_mlflow.measurement.estimate.allocator import Allocator
from trainperf_mlflow.measurement.memory import TensorTracker, tensors_in

PARAMETERS, GRADIENTS, STATE = "parameters", "gradients", "optimizer_state"
ACTIVATIONS, TEMPORARIES = "activations", "temporaries"
CATEGORIES = (PARAMETERS, GRADIENTS, STATE, ACTIVATIONS, TEMPORARIES)
SETUP, FORWARD, BACKWARD = "setup", "forward", "backward"
OPTIMIZER, EVALUATION = "optimizer", "evaluation"

_aten = torch.ops.aten
# Operations that cuBLAS runs, which then wants a workspace.
_MATMULS = frozenset(
    {_aten.mm, _aten.addmm, _aten.bmm, _aten.baddbmm, _aten.addmv, _aten.mv, _aten.dot}
)
_NEVER = float("inf")
_SCALAR_BYTES = 8
# What reading a number answers where it decides nothing but a value: a step's count, a loss.
_READS = {OPTIMIZER: 1.0, EVALUATION: 0.0}


@dataclass
class _Life:
    """One storage: born and died as positions in the order of all births and deaths."""

    handle: int
    bytes: int
    born: int
    phase: int  # the segment in which it was born
    recorded: bool  # autograd was recording
    category: str | None = None
    died: float = _NEVER
    died_phase: float = _NEVER


@dataclass
class _Segment:
    """One phase of one step."""

    name: str
    step: int
    peak: int
    peak_at: int


class Ledger(TensorTracker):
    """Counts storages through an allocator, phase by phase; FLOPs too.

    Storages of the device only: what is made while ``on_host`` is set is not
    counted. Buffers inside an operation are not seen.

    Args:
        allocator: what it counts for a storage.
        workspace: bytes that each library handle holds from its first matrix product on.
        host_scalars: numbers that an optimizer makes (its counters of steps) stay on the host.
    """

    def __init__(
        self,
        allocator: Allocator,
        *,
        workspace: int = 0,
        host_scalars: bool = False,
    ) -> None:
        super().__init__()
        self.allocator = allocator
        self.on_host = False
        self.flops: Counter[tuple[str, int]] = Counter()
        self._workspace = workspace
        self._host_scalars = host_scalars
        self.autocast_seen = False
        self._handles_with_workspace: set[bool] = set()
        self._lives: list[_Life] = []
        self._alive: dict[int, _Life] = {}
        self._clock = 0
        self.segments = [_Segment(SETUP, -1, 0, 0)]

    # --- phases --------------------------------------------------------------------------------

    def begin(self, name: str, step: int) -> None:
        """From here on everything belongs to this phase of this step."""
        self.segments.append(_Segment(name, step, self.allocator.allocated, self._clock))

    def mark(self, tensors: Iterable[torch.Tensor | None], category: str) -> None:
        """Say what these tensors are, from their birth on."""
        for tensor in tensors:
            if tensor is not None:
                self.track([tensor])
                life = self._alive.get(tensor.untyped_storage()._cdata)
                if life is not None:
                    life.category = category

    def peak_bytes(self, name: str, step: int) -> int:
        """Peak bytes of a phase of a step; of several micro-steps the highest."""
        return self._highest(name, step).peak

    def at_peak(self, name: str, step: int) -> dict[str, int]:
        """Bytes by category at the moment of a phase's peak; they add up to it."""
        found = dict.fromkeys(CATEGORIES, 0)
        moment = self._highest(name, step).peak_at
        for life in self._lives:
            if life.born <= moment < life.died:
                found[self._category(life)] += life.bytes
        return found

    def _highest(self, name: str, step: int) -> _Segment:
        same = (s for s in self.segments if s.name == name and s.step == step)
        return max(same, key=lambda segment: segment.peak)

    def _category(self, life: _Life) -> str:
        """What nobody said follows from where a storage was born and whether it stayed."""
        if life.category is not None:
            return life.category
        stayed = life.died_phase > life.phase
        name = self.segments[life.phase].name
        if name == OPTIMIZER:
            return STATE if stayed else TEMPORARIES
        if name == FORWARD:
            return ACTIVATIONS if stayed else TEMPORARIES
        if name == BACKWARD:  # autograd records there only what checkpointing runs again
            return ACTIVATIONS if life.recorded else TEMPORARIES
        return ACTIVATIONS if name == SETUP else TEMPORARIES  # a batch that stays resident

    # --- storages ------------------------------------------------------------------------------

    def _see(self, storage: torch.UntypedStorage) -> None:
        key = storage._cdata
        if key in self._watches:
            return
        size = storage.nbytes()
        self._watches[key] = weakref.ref(storage, lambda _: self._forget(key))
        scalar = self._host_scalars and size <= _SCALAR_BYTES
        if size and not self.on_host and not (scalar and self._phase.name == OPTIMIZER):
            self._alive[key] = self._allocate(size)

    def _allocate(self, size: int, category: str | None = None) -> _Life:
        handle = self.allocator.allocate(size)
        self._clock += 1
        life = _Life(
            handle,
            self.allocator.size_of(handle),
            born=self._clock,
            phase=len(self.segments) - 1,
            recorded=torch.is_grad_enabled(),
            category=category,
        )
        self._lives.append(life)
        if self.allocator.allocated > self._phase.peak:
            self._phase.peak, self._phase.peak_at = self.allocator.allocated, self._clock
        return life

    def _forget(self, key: int) -> None:
        del self._watches[key]
        life = self._alive.pop(key, None)
        if life is not None:
            self._clock += 1
            life.died, life.died_phase = self._clock, len(self.segments) - 1
            self.allocator.free(life.handle)

    @property
    def _phase(self) -> _Segment:
        return self.segments[-1]

    # --- operations ----------------------------------------------------------------------------

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        packet = func._overloadpacket
        if packet is _aten._local_scalar_dense and self._phase.name in _READS:
            return _READS[self._phase.name]
        self.autocast_seen |= torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda")
        if packet in _MATMULS:
            self._take_workspace()
        result = func(*args, **kwargs)
        self.track(tensors_in(result))
        count = flop_registry.get(packet)
        if count is not None:
            self.flops[self._phase.name, self._phase.step] += count(*args, **kwargs, out_val=result)
        return result

    def _take_workspace(self) -> None:
        # Autograd's thread has a handle of its own.
        backward = self._phase.name == BACKWARD
        if self._workspace and backward not in self._handles_with_workspace:
            self._handles_with_workspace.add(backward)
            self._allocate(self._workspace, TEMPORARIES)
