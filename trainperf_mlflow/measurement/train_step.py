"""The source's own measurement of a training step, for code that calls it directly."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

MIB = 1024**2


def measure_train_step(
    train_step_fn: Callable[[], Any], warmup: int = 2, iters: int = 8
) -> dict[str, float]:
    """Mean time and peak memory of a step, as course project 73 defines them.

    A toolkit study measures in fresh processes and in alternating order; this
    is the plain function for a notebook.

    Args:
        train_step_fn: runs one whole training step.
        warmup: steps that are not counted.
        iters: steps that are.

    Returns:
        ``step_time_ms`` (mean, rounded to 2 decimals) and ``peak_mem_mb`` (MiB that
        CUDA's allocator held at most, rounded to 2 decimals; 0.0 without CUDA).

    Raises:
        ValueError: ``warmup`` is negative or ``iters`` is not positive.

    >>> counter = []
    >>> result = measure_train_step(lambda: counter.append(1), warmup=1, iters=2)
    >>> len(counter), sorted(result)
    (3, ['peak_mem_mb', 'step_time_ms'])
    """
    if warmup < 0 or iters < 1:
        raise ValueError(f"warmup = {warmup}, iters = {iters}; need warmup >= 0 and iters >= 1")
    import torch

    for _ in range(warmup):
        train_step_fn()
    cuda = torch.cuda.is_available()
    if cuda:
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
    begin = time.perf_counter()
    for _ in range(iters):
        train_step_fn()
    if cuda:
        torch.cuda.synchronize()
    elapsed = (time.perf_counter() - begin) / iters
    peak = torch.cuda.max_memory_allocated() / MIB if cuda else 0.0
    return {"step_time_ms": round(elapsed * 1000, 2), "peak_mem_mb": round(peak, 2)}
