"""Another program that wants a core, as a process of its own, and the proof that it ran.

As a program: ``neighbour.py always`` or ``neighbour.py sometimes SEED`` computes until killed.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import psutil

# How long a neighbour that comes and goes is there, and how long it is away, seconds.
SHORTEST_S, LONGEST_S = 2.0, 5.0
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


@contextmanager
def neighbour(*words: str) -> Iterator[Callable[[], float]]:
    """Let it run inside; what is given tells how many cores it has used on average so far."""
    program = subprocess.Popen(
        [sys.executable, Path(__file__).resolve(), *words], env=os.environ | _ONE_THREAD
    )
    begin = time.monotonic()

    def cores() -> float:
        used = psutil.Process(program.pid).cpu_times()
        return float(used.user + used.system) / (time.monotonic() - begin)

    try:
        yield cores
    finally:
        program.kill()
        program.wait()


def compute(seconds: float) -> None:
    matrix = np.ones((384, 384), dtype=np.float32)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        matrix @ matrix  # only the time that it takes is wanted


def main(how: str, seed: int) -> None:
    chance = random.Random(seed)
    while True:
        compute(chance.uniform(SHORTEST_S, LONGEST_S))
        if how == "sometimes":
            time.sleep(chance.uniform(SHORTEST_S, LONGEST_S))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 0)
