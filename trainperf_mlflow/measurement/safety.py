"""Before a phase is measured: does the peak that is to be expected fit, with a margin?"""

from __future__ import annotations

import psutil
import torch

from trainperf_mlflow.attribution import (
    MINIMUM_FREE_MARGIN_MB,
    PROCESS_MEMORY_FRACTION,
    Safety,
)
from trainperf_mlflow.measurement.memory import MIB, allocator_peak, rss_peak_mb
from trainperf_mlflow.workloads.device import use_device


def memory_safety(device: torch.device, projected_mb: float | None) -> Safety:
    """Free memory of the device (of the host, for a CPU) against peak plus margin; MiB.

    Args:
        projected_mb: the reserved memory (on a CPU, the resident set) that the study measured
            at most; None where it measured none, and everything is admitted.
    """
    free_mb, total_mb = _free_and_total_mb(device)
    required_mb = None if projected_mb is None else projected_mb + MINIMUM_FREE_MARGIN_MB
    return Safety(
        free_memory_mb_before_load=free_mb,
        total_memory_mb=total_mb,
        projected_peak_reserved_mb=projected_mb,
        minimum_free_margin_mb=MINIMUM_FREE_MARGIN_MB,
        required_free_memory_mb=required_mb,
        process_memory_fraction=None if device.type == "cpu" else PROCESS_MEMORY_FRACTION,
        admitted=required_mb is None or free_mb >= required_mb,
    )


def limit_process_memory(device: torch.device, fraction: float = PROCESS_MEMORY_FRACTION) -> None:
    """Let this process take at most a share of the device, so that it fails before others do.

    Raises:
        ValueError: the fraction is not in (0, 1].
    """
    if not 0 < fraction <= 1:
        raise ValueError(f"process memory fraction {fraction} is not in (0, 1]")
    limit = getattr(torch.get_device_module(device), "set_per_process_memory_fraction", None)
    if device.type != "cpu" and limit is not None:
        use_device(device)
        limit(fraction, device)


def held_and_free_mb(device: torch.device) -> tuple[float | None, float | None]:
    """What this process has held at most of the memory that it trains in, and what is free
    there for others; MiB, None where it cannot be known."""
    free_mb, _ = _free_and_total_mb(device)
    if device.type == "cpu":
        return rss_peak_mb(), free_mb
    peak = allocator_peak(device)
    known = hasattr(torch.get_device_module(device), "mem_get_info")
    return (None, None) if peak is None or not known else (peak.reserved_mb, free_mb)


def _free_and_total_mb(device: torch.device) -> tuple[float, float]:
    ask = getattr(torch.get_device_module(device), "mem_get_info", None)
    if device.type != "cpu" and ask is not None:
        free, total = ask(device)
        return free / MIB, total / MIB
    memory = psutil.virtual_memory()
    return memory.available / MIB, memory.total / MIB
