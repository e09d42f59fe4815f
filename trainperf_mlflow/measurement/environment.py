"""The conditions of a measurement, recorded with every repeat: ``environment.json``."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from contextlib import suppress

import psutil
import torch
from pydantic import JsonValue

from trainperf_mlflow.measurement.machine import cpu_name

# Read at process start by the allocator, the thread pools and Python: the same for all variants.
RECORDED_VARIABLES = (
    "MALLOC_TRIM_THRESHOLD_",
    "MALLOC_MMAP_THRESHOLD_",
    "MALLOC_TOP_PAD_",
    "MALLOC_ARENA_MAX",
    "LD_PRELOAD",
    "OMP_NUM_THREADS",
    "OMP_WAIT_POLICY",
    "KMP_AFFINITY",
    "PYTHONHASHSEED",
    "PYTORCH_ALLOC_CONF",
    "PYTORCH_CUDA_ALLOC_CONF",
    "CUDA_VISIBLE_DEVICES",
    "CUBLAS_WORKSPACE_CONFIG",
    "NVIDIA_TF32_OVERRIDE",
)
PACKAGES = ("torch", "transformers", "trainperf-mlflow", "numpy")
MIB = 1024**2


def environment(device: torch.device) -> dict[str, JsonValue]:
    """Versions, hardware, threads, precision and allocator settings of this process."""
    memory = psutil.virtual_memory()
    found: dict[str, JsonValue] = {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": dict(_versions()),
        "cpu": cpu_name(),
        "cores_physical": psutil.cpu_count(logical=False),
        "cores_logical": psutil.cpu_count(),
        "affinity": _affinity(),
        "memory_total_mb": memory.total / MIB,
        "memory_available_mb": memory.available / MIB,
        "load_average": list(psutil.getloadavg()),
        "threads": torch.get_num_threads(),
        "interop_threads": torch.get_num_interop_threads(),
        "matmul_precision": torch.get_float32_matmul_precision(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "variables": {name: os.environ[name] for name in RECORDED_VARIABLES if name in os.environ},
        "device": str(device),
        "device_name": device_name(device),
    }
    if device.type == "cuda":
        found |= _cuda(device)
    return found


def _affinity() -> list[JsonValue] | None:
    return [*sorted(os.sched_getaffinity(0))] if hasattr(os, "sched_getaffinity") else None


def _versions() -> list[tuple[str, str]]:
    versions = []
    for package in PACKAGES:
        with suppress(importlib.metadata.PackageNotFoundError):
            versions.append((package, importlib.metadata.version(package)))
    return versions


def device_name(device: torch.device) -> str:
    """The hardware's own name, as far as the backend tells it."""
    if device.type == "cpu":
        return cpu_name()
    backend = getattr(torch, device.type, None)
    name = getattr(backend, "get_device_name", None)
    return str(name(device)) if name is not None else device.type


def _cuda(device: torch.device) -> dict[str, JsonValue]:
    properties = torch.cuda.get_device_properties(device)
    return {
        "torch_cuda": torch.version.cuda,
        "torch_hip": torch.version.hip,
        "cublas_workspace_bytes": _cublas_workspace(),
        "capability": list(torch.cuda.get_device_capability(device)),
        "device_memory_mb": properties.total_memory / MIB,
        "cudnn": torch.backends.cudnn.version(),
        "cudnn_benchmark": torch.backends.cudnn.benchmark,
        "tf32_matmul": torch.backends.cuda.matmul.allow_tf32,
        "tf32_cudnn": torch.backends.cudnn.allow_tf32,
    }


def _cublas_workspace() -> int | None:
    # Newer releases of torch tell it.
    tell = getattr(torch.backends.cuda, "cublas_workspace_size", None)
    return None if tell is None else int(tell())
