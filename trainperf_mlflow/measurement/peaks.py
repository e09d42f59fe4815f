"""What a device can do at most: from its data sheet, or timed here."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial

import torch

from trainperf_mlflow.analysis.devices import data_sheet_peaks
from trainperf_mlflow.attribution import Peaks
from trainperf_mlflow.measurement.environment import device_name
from trainperf_mlflow.measurement.timing import synchronize

SMALLEST, LARGEST = 256, 16384  # rows of the square matrices
LONG_S = 0.01  # a product that takes so long fills the device
BUDGET_S = 0.05  # of repetitions, for each number
COPY_BYTES = {"cpu": 128 * 1024**2}  # beyond the caches, as far as a small machine allows
ACCELERATOR_COPY_BYTES = 1024**3
_DTYPES = {
    "fp32": torch.float32,
    "tf32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
}
_TERA, _GIGA = 1e12, 1e9
_FIRST_TF32 = (8, 0)


def device_peaks(device: torch.device) -> Peaks | None:
    """The peaks of a device; None where neither a data sheet nor a trial tells them."""
    known = None if device.type == "cpu" else data_sheet_peaks(device_name(device))
    return known or measured_peaks(device)


def measured_peaks(
    device: torch.device, largest: int = LARGEST, copy_bytes: int | None = None
) -> Peaks | None:
    """Time matrix products and a copy on the device, well under a second in all.

    The best of several runs counts, with as many threads as this process has. A
    precision that the device lacks is left out.

    Args:
        largest: rows of the largest square matrices.
        copy_bytes: of the buffer that is copied.
    """
    size = copy_bytes or COPY_BYTES.get(device.type, ACCELERATOR_COPY_BYTES)
    tflops = {}
    for precision, dtype in _DTYPES.items():
        if precision == "tf32" and not _has_tf32(device):
            continue
        with _float32_products("high" if precision == "tf32" else "highest"):
            rate = _best_product(device, dtype, largest)
        if rate:
            tflops[precision] = rate / _TERA
    bandwidth = _best_copy(device, size)
    if not (tflops and bandwidth):
        return None
    threads = f", threads: {torch.get_num_threads()}" if device.type == "cpu" else ""
    return Peaks(
        device=device_name(device),
        tflops=tflops,
        memory_gb_s=bandwidth / _GIGA,
        source=f"timed here: matrix products and a copy{threads}",
        evidence_level="measured",
    )


def _has_tf32(device: torch.device) -> bool:
    return (
        device.type == "cuda"
        and torch.version.hip is None
        and torch.cuda.get_device_capability(device) >= _FIRST_TF32
    )


@contextmanager
def _float32_products(precision: str) -> Iterator[None]:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def _best_product(device: torch.device, dtype: torch.dtype, largest: int) -> float:
    """FLOP/s of the best square product; 0.0 where none works."""
    best, rows = 0.0, min(SMALLEST, largest)
    # What a dtype or a device cannot do is told by a RuntimeError, as is a full memory.
    with suppress(RuntimeError):
        # Numbers of some spread: a device may take less power, and run faster, for constants.
        generator = torch.Generator(device).manual_seed(0)
        while True:
            left, right = (
                torch.randn(rows, rows, device=device, generator=generator).to(dtype)
                for _ in range(2)
            )
            product = partial(torch.mm, left, right, out=torch.empty_like(left))
            seconds = _best_time(product, device, budget_s=0.0)
            best = max(best, 2 * rows**3 / seconds)
            if seconds > LONG_S or 2 * rows > largest:
                return max(best, 2 * rows**3 / _best_time(product, device, BUDGET_S))
            rows *= 2
    return best


def _best_copy(device: torch.device, size: int) -> float:
    """Bytes per second, read and written ones together; 0.0 where it does not work."""
    with suppress(RuntimeError):
        source = torch.ones(size // 4, device=device)
        copy = partial(torch.empty_like(source).copy_, source)
        return 2 * source.nbytes / _best_time(copy, device, BUDGET_S)
    return 0.0


def _best_time(run: Callable[[], object], device: torch.device, budget_s: float) -> float:
    """The shortest run after a first one, in seconds; one at least, more within the budget."""
    run()
    synchronize(device)
    best, spent = float("inf"), 0.0
    while spent <= budget_s:
        begin = time.perf_counter()
        run()
        synchronize(device)
        seconds = max(time.perf_counter() - begin, 1e-9)
        best = min(best, seconds)
        spent += seconds
    return best
