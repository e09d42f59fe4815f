"""The overhead benchmark works, and a worker's process keeps out of the steps what is not theirs.

No time is checked here: the benchmark prints them against their limits.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from trainperf_mlflow.measurement.launcher import Launcher, Worker

ROOT = Path(__file__).resolve().parents[1]

# Each returns as its loss what a step sees of its process.
TASKS = """
    import gc

    def collector_is_on(config):
        return lambda: float(gc.isenabled())

    def objects_out_of_its_reach(config):
        return lambda: float(gc.get_freeze_count())
"""


@pytest.fixture(scope="module")
def launcher(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Launcher]:
    folder = tmp_path_factory.mktemp("seen")
    (folder / "seen_in_steps.py").write_text(textwrap.dedent(TASKS))
    before = Path.cwd()
    os.chdir(folder)
    try:
        with Launcher() as made:
            yield made
    finally:
        os.chdir(before)


def losses_of_two_blocks(worker: Worker, factory: str) -> list[float]:
    where: dict[str, Any] = {"seed": 1, "data_seed": 1, "device": "cpu"}
    worker.ask("build", task=f"seen_in_steps:{factory}", config={}, changed={}, **where)
    blocks = [worker.ask("block", index=index, steps=2) for index in range(2)]
    return [loss for block in blocks for loss in block.losses]


def test_no_collection_of_garbage_falls_into_a_measured_step(launcher: Launcher) -> None:
    with launcher.worker() as worker:
        assert losses_of_two_blocks(worker, "collector_is_on") == [0.0] * 4


def test_a_collection_before_a_block_does_not_walk_through_what_is_imported(
    launcher: Launcher,
) -> None:
    with launcher.worker() as worker:
        counts = losses_of_two_blocks(worker, "objects_out_of_its_reach")
    # torch and transformers alone are some hundred thousand objects.
    assert min(counts) > 100_000
    assert len(set(counts)) == 1


def test_the_overhead_benchmark_prints_its_figures_and_where_the_time_goes(
    tmp_path: Path,
) -> None:
    run = subprocess.run(
        [sys.executable, ROOT / "scripts" / "bench_overhead.py", "--short"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert run.returncode == 0, run.stderr
    lines = run.stdout.splitlines()
    figures = {re.split(" {2,}", line.strip())[0]: line for line in lines[2:8]}
    assert list(figures) == [
        "median step",
        "a repeat",
        "the study, start-up and all",
        "against a script's imports too",
        "after its start-up",
        "trainperf --help (CPU)",
    ]
    assert all(line.endswith((" ok", " over")) for line in figures.values())
    assert "imports nothing heavy" in figures["trainperf --help (CPU)"]
    # Some are differences, which a busy machine can turn below zero.
    assert len(re.findall(r"^ +-?\d+\.\d{3} s  ", run.stdout, re.M)) == 15
    whole, imported, after = (float(line.split()[-3]) for line in list(figures.values())[2:5])
    assert whole > imported
    assert whole > after > 1
    assert list(tmp_path.iterdir()) == []
