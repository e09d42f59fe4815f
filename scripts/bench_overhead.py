"""What the toolkit costs on top of the training that it measures, against the limits it promises.

Usage: .venv/bin/python scripts/bench_overhead.py [--short]

Bare training and toolkit are compared in one run, in processes forked alike,
with the same threads and allocator settings, in turns, so that what slows the
machine slows both. ``--short`` only shows that the script works: its numbers
mean nothing.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from statistics import mean, median
from subprocess import DEVNULL
from typing import Any, NamedTuple

import psutil

from trainperf_mlflow.measurement.forkserver import PRELOADED
from trainperf_mlflow.measurement.launcher import (
    Launcher,
    default_threads,
    usable_cores,
    worker_environment,
)
from trainperf_mlflow.plan import Plan, make_plan
from trainperf_mlflow.results.record import Setting
from trainperf_mlflow.results.repeats import Repeat
from trainperf_mlflow.results.study import Study

# The limits, as the project promises them.
STEP_RATIO = 1.01
STEP_MS = 0.05
REPEAT_S = 1.0
STUDY_RATIO = 1.5
HELP_CPU_S = 0.3
# Bare and toolkit study train the same: more apart than this, and something else ran beside one.
SAME_LOAD = 0.1
HEAVY = ("torch", "transformers", "mlflow", "pandas")

# Steps are fixed, so that the bare study trains the same ones.
STUDY: dict[str, Any] = {
    **{"workload": "quick", "candidates": ["bf16", "checkpoint"], "repeats": 3},
    **{"blocks": 1, "warmup": 3, "iters": 30, "isolation": "process"},
}
SHORT_STUDY: dict[str, Any] = {
    **STUDY,
    **{"repeats": 1, "warmup": 2, "iters": 2, "set": {"seq_len": 16, "batch_size": 1}},
}
STEP_PAIRS, SHORT_STEP_PAIRS = 16, 2
HELP_RUNS = 5
TORCH = "importing torch and transformers"
DEVICE = "cpu"
TRAINPERF = (sys.executable, "-m", "trainperf_mlflow")


class Figure(NamedTuple):
    """One line of the table."""

    name: str
    bare: str
    toolkit: str
    compared: str
    limit: str
    ok: bool


# --- in processes of their own -----------------------------------------------------------------


@contextmanager
def fresh_processes() -> Iterator[Executor]:
    """Each task runs in a new process, forked by Python's own server with all imports done."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(PRELOADED))
    before = dict(os.environ)
    with ProcessPoolExecutor(1, mp_context=context, max_tasks_per_child=1) as pool:
        os.environ.update(worker_environment(before))
        try:
            pool.submit(int).result()  # the server starts now, with the workers' environment
        finally:
            os.environ.clear()
            os.environ.update(before)
        yield pool


def prepared(config: Mapping[str, Setting], seed: int, data_seed: int) -> Any:
    """The built-in task, built under the threads of a worker."""
    import torch

    from trainperf_mlflow.workloads.task import build_task

    torch.set_num_threads(int(os.environ["TRAINPERF_THREADS"]))
    return build_task("causal_lm", config, seed, torch.device(DEVICE), data_seed)


def bare_repeat(config: Mapping[str, Setting], seed: int, data_seed: int, steps: int) -> float:
    """Seconds to build a model and to train it for some steps, and nothing else."""
    from trainperf_mlflow.workloads.task import run_step

    begin = time.perf_counter()
    task = prepared(config, seed, data_seed)
    for _ in range(steps):
        run_step(task)
    return time.perf_counter() - begin


class Steps(NamedTuple):
    """Medians of alternating blocks, bare and by the toolkit (ms), and what follows them (s)."""

    pairs: list[tuple[float, float]]
    evaluation_s: float
    observed_step_s: float


def step_pairs(config: Mapping[str, Setting], seed: int, pairs: int, steps: int) -> Steps:
    """The same model trained in turns by a plain loop of torch and by the toolkit."""
    import torch

    from trainperf_mlflow.measurement.audit import audit
    from trainperf_mlflow.measurement.timing import timed_block
    from trainperf_mlflow.workloads.task import run_step

    task = prepared(config, seed, seed)

    def bare() -> float:
        times = []
        for _ in range(steps):
            begin = time.perf_counter_ns()
            task.optimizer.zero_grad(set_to_none=True)
            batch = task.batches.next()
            task.model(input_ids=batch, labels=batch).loss.backward()
            task.optimizer.step()
            times.append((time.perf_counter_ns() - begin) / 1e6)
        return median(times)

    def toolkit() -> float:
        return median(timed_block(lambda: run_step(task), steps, task.device, 0).step_ms)

    bare(), toolkit()
    taken = []
    for pair in range(pairs):
        if pair % 2:
            second = toolkit()
            taken.append((bare(), second))
        else:
            taken.append((bare(), toolkit()))
    marks = [time.perf_counter()]
    task.evaluate()
    marks.append(time.perf_counter())
    audit(task, torch.device(DEVICE), compiled=False)
    marks.append(time.perf_counter())
    return Steps(taken, marks[1] - marks[0], marks[2] - marks[1])


# --- a whole study -----------------------------------------------------------------------------


class Run(NamedTuple):
    """A study as a user runs it: Unix seconds, and what it recorded."""

    began: float
    ended: float
    study: Study
    repeats: list[Repeat]

    @property
    def seconds(self) -> float:
        return self.ended - self.began

    @property
    def start_up(self) -> float:
        """Until the study is made: imports, the store's schema, the workload's description."""
        return self.study.created_at - self.began

    @property
    def training(self) -> float:
        """What the bare study does, as it was recorded here."""
        return sum(map(training_s, self.repeats))

    @property
    def recording(self) -> list[float]:
        """From the end of a repeat to the start of the next one."""
        return [after.started_at - before.ended_at for before, after in pairwise(self.repeats)]


def run_study(settings: Mapping[str, Any], folder: Path) -> Run:
    """``trainperf measure`` in a process of its own, into a new store."""
    (folder / "plan.yaml").write_text(json.dumps(settings))  # JSON is YAML
    flags = ["--plan", "plan.yaml", "--device", DEVICE, "--format", "json"]
    environment = os.environ | {"MLFLOW_TRACKING_URI": f"sqlite:///{folder / 'mlflow.db'}"}
    began = time.time()
    subprocess.run(
        [*TRAINPERF, "measure", *flags], cwd=folder, env=environment, check=True, stdout=DEVNULL
    )
    ended = time.time()
    (file,) = folder.rglob("study.json")
    study = Study.from_json(file.read_text())
    repeats = [Repeat.from_json(file.read_text()) for file in folder.rglob("result.json")]
    return Run(began, ended, study, sorted(repeats, key=lambda repeat: repeat.started_at))


def training_s(repeat: Repeat) -> float:
    """Seconds of a repeat that belong to the training: the build and all steps."""
    steps = [step for block in repeat.blocks for step in block.step_ms]
    # Of the warmup only the first step's time is recorded.
    warmup_ms = (repeat.first_step_ms or 0.0) + (repeat.warmup_steps - 1) * median(steps)
    blocks_ms = sum(block.wall_ms for block in repeat.blocks)
    return (repeat.build_s or 0.0) + (warmup_ms + blocks_ms) / 1000


def before_blocks_s(repeat: Repeat) -> float:
    """Seconds of a repeat before its measured steps that are neither build nor warmup."""
    blocks_s = sum(block.wall_ms for block in repeat.blocks) / 1000
    return repeat.blocks[0].started_at - repeat.started_at - (training_s(repeat) - blocks_s)


def after_blocks_s(repeat: Repeat) -> float:
    last = repeat.blocks[-1]
    return repeat.ended_at - last.started_at - last.wall_ms / 1000


def start_up_parts(plan: Plan, folder: Path) -> dict[str, float]:
    """Seconds of what a study does before its first repeat, here one after the other."""
    marks = {"": time.perf_counter()}
    with Launcher() as launcher, launcher.worker() as worker:
        # The first answer comes when the server has imported everything.
        marks[TORCH] = time.perf_counter()
        worker.ask(
            "describe",
            task=plan.task,
            variants=plan.variants(),
            seed=plan.seed,
            device=DEVICE,
            name=plan.workload_name,
        )
        marks["describing the workload"] = time.perf_counter()
    marks["ending the workers"] = time.perf_counter()
    from trainperf_mlflow.tracking.recorder import Recorder  # noqa: F401
    from trainperf_mlflow.tracking.store import open_store

    marks["importing mlflow"] = time.perf_counter()
    uri = f"sqlite:///{folder / 'parts.db'}"
    open_store(uri)
    marks["creating an sqlite store"] = time.perf_counter()
    open_store(uri)
    marks["opening it again"] = time.perf_counter()
    return {name: end - begin for (_, begin), (name, end) in pairwise(marks.items())}


# --- the command's help ------------------------------------------------------------------------


def help_cpu_s() -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([*TRAINPERF, "--help"], check=True, stdout=DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def heavy_imports_of_help() -> list[str]:
    told = os.environ | {"PYTHONPROFILEIMPORTTIME": "1"}
    run = subprocess.run(
        [*TRAINPERF, "--help"], env=told, check=True, capture_output=True, text=True
    )
    imported = {line.rpartition("|")[2].strip() for line in run.stderr.splitlines()}
    return sorted(imported & set(HEAVY))


# --- the figures -------------------------------------------------------------------------------


def step_figure(steps: Steps) -> Figure:
    ratio = median(toolkit / bare for bare, toolkit in steps.pairs)
    difference = median(toolkit - bare for bare, toolkit in steps.pairs)
    return Figure(
        "median step",
        f"{median(bare for bare, _ in steps.pairs):.2f} ms",
        f"{median(toolkit for _, toolkit in steps.pairs):.2f} ms",
        f"{ratio:.4f} ({difference * 1000:+.0f} us)",
        f"{STEP_RATIO} or {STEP_MS * 1000:.0f} us",
        ratio <= STEP_RATIO or difference <= STEP_MS,
    )


def repeat_figure(run: Run) -> Figure:
    """All that a repeat takes from its start to the start of the next, after the first."""
    taken = [
        (training_s(before), after.started_at - before.started_at)
        for before, after in pairwise(run.repeats)
    ][1:]
    overhead = median(whole - training for training, whole in taken)
    return Figure(
        "a repeat",
        f"{median(training for training, _ in taken):.2f} s",
        f"{median(whole for _, whole in taken):.2f} s",
        f"{overhead:+.2f} s",
        f"{REPEAT_S:+.0f} s",
        overhead <= REPEAT_S,
    )


def study_figures(bare_s: float, imports_s: float, run: Run) -> Iterator[Figure]:
    """Three readings: against the training alone, as a script that must import torch too, and
    without what happens once, however long the study is."""
    for name, bare, seconds in (
        ("the study, start-up and all", bare_s, run.seconds),
        ("  against a script's imports too", bare_s + imports_s, run.seconds),
        ("  after its start-up", bare_s, run.seconds - run.start_up),
    ):
        yield Figure(
            name,
            f"{bare:.2f} s",
            f"{seconds:.2f} s",
            f"{seconds / bare:.3f}",
            f"{STUDY_RATIO}",
            seconds <= STUDY_RATIO * bare,
        )


def help_figure() -> Figure:
    cpu_s = median(help_cpu_s() for _ in range(HELP_RUNS))
    heavy = heavy_imports_of_help()
    return Figure(
        "trainperf --help (CPU)",
        "",
        f"{cpu_s:.3f} s",
        f"imports {', '.join(heavy) or 'nothing heavy'}",
        f"{HELP_CPU_S} s",
        cpu_s <= HELP_CPU_S and not heavy,
    )


def shares(bare_s: float, run: Run, steps: Steps, parts: Mapping[str, float]) -> Iterator[str]:
    """Where the time beyond the training goes."""
    repeats = run.repeats[1:]
    alone = f"{steps.evaluation_s:.3f} + {steps.observed_step_s:.3f} + ..."
    yield "A repeat's time beyond its training (medians):"
    yield f"  {median(map(before_blocks_s, repeats)):7.3f} s  fork, environment, collecting garbage"
    after_s = median(map(after_blocks_s, repeats))
    yield f"  {after_s:7.3f} s  evaluation, observed step, end: {alone}"
    yield f"  {median(run.recording):7.3f} s  recording on disk and in MLflow"
    first, last = run.repeats[0], run.repeats[-1]
    yield f"The study ({run.seconds:.2f} s, {len(run.repeats)} repeats; bare {bare_s:.2f} s):"
    yield f"  {run.start_up:7.3f} s  start-up, until it is described and its store is open"
    yield f"  {first.started_at - run.study.created_at:7.3f} s  making its runs"
    yield f"  {sum(r.ended_at - r.started_at for r in run.repeats):7.3f} s  repeats"
    yield f"  {run.training:7.3f} s  of that builds and steps"
    yield f"  {sum(run.recording):7.3f} s  recording between them"
    yield f"  {run.ended - last.ended_at:7.3f} s  last recording, comparison, end"
    yield "Start-up in parts, here one after the other (a study overlaps torch and mlflow):"
    for name, seconds in parts.items():
        yield f"  {seconds:7.3f} s  {name}"


def table(figures: list[Figure]) -> Iterator[str]:
    rows = [("figure", "bare", "toolkit", "compared", "limit", "")]
    rows += [(*figure[:-1], "ok" if figure.ok else "over") for figure in figures]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield "  ".join(cells).rstrip()


def main(short: bool) -> None:
    settings = SHORT_STUDY if short else STUDY
    plan = make_plan(settings)
    variants = plan.variants()
    packages = ", ".join(f"{name} {version(name)}" for name in ("torch", "transformers", "mlflow"))
    print(
        f"{usable_cores()} cores, {default_threads(os.environ)} for training, "
        f"load {psutil.getloadavg()[0]:.1f}, Python {platform.python_version()}, {packages}"
    )

    def bare_study() -> float:
        return sum(
            pool.submit(
                bare_repeat,
                variant.config,
                plan.seed + index,
                plan.seed,
                plan.warmup_steps + plan.steps_per_block,
            ).result()
            for index in range(plan.repeats)
            for variant in variants
        )

    with tempfile.TemporaryDirectory() as name, fresh_processes() as pool:
        folder = Path(name)
        steps = pool.submit(
            step_pairs,
            variants[0].config,
            plan.seed,
            SHORT_STEP_PAIRS if short else STEP_PAIRS,
            plan.steps_per_block,
        ).result()
        before = bare_study()
        run = run_study(settings, folder)
        bare_s = mean((before, bare_study()))
        parts = start_up_parts(plan, folder)
    figures = [
        step_figure(steps),
        repeat_figure(run),
        *study_figures(bare_s, parts[TORCH], run),
        help_figure(),
    ]
    print(*table(figures), "", sep="\n")
    if abs(run.training / bare_s - 1) > SAME_LOAD:
        print("The load changed between bare and toolkit study: run this again on an idle machine.")
    print(*shares(bare_s, run, steps, parts), sep="\n")


if __name__ == "__main__":
    main(short="--short" in sys.argv[1:])
