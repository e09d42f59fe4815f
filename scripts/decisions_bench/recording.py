"""Streams are recorded by the toolkit's own workers, in the order that it gives to a study."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np
import psutil

from decisions_bench.neighbour import neighbour
from decisions_bench.streams import Stream
from trainperf_mlflow.analysis.sequential import PAIRS_PER_PROCESS_PAIR
from trainperf_mlflow.measurement.launcher import (
    Launcher,
    Worker,
    default_threads,
    usable_cores,
)
from trainperf_mlflow.measurement.pace import steps_per_block
from trainperf_mlflow.measurement.schedule import Round, paired_rounds
from trainperf_mlflow.plan import make_plan
from trainperf_mlflow.results.repeats import Block

WARMUP_STEPS = 10
SEED = 42
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
    isolation: str
    neighbour: tuple[str, ...]
    share: float  # of the time


_CONDITIONS = {
    "quiet": (),
    "one neighbour": ("always",),
    "a neighbour that comes and goes": ("sometimes", str(SEED)),
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
    # The task of the loop is found beside this script.
    environment = {"PYTHONPATH": str(SCRIPTS)}
    with _beside(setup.neighbour) as cores, Launcher(environment) as launcher:
        recorder = _Recorder(launcher, work, setup.isolation)
        names = [str(index) for index in range(len(work.variants))]
        before, rounds = psutil.cpu_times(), []
        started, since = time.time(), time.monotonic()
        # Every recording has an order of its own.
        for planned in paired_rounds(names, PAIRS_PER_PROCESS_PAIR, int(started)):
            rounds.append(recorder.round(planned))
            if len(rounds) >= least_rounds and time.monotonic() - begin >= seconds:
                break
        elapsed = time.monotonic() - since
        after = psutil.cpu_times()
        about = {
            "condition": setup.condition,
            "workload": setup.workload,
            "isolation": setup.isolation,
            "work": [amount for amount, _ in work.variants],
            "steps_per_block": recorder.steps,
            "warmup_steps": WARMUP_STEPS,
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


class _Recorder:
    """Measures rounds; the first one finds how many steps a block has."""

    def __init__(self, launcher: Launcher, work: Workload, isolation: str) -> None:
        self._launcher = launcher
        self._work = work
        self._alone = isolation == "process"
        self.steps = 0

    def round(self, planned: Round) -> list[list[Block]]:
        with ExitStack() as cleanup:
            if self._alone:
                return [
                    self._in_place(order, lambda name: self._alone_block(name, planned))
                    for order in planned.blocks
                ]
            workers = {name: self._start(name, planned, cleanup) for name in planned.starts}
            return [
                self._in_place(order, lambda name: self._block(workers[name]))
                for order in planned.blocks
            ]

    def _in_place(self, order: tuple[str, ...], block: Callable[[str], Block]) -> list[Block]:
        """Measured in the given order, returned in that of the variants."""
        measured = {name: block(name) for name in order}
        return [measured[name] for name in sorted(measured, key=int)]

    def _alone_block(self, name: str, planned: Round) -> Block:
        with ExitStack() as cleanup:
            return self._block(self._start(name, planned, cleanup))

    def _block(self, worker: Worker) -> Block:
        block = worker.ask("block", index=0, steps=self.steps)
        assert isinstance(block, Block)
        return block

    def _start(self, name: str, planned: Round, cleanup: ExitStack) -> Worker:
        worker = cleanup.enter_context(self._launcher.worker())
        _, config = self._work.variants[int(name)]
        worker.ask(
            "build",
            task=self._work.task,
            config=config,
            changed={},
            seed=SEED + planned.number,
            data_seed=SEED,
            device="cpu",
        )
        warmed = worker.ask("warmup", steps=WARMUP_STEPS)
        if not self.steps:
            self.steps = steps_per_block([median(warmed.step_ms)])
        return worker
