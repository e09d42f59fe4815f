"""The benchmark of the trace analysis works. No time is checked here: it prints them."""

from __future__ import annotations

import re
import subprocess
import sys

from command import REPOSITORY, environment


def test_the_short_benchmark_prints_time_and_memory_of_each_reader() -> None:
    done = subprocess.run(
        [sys.executable, REPOSITORY / "scripts" / "bench_traces.py", "--short"],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    for reader in ("trainperf trace .json", "trainperf trace .json.gz", "json.load .json"):
        assert re.search(rf"^{re.escape(reader)} +[\d.]+ +\d+ +\d+", done.stdout, re.MULTILINE)
    assert "HolisticTraceAnalysis" in done.stdout
