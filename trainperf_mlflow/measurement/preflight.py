"""What this machine can and cannot do, and what to do about it: the checks of ``doctor``
that need no store. They are also the preflight of every study."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import shutil
import sys
from collections.abc import Iterator

import psutil

from trainperf_mlflow.analysis.noise import judge_machine
from trainperf_mlflow.measurement.launcher import default_threads, usable_cores
from trainperf_mlflow.measurement.watch import watched
from trainperf_mlflow.results.check import Check

GIB = 1024**3
LOW_MEMORY_BYTES = 2 * GIB
OLDEST_PYTHON = (3, 11)
OPTIONAL_PACKAGES = {
    "modelscope": "models from ModelScope: pip install 'trainperf-mlflow[modelscope]'",
    "pynvml": "clock, heat and power of NVIDIA GPUs: pip install nvidia-ml-py",
    "psycopg2": "a PostgreSQL store: pip install 'trainperf-mlflow[postgres]'",
}


def machine_checks() -> tuple[Check, ...]:
    """Python, memory, cores and load, optional packages."""
    return (
        _python(),
        _memory(),
        _cores(),
        *_optional_packages(),
    )


def _python() -> Check:
    version = platform.python_version()
    if sys.version_info < OLDEST_PYTHON:
        return Check(
            check="python", status="fail", detail=version, remedy="use Python 3.11 or newer"
        )
    return Check(check="python", status="ok", detail=f"{version} on {platform.platform()}")


def _memory() -> Check:
    memory = psutil.virtual_memory()
    detail = f"{memory.available / GIB:.1f} of {memory.total / GIB:.1f} GiB available"
    if memory.available < LOW_MEMORY_BYTES:
        return Check(
            check="memory",
            status="warn",
            detail=detail,
            remedy="close other programs; the 0.5B model needs about 10 GiB in fp32",
        )
    return Check(check="memory", status="ok", detail=detail)


def _cores() -> Check:
    cores = usable_cores()
    load = psutil.getloadavg()[0]
    threads = default_threads(os.environ)
    detail = f"{cores} usable, {threads} used for measuring, load {load:.1f}"
    if load > cores / 2:
        return Check(
            check="cores",
            status="warn",
            detail=detail,
            remedy="other programs are busy; times will be noisy, stop them or wait",
        )
    return Check(check="cores", status="ok", detail=detail)


def noise_check(seconds: float = 1.0) -> Check:
    """How quiet the machine is now; to be asked while nothing of ours runs."""
    return judge_machine(*watched(seconds), usable_cores(), default_threads(os.environ))


def _optional_packages() -> Iterator[Check]:
    for package, remedy in OPTIONAL_PACKAGES.items():
        if importlib.util.find_spec(package) is None:
            yield Check(
                check=package, status="ok", detail="not installed (optional)", remedy=remedy
            )
        else:
            yield Check(check=package, status="ok", detail="installed")


def torch_checks() -> tuple[Check, ...]:
    """Torch, transformers and the devices. Asks the accelerator, so it runs in a worker."""
    import torch

    checks = [
        Check(check="torch", status="ok", detail=torch.__version__),
        Check(check="transformers", status="ok", detail=importlib.metadata.version("transformers")),
    ]
    if not torch.accelerator.is_available():
        checks.append(
            Check(
                check="accelerator",
                status="ok",
                detail="none; measuring on the CPU",
                remedy="trainperf measures there too; for a GPU install a torch build for it",
            )
        )
    else:
        checks.extend(_accelerators())
    checks.append(_compiler())
    return (*checks, *_peaks())


def _accelerators() -> Iterator[Check]:
    import torch

    from trainperf_mlflow.measurement.environment import device_name

    kind = torch.accelerator.current_accelerator()
    assert kind is not None
    for index in range(torch.accelerator.device_count()):
        device = torch.device(kind.type, index)
        detail = device_name(device)
        if kind.type == "cuda":
            free, total = torch.cuda.mem_get_info(device)
            major, minor = torch.cuda.get_device_capability(device)
            detail += (
                f", {free / GIB:.1f} of {total / GIB:.1f} GiB free, capability {major}.{minor}"
            )
        yield Check(check=str(device), status="ok", detail=detail)


def _peaks() -> Iterator[Check]:
    """What each device does at most, timed now, and what its data sheet says."""
    import torch

    from trainperf_mlflow.analysis.devices import data_sheet_peaks, rates
    from trainperf_mlflow.measurement.environment import device_name
    from trainperf_mlflow.measurement.peaks import measured_peaks

    kind = torch.accelerator.current_accelerator()
    count = torch.accelerator.device_count() if kind is not None else 0
    devices = [torch.device(kind.type, index) for index in range(count) if kind is not None]
    for device in (torch.device("cpu"), *devices):
        stated = data_sheet_peaks(device_name(device)) if device.type != "cpu" else None
        found = [rates(peaks) for peaks in (measured_peaks(device), stated) if peaks is not None]
        yield Check(
            check=f"peaks of {device}",
            status="ok" if found else "warn",
            detail="; ".join(found) or "matrix products and copies could not be timed",
            remedy="" if found else "rooflines and MFU stay unknown there; is its memory full?",
        )


def _compiler() -> Check:
    compiler = next((name for name in ("g++", "clang++", "c++") if shutil.which(name)), None)
    if compiler is None:
        return Check(
            check="C++ compiler",
            status="warn",
            detail="none found",
            remedy="the strategy compile needs one on a CPU: install g++",
        )
    return Check(check="C++ compiler", status="ok", detail=compiler)
