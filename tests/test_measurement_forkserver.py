"""What the server does before it forks decides whether its children can work at all."""

from __future__ import annotations

import subprocess
import sys

from tests.command import environment

WATCHED = """
import sys
import torch

asked = []

def watch(module, name):
    original = getattr(module, name)
    def watched(*arguments, **options):
        asked.append(f"{module.__name__}.{name}{arguments}{options}")
        return original(*arguments, **options)
    setattr(module, name, watched)

for name in ("is_available", "device_count", "init", "_lazy_init", "is_bf16_supported",
             "get_device_capability", "current_device"):
    watch(torch.cuda, name)
for name in ("is_available", "device_count", "current_accelerator"):
    watch(torch.accelerator, name)

import threading
from trainperf_mlflow.measurement.forkserver import preload_modules
preload_modules()
assert "trainperf_mlflow.measurement.worker" in sys.modules
# Which accelerator this build is for is known without asking the device (and so documented).
assert set(asked) <= {"torch.accelerator.current_accelerator(){}"}, asked
assert threading.active_count() == 1, threading.enumerate()
print("clean")
"""


XPU_BUILD = """
import sys
import torch
torch.xpu._is_compiled = lambda: True
from trainperf_mlflow.measurement.forkserver import preload_modules
preload_modules()
assert "transformers" not in sys.modules
"""


def test_a_build_for_xpu_preloads_nothing_that_would_start_its_driver() -> None:
    subprocess.run([sys.executable, "-c", XPU_BUILD], env=environment(), check=True)


def test_preloading_asks_no_accelerator_and_starts_no_thread() -> None:
    # One such question before the fork, and CUDA cannot be used in any child.
    done = subprocess.run(
        [sys.executable, "-c", WATCHED],
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip().endswith("clean")
