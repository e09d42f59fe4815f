"""Which device trains: asked for by name, resolved once, then passed around."""

from __future__ import annotations

import platform
from pathlib import Path

import torch

from trainperf_mlflow.errors import MeasurementError, PlanError


def available_devices() -> list[str]:
    """The devices of this machine that can train, the accelerator first."""
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    if accelerator is None:
        return ["cpu"]
    count = torch.accelerator.device_count()
    return [*(f"{accelerator.type}:{index}" for index in range(count)), "cpu"]


def resolve_device(request: str) -> torch.device:
    """``auto`` is the accelerator where there is one, else the CPU.

    Raises:
        PlanError: the request names no device that could train.
        MeasurementError: it does, but this machine does not have it.
    """
    available = available_devices()
    if request == "auto":
        return torch.device(available[0])
    try:
        device = torch.device(request)
    except RuntimeError:
        device = None
    if device is None or device.type == "meta":
        raise PlanError(
            f"unknown device {request!r}; give auto, cpu, or an accelerator such as cuda, cuda:1, "
            f"xpu or mps; this machine has {', '.join(available)}"
        )
    if device.type == "cpu" and device.index in (None, 0):
        return torch.device("cpu")
    # A kind without a number is its current device, as everywhere in torch.
    index = device.index
    if index is None and f"{device.type}:0" in available:
        index = torch.accelerator.current_device_index()
    if f"{device.type}:{index}" not in available:
        raise MeasurementError(
            f"device {request!r} is not available; this machine has {', '.join(available)}; "
            "choose one of these, or auto"
        )
    return torch.device(device.type, index)


def use_device(device: torch.device) -> None:
    """Make the device the current one, so that streams and synchronisation mean it."""
    if device.type != "cpu":
        torch.accelerator.set_device_index(device.index or 0)


def device_name(device: torch.device) -> str:
    """The hardware's name, for the workload's identity."""
    module = torch.get_device_module(device)
    if device.type != "cpu":
        get_name = getattr(module, "get_device_name", None)
        return str(get_name(device)) if get_name else device.type
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(models, "") or platform.processor() or platform.machine()


def amp_dtype(device: torch.device) -> torch.dtype:
    """The source's choice for ``amp``: bf16 where the device supports it, else fp16."""
    supports = getattr(torch.get_device_module(device), "is_bf16_supported", None)
    return torch.bfloat16 if supports is None or supports() else torch.float16


def autocast_dtype(precision: str, device: torch.device) -> torch.dtype | None:
    """The dtype of autocast for a ``precision`` setting; None for fp32, which has none."""
    if precision == "amp":
        return amp_dtype(device)
    return {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16}[precision]
