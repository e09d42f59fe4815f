"""Streams are recorded as the toolkit measures studies: one study after the other."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import psutil

from decisions_bench.neighbour import neighbour
from decisions_bench.streams import BUDGET_ROUNDS, Stream
from trainperf_mlflow.analysis.sequential import PAIRS_PER_PROCESS_PAIR
from trainperf_mlflow.measurement.conductor import Job, conduct
from trainperf_mlflow.measurement.launcher import Launcher, default_threads, usable_cores
from trainperf_mlflow.measurement.schedule import Isolation
from trainperf_mlflow.plan import make_plan
from trainperf_mlflow.results import study
from trainperf_mlflow.results.record import Status
from trainperf_mlflow.results.repeats import Block, Repeat

WARMUP_STEPS = 10
# More than our own threads and what a system does anyway: somebody else is at work.
QUIET_CORES = 0.2
SCRIPTS = Path(__file__).resolve().parents[1]


class Workload(NamedTuple):
    """A task and, for each variant, its configuration and how much work its step is."""

    name: str
    task: str
    variants: tuple[tuple[int, dict[str, Any]], ...]


class Setup(NamedTuple):
    """A stream to record; ``neighbour`` are the words for that program, none where it is quiet."""

    condition: str
    workload: str
    isolation: Isolation
    neighbour: tuple[str, ...]
    share: float  # of the time


_CONDITIONS = {
    "quiet": (),
    "one neighbour": ("always",),
    "a neighbour that comes and goes": ("sometimes", "42"),
}
SETUPS = (
    *(
        Setup(condition, workload, "resident", words, 0.14)
        for condition, words in _CONDITIONS.items()
        for workload in ("model", "matrix loop")
    ),
    Setup("quiet, each block in a fresh process", "model", "process", (), 0.16),
)


def workload(name: str) -> Workload:
    """The tiny model against itself, or the loop against itself and 1, 2, 5 and 10 % more."""
    if name == "model":
        config = dict(make_plan({"workload": "quick"}).variants()[0].config)
        return Workload(name, "causal_lm", ((100, config), (100, config)))
    counts = (100, 100, 101, 102, 105, 110)
    task = "decisions_bench.matrix:matrix_loop"
    return Workload(name, task, tuple((n, {"multiplications": n}) for n in counts))


def record(
    setup: Setup, seconds: float, least_rounds: int, note: Callable[[str], None] = print
) -> Stream:
    """Rounds of fresh processes for so long, but at least some, beside the setup's neighbour."""
    begin, load = time.monotonic(), psutil.getloadavg()[0]
    work = workload(setup.workload)
    rounds: list[list[list[Block]]] = []
    # The task of the loop is found beside this script.
    environment = {"PYTHONPATH": str(SCRIPTS)}
    with _beside(setup.neighbour) as cores, Launcher(environment) as launcher:
        before, started, since = psutil.cpu_times(), time.time(), time.monotonic()

        def enough(more: int = 0) -> bool:
            late = time.monotonic() - begin >= seconds
            return len(rounds) + more >= least_rounds and late

        while not enough():
            steps = len(rounds[0][0][0].step_ms) if rounds else None
            # Every study has an order and seeds of its own.
            job = job_of(work, setup.isolation, int(started) + len(rounds), steps)
            rounds += rounds_of(conduct(job, launcher.worker, enough=enough))
        elapsed = time.monotonic() - since
        after = psutil.cpu_times()
        about = {
            "condition": setup.condition,
            "workload": setup.workload,
            "isolation": setup.isolation,
            "work": [amount for amount, _ in work.variants],
            "steps_per_block": len(rounds[0][0][0].step_ms),
            "warmup_steps": WARMUP_STEPS,
            "measured_again": sum(b.again for sets in rounds for blocks in sets for b in blocks),
            "recorded_at": time.strftime("%Y-%m-%d %H:%M", time.gmtime(started)) + " UTC",
            "seconds": round(elapsed),
            "neighbour_cores": cores and round(cores(), 2),
            "busy_cores": round((_busy_s(after) - _busy_s(before)) / elapsed, 2),
            "load_before": round(load, 1),
            **machine(),
        }
    note(f"{setup.condition}, {setup.workload}: {len(rounds)} rounds in {elapsed:.0f} s")
    others = about["busy_cores"] - about["threads"]
    if not setup.neighbour and others > QUIET_CORES:
        note(f"this machine was not quiet: {others:.1f} cores were busy with something else")
    return stream_of(rounds, about)


def job_of(work: Workload, isolation: Isolation, seed: int, steps_per_block: int | None) -> Job:
    """A study of all variants; None: with as many steps per block as the toolkit finds."""
    return Job(
        study_id="recording",
        task=work.task,
        variants=tuple(
            study.Variant(name=str(index), role="candidate" if index else "baseline", config=config)
            for index, (_, config) in enumerate(work.variants)
        ),
        workload=study.Workload(digest="", identity={}, device="cpu", name=work.name, source=""),
        repeats=BUDGET_ROUNDS,
        blocks=PAIRS_PER_PROCESS_PAIR,
        warmup_steps=WARMUP_STEPS,
        steps_per_block=steps_per_block,
        seed=seed,
        isolation=isolation,
    )


def rounds_of(repeats: Iterable[Repeat]) -> list[list[list[Block]]]:
    """The blocks of a study by round, set and variant.

    Raises:
        RuntimeError: a repeat failed.
    """
    found: dict[int, dict[int, tuple[Block, ...]]] = {}
    for repeat in repeats:
        if repeat.status is not Status.OK:
            raise RuntimeError(f"a repeat {repeat.status.value}: {repeat.error}; nothing is saved")
        found.setdefault(repeat.index, {})[int(repeat.variant)] = repeat.blocks
    return [
        [list(blocks) for blocks in zip(*(own[name] for name in sorted(own)), strict=True)]
        for _, own in sorted(found.items())
    ]


def stream_of(rounds: list[list[list[Block]]], about: dict[str, Any]) -> Stream:
    """Blocks by round, set and variant as a stream."""

    def collect(value: Callable[[Block], Any]) -> np.ndarray:
        return np.array([[[value(b) for b in blocks] for blocks in sets] for sets in rounds], "f8")

    return Stream(
        about,
        collect(lambda block: block.step_ms),
        collect(lambda block: block.step_run_delay_ms or (np.nan,) * len(block.step_ms)),
        collect(lambda block: block.wall_ms),
        collect(lambda block: np.nan if block.cpu_ms is None else block.cpu_ms),
        collect(lambda block: block.started_at),
        collect(_reference_ms),
    )


def _reference_ms(block: Block) -> tuple[float, float]:
    assert block.watch is not None
    assert block.watch.reference_ms is not None
    return block.watch.reference_ms


def machine() -> dict[str, Any]:
    """What the docs say of the machine."""
    return {
        "cpu": _cpu_name(),
        "cores": usable_cores(),
        "threads": default_threads(os.environ),
        "python": platform.python_version(),
        "torch": version("torch"),
    }


def _cpu_name() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.machine()
    names = [line.split(":", 1)[1].strip() for line in text.splitlines() if "model name" in line]
    return names[0] if names else platform.machine()


@contextmanager
def _beside(words: tuple[str, ...]) -> Iterator[Callable[[], float] | None]:
    if words:
        with neighbour(*words) as cores:
            yield cores
    else:
        yield None


def _busy_s(times: Any) -> float:
    return float(sum(times) - times.idle - getattr(times, "iowait", 0.0))
