"""The source's own timing of a function, for code that calls it directly."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any


def benchmark_fn(fn: Callable[[], Any], warmup: int = 3, iters: int = 10) -> float:
    """Mean time of one call in ms, unrounded, as course project 74 defines it.

    Work that the calls left on a CUDA device is waited for; torch is not imported for that.

    Args:
        fn: what is timed.
        warmup: calls that are not counted.
        iters: calls that are.

    Raises:
        ValueError: ``warmup`` is negative or ``iters`` is not positive.

    >>> calls = []
    >>> benchmark_fn(lambda: calls.append(1), warmup=1, iters=2) >= 0.0, len(calls)
    (True, 3)
    """
    if not (_is_whole(warmup) and _is_whole(iters)) or warmup < 0 or iters < 1:
        raise ValueError(f"warmup = {warmup!r}, iters = {iters!r}; need warmup >= 0 and iters >= 1")
    for _ in range(warmup):
        fn()
    _wait()
    begin = time.perf_counter()
    for _ in range(iters):
        fn()
    _wait()
    return (time.perf_counter() - begin) / iters * 1000


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _wait() -> None:
    torch = sys.modules.get("torch")
    # Before anything has used CUDA there is nothing to wait for, and asking would start it.
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.synchronize()
