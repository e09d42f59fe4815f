"""The device that a prediction is for: the few facts about it that decide its memory."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from trainperf_mlflow.errors import PlanError
from trainperf_mlflow.measurement.allocator import (
    KIB,
    Allocator,
    CachingAllocator,
    ExactAllocator,
)

# cuBLAS workspaces as pairs of KiB and count (ATen/cuda/CublasHandlePool.cpp, as of torch 2.11).
DEFAULT_WORKSPACE = ":4096:2:16:8"
HOPPER_WORKSPACE = ":4096:8"
HOPPER = (9, 0)


@dataclass(frozen=True)
class Target:
    """A device by its rules.

    ``workspace`` bytes are held for each library handle: one of the thread that
    runs forward, one of the thread that runs backward.
    """

    kind: str  # cuda or cpu
    workspace: int
    not_modelled: tuple[str, ...]

    @property
    def accelerator(self) -> bool:
        """Has an allocator and kernels of its own, and the host beside it."""
        return self.kind != "cpu"

    def allocator(self) -> Allocator:
        return CachingAllocator() if self.accelerator else ExactAllocator()


def target_for(device: str, capability: tuple[int, int] | None = None) -> Target:
    """The target of a plan's device; ``auto`` is CUDA, since a CPU can be measured right here.

    Raises:
        PlanError: no rules are known for the device.
    """
    kind = device.partition(":")[0]
    if kind == "cpu":
        return Target(kind="cpu", workspace=0, not_modelled=("buffers inside an operation",))
    if kind in ("auto", "cuda"):
        return Target(
            kind="cuda",
            workspace=_workspace(capability),
            not_modelled=(
                "reserved memory, the CUDA context and what other processes hold",
                "workspaces of convolutions (cuDNN) and buffers inside other kernels",
                "compiled models, whose memory the compiler plans",
                f"allocator settings other than the default, and {_workspaces_elsewhere()}",
            ),
        )
    raise PlanError(
        f"device {device!r}: memory can be estimated for cuda and cpu only; "
        "give one of these, or measure on the device"
    )


def _workspaces_elsewhere() -> str:
    return (
        "the larger cuBLAS workspaces of capability 9.0 "
        f"(CUBLAS_WORKSPACE_CONFIG={HOPPER_WORKSPACE} counts them)"
    )


def _workspace(capability: tuple[int, int] | None) -> int:
    default = HOPPER_WORKSPACE if capability == HOPPER else DEFAULT_WORKSPACE
    return workspace_bytes(os.environ.get("CUBLAS_WORKSPACE_CONFIG") or default)


def workspace_bytes(config: str) -> int:
    """The bytes of a cuBLAS workspace setting, ``:KiB:count`` once or more.

    Raises:
        PlanError: it cannot be read.

    >>> workspace_bytes(":4096:2:16:8") / 1024**2
    8.125
    """
    if not re.fullmatch(r"(:\d{1,9}:\d{1,9})+", config):
        raise PlanError(
            f"CUBLAS_WORKSPACE_CONFIG {config!r} cannot be read; give pairs as :4096:8, or unset it"
        )
    numbers = [int(text) for text in config[1:].split(":")]
    return sum(size * count * KIB for size, count in zip(numbers[::2], numbers[1::2], strict=True))
