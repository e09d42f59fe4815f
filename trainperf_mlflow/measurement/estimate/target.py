"""The device that a prediction is for: the few facts about it that decide its memory."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import JsonValue

from trainperf_mlflow.errors import PlanError
from trainperf_mlflow.measurement.allocator import (
    KIB,
    MIB,
    Allocator,
    CachingAllocator,
    ExactAllocator,
)

# cuBLAS workspaces as pairs of KiB and count (ATen/cuda/CublasHandlePool.cpp, as of torch 2.11).
DEFAULT_WORKSPACE = ":4096:2:16:8"
HOPPER_WORKSPACE = ":4096:8"
HOPPER = (9, 0)
Capability = tuple[int, int]


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


def target_for(
    device: str, capability: Capability | None = None, *, workspace: int | None = None
) -> Target:
    """The target of a plan's device; ``auto`` is CUDA, since a CPU can be measured right here.

    Args:
        capability: of a CUDA device, such as (9, 0); most devices are alike without it.
        workspace: bytes of a cuBLAS workspace, where the device itself has told them; else
            they follow from CUBLAS_WORKSPACE_CONFIG, else from the capability.

    Raises:
        PlanError: no rules are known for the device.
    """
    kind = device.partition(":")[0]
    if kind == "cpu":
        return Target(kind="cpu", workspace=0, not_modelled=("buffers inside an operation",))
    if kind in ("auto", "cuda"):
        missing = [
            "reserved memory, the CUDA context and what other processes hold",
            "buffers inside kernels other than those of cuBLAS",
            "allocator settings other than the default",
        ]
        if workspace is None:
            workspace = _workspace(capability)
            missing.append(_other_workspaces(workspace, capability))
        return Target(kind="cuda", workspace=workspace, not_modelled=tuple(missing))
    raise PlanError(
        f"device {device!r}: memory can be estimated for cuda and cpu only; "
        "give one of these, or measure on the device"
    )


def measured_target(device: str, environment: Mapping[str, JsonValue]) -> Target:
    """The target that a measured repeat's environment describes.

    Raises:
        PlanError: no rules are known for the device.
    """
    if environment.get("torch_hip"):
        raise PlanError(
            "memory can be estimated for CUDA's kernels and libraries only, not for those of ROCm; "
            "it was measured"
        )
    capability, workspace = environment.get("capability"), environment.get("cublas_workspace_bytes")
    return target_for(
        device,
        (int(str(capability[0])), int(str(capability[1])))
        if isinstance(capability, list)
        else None,
        workspace=workspace if isinstance(workspace, int) else None,
    )


def parse_capability(text: str) -> Capability:
    """The capability of a CUDA device, as in 9.0.

    Raises:
        PlanError: it is no such number.

    >>> parse_capability("9.0")
    (9, 0)
    """
    found = re.fullmatch(r"(\d{1,2})\.(\d)", text)
    if found is None:
        raise PlanError(
            f"capability {text!r} is none of a CUDA device; give major.minor, e.g. 9.0 for an H100"
        )
    return int(found[1]), int(found[2])


def _other_workspaces(workspace: int, capability: Capability | None) -> str:
    if capability is None:
        return (
            f"cuBLAS workspaces other than {workspace / MIB:.4g} MiB for each of two threads "
            "(capability 9.0 has larger ones; give --capability)"
        )
    return (
        f"cuBLAS workspaces other than {workspace / MIB:.4g} MiB for each of two threads, "
        "as torch 2.11 has them for this capability"
    )


def _workspace(capability: Capability | None) -> int:
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
