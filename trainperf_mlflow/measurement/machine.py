"""Which machine this is: so that what was calibrated on it is used on no other one."""

from __future__ import annotations

import hashlib
import os
import platform
from contextlib import suppress
from pathlib import Path

import psutil

from trainperf_mlflow.measurement.launcher import default_threads, usable_cores

_GIB = 1024**3


def cpu_name() -> str:
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def machine_digest() -> str:
    """SHA-256 of the machine's own id, its processor, memory, and the threads that measure.

    The id is hashed because it identifies a machine to anyone.
    """
    known = (
        _machine_id(),
        cpu_name(),
        str(usable_cores()),
        str(round(psutil.virtual_memory().total / _GIB)),
        str(default_threads(os.environ)),
    )
    return hashlib.sha256("\n".join(known).encode()).hexdigest()


def _machine_id() -> str:
    with suppress(OSError):
        text = Path("/etc/machine-id").read_text().strip()
        if text:
            return text
    return platform.node()
