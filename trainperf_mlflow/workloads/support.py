"""What a device cannot do: found by trying a small case, so that no device needs a list."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sysconfig
from pathlib import Path

import torch
from torch import nn

from trainperf_mlflow.errors import PlanError
from trainperf_mlflow.workloads.causal_lm import make_optimizer
from trainperf_mlflow.workloads.config import CausalLMConfig
from trainperf_mlflow.workloads.device import autocast_dtype
from trainperf_mlflow.workloads.effects import REDUCED_PRECISION_ERROR, matmul_error


def check_compile_mode(mode: str) -> None:
    """Refuse a mode that this torch does not have.

    Raises:
        PlanError: the mode is unknown.
    """
    if mode == "off":  # most studies compile nothing and need not load the compiler
        return
    from torch._inductor import list_mode_options

    known = sorted(list_mode_options())
    if mode not in known:
        raise PlanError(f"unknown compile mode {mode!r}; known: off, {', '.join(known)}")


def unsupported_reason(config: CausalLMConfig, device: torch.device) -> str | None:
    """Why this device cannot run the configuration; None where it can."""
    checks = (
        _precision(config, device),
        _matmul_precision(config, device),
        _offload(config, device),
        _compile(config, device),
        _fused(config, device),
    )
    return next((reason for reason in checks if reason), None)


def _precision(config: CausalLMConfig, device: torch.device) -> str | None:
    dtype = autocast_dtype(config.precision, device)
    if dtype is None:
        return None
    supports = getattr(torch.get_device_module(device), "is_bf16_supported", None)
    if dtype is torch.bfloat16 and supports is not None and not supports():
        return f"{device} has no bf16; fp16 may work"
    try:
        layer = nn.Linear(16, 16, device=device)
        with torch.autocast(device.type, dtype=dtype):
            out = layer(torch.ones(16, 16, device=device))
        out.float().sum().backward()
    except RuntimeError as error:
        return f"autocast to {config.precision} fails on {device}: {error}"
    if out.dtype is not dtype:
        return f"autocast to {config.precision} is not available on {device}"
    return None


def _matmul_precision(config: CausalLMConfig, device: torch.device) -> str | None:
    wanted = config.matmul_precision
    if wanted == "highest":
        return None
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision(wanted)
        error = matmul_error(device)
    finally:
        torch.set_float32_matmul_precision(before)
    if error > REDUCED_PRECISION_ERROR:
        return None
    return (
        f"matmul_precision={wanted} changes nothing on {device}: float32 products stay exact "
        f"(relative error {error:.0e}); it needs hardware with TF32, as CUDA has from capability 8"
    )


def _offload(config: CausalLMConfig, device: torch.device) -> str | None:
    if config.offload and device.type == "cpu":
        return "offload moves saved tensors to the host, where they already are when the CPU trains"
    return None


def _compile(config: CausalLMConfig, device: torch.device) -> str | None:
    if config.compile == "off":
        return None
    if device.type == "cpu":
        compiler = os.environ.get("CXX") or next(filter(shutil.which, ("g++", "clang++", "cl")), "")
        if not compiler or not shutil.which(compiler):
            return "torch.compile on the CPU needs a C++ compiler; install g++ or set CXX"
        if not (Path(sysconfig.get_path("include")) / "Python.h").is_file():
            return "torch.compile on the CPU needs Python.h; install Python's development files"
    elif device.type in ("cuda", "xpu") and importlib.util.find_spec("triton") is None:
        return f"torch.compile on {device} needs triton; install it"
    return None


def _fused(config: CausalLMConfig, device: torch.device) -> str | None:
    if not config.fused:
        return None
    parameter = nn.Parameter(torch.ones(4, device=device))
    parameter.grad = torch.ones_like(parameter)
    try:
        make_optimizer(config, [parameter]).step()
    except (RuntimeError, TypeError, ValueError) as error:
        return f"{config.optimizer} has no fused kernel on {device}: {error}"
    return None
