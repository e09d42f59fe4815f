"""What a prediction costs: time and peak memory of ``trainperf estimate``, imports included.

Usage: .venv/bin/python scripts/bench_estimate.py [--short]

One fresh process a row, as on the command line, with one thread. ``--short``
takes the tiny model, only to show that the script works.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from typing import NamedTuple

# The limits, as the project promises them for the 0.5B model.
SECONDS = 6.0
MIB = 600.0

TRAINPERF = (sys.executable, "-m", "trainperf_mlflow", "estimate", "--format", "json")
ROWS = {
    "fp32": ("--workload", "pressure"),
    "bf16": ("--workload", "pressure", "--set", "precision=bf16"),
    "checkpoint": ("--workload", "pressure", "--set", "checkpoint=true"),
}
SHORT_ROWS = {"tiny": ("--workload", "quick")}


class Cost(NamedTuple):
    """One fresh process: wall and CPU time in seconds, peak resident set in MiB."""

    wall_s: float
    cpu_s: float
    peak_mib: float
    predicted_mb: float


def measure(words: tuple[str, ...]) -> Cost:
    started = time.perf_counter()
    with subprocess.Popen(
        [*TRAINPERF, *words],
        stdout=subprocess.PIPE,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    ) as process:
        assert process.stdout is not None
        output = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    wall = time.perf_counter() - started
    if process.returncode:
        raise SystemExit(f"trainperf estimate {' '.join(words)} ended with {process.returncode}")
    predicted = json.loads(output)["variants"][0]["peak_mem_mb"]
    return Cost(wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, predicted)


def main() -> None:
    rows = SHORT_ROWS if "--short" in sys.argv[1:] else ROWS
    costs = {name: measure(words) for name, words in rows.items()}
    print(f"{'':12}{'wall s':>8}{'CPU s':>8}{'RSS MiB':>9}{'predicted MiB':>15}")
    for name, cost in costs.items():
        print(
            f"{name:12}{cost.wall_s:8.1f}{cost.cpu_s:8.1f}{cost.peak_mib:9.0f}"
            f"{cost.predicted_mb:15.0f}"
        )
    first = next(iter(costs.values()))
    kept = first.wall_s <= SECONDS and first.peak_mib <= MIB
    print(
        f"limit {SECONDS:.0f} s and {MIB:.0f} MiB for the first row: {'kept' if kept else 'MISSED'}"
    )
    load = os.getloadavg()[0]
    print(f"load of the machine {load:.1f}, {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
