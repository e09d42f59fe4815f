"""A log of fake storages: those that the target device would hold; and the FLOPs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from trainperf_mlflow.measurement.account import (
    BACKWARD,
    EVALUATION,
    OPTIMIZER,
    TEMPORARIES,
    Life,
)
from trainperf_mlflow.measurement.counting import counted_flops, moved_bytes
from trainperf_mlflow.measurement.storages import StorageLog

_aten = torch.ops.aten
_device_of = torch.ops.prim.device.default
# Operations that cuBLAS runs, which then wants a workspace.
_MATMULS = frozenset(
    {_aten.mm, _aten.addmm, _aten.bmm, _aten.baddbmm, _aten.addmv, _aten.mv, _aten.dot}
)
_CONVOLUTIONS = frozenset({_aten.convolution, _aten.convolution_backward})
_SCALAR_BYTES = 8
# What reading a number answers where it decides nothing but a value: a step's count, a loss.
_READS = {OPTIMIZER: 1.0, EVALUATION: 0.0}


class Ledger(StorageLog):
    """Storages of the device only: what is made while ``on_host`` is set is left out.

    Args:
        workspace: bytes that each library handle holds from its first matrix product on.
        host_scalars: numbers that an optimizer makes (its counters of steps) stay on the host.
        traffic: also count the bytes that operations move, which takes a sixth of the time.
    """

    def __init__(
        self, *, workspace: int = 0, host_scalars: bool = False, traffic: bool = False
    ) -> None:
        super().__init__()
        self.on_host = False
        self.autocast_seen = False
        self.convolution_seen = False
        self.unsupported: str | None = None  # why the log is not that of the step
        self._workspace = workspace
        self._traffic = traffic
        self._host_scalars = host_scalars
        self._handles_with_workspace: set[bool] = set()

    def _changed(self, key: int, size: int) -> None:
        scalar = self._host_scalars and size <= _SCALAR_BYTES
        if not self.on_host and not (scalar and self.segment.name == OPTIMIZER):
            super()._changed(key, size)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is _device_of:  # autograd asks for it more often than for anything else
            return args[0].device
        kwargs = kwargs or {}
        packet = func._overloadpacket
        if packet is _aten._local_scalar_dense and self.segment.name in _READS:
            return _READS[self.segment.name]
        if packet in _MATMULS:
            self._take_workspace()
        elif packet in _CONVOLUTIONS:
            self.convolution_seen = True
        elif packet.__name__.startswith("mkldnn_rnn"):
            # No other device has this kernel, and what is inside it is not to be seen.
            self.unsupported = (
                "a fused LSTM layer runs in one kernel, whose buffers and FLOPs differ by device "
                "and cannot be followed; measure it"
            )
        result = super().__torch_dispatch__(func, types, args, kwargs)
        self.segment.flops += counted_flops(func, args, kwargs, result)
        if self._traffic and not self.on_host:
            self.segment.moved_bytes += moved_bytes(func, args, kwargs, result, self.device_type)
        return result

    def track(self, tensors: Iterable[torch.Tensor]) -> None:
        for tensor in tensors:
            kind = tensor.device.type
            if kind == self.device_type:
                self._see(tensor.untyped_storage())
            elif kind != "meta":
                self.unsupported = (
                    f"the task makes tensors on {kind} by itself, where they cannot be followed; "
                    "set CUDA_VISIBLE_DEVICES= so that it takes the CPU, or measure it"
                )

    def _take_workspace(self) -> None:
        # Autograd's thread has a handle of its own.
        backward = self.segment.name == BACKWARD
        if self._workspace and backward not in self._handles_with_workspace:
            self._handles_with_workspace.add(backward)
            self._born(Life(self._workspace, len(self.segments) - 1, TEMPORARIES, kept=True))
