"""Real worker processes: they answer, fail, hang, crash and are killed, and the command goes on."""

from __future__ import annotations

import os
import signal
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

import trainperf_mlflow.measurement.launcher as launcher_module
from trainperf_mlflow.errors import MeasurementError, PlanError
from trainperf_mlflow.measurement.launcher import (
    Launcher,
    Worker,
    WorkerError,
    default_threads,
    worker_environment,
)
from trainperf_mlflow.results.record import Status

TASKS = """
    import os, signal, sys, time
    import torch

    def steady(config):
        return lambda: sum(range(config.get("work", 1000)))

    def raises(config):
        raise RuntimeError("no data today")

    def fails_in_step(config):
        def step():
            raise ValueError("bad batch")
        return step

    def out_of_memory(config):
        return lambda: torch.empty(10**15)

    def python_memory_error(config):
        def step():
            raise MemoryError
        return step

    def accelerator_memory_error(config):
        def step():
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")
        return step

    def leaves(config):
        return lambda: os._exit(7)

    def exits(config):
        return lambda: sys.exit("enough")

    def crashes(config):
        return lambda: os.kill(os.getpid(), signal.SIGSEGV)

    def dies(config):
        return lambda: os.kill(os.getpid(), signal.SIGKILL)

    def hangs(config):
        return lambda: time.sleep(1000)

    def chatty(config):
        def step():
            print("to stdout"); print("to stderr", file=sys.stderr)
            os.write(1, b"to the descriptor")
        return step

    def nan_loss(config):
        return lambda: float("nan")

    def text_loss(config):
        return lambda: "0.5"

    def vector_loss(config):
        return lambda: torch.zeros(3)

    def number(config):
        return 42

    def undecodable(config):
        raise RuntimeError("bad " + chr(0xDCFF) + " name")

    def child_holds_on(config):
        if os.fork() == 0:
            time.sleep(1000)
        os._exit(3)

    def leaves_a_child(config):
        import subprocess
        child = subprocess.Popen(["sleep", "1000"])
        open("child.pid", "w").write(str(child.pid))
        return lambda: None

    def own_refusal(config):
        from trainperf_mlflow.errors import PlanError
        class Refusal(PlanError):
            def __init__(self, a, b):
                super().__init__(a + b)
        raise Refusal("not ", "today")

    def counts_backwards(config):
        from trainperf_mlflow import Task
        class Backwards(Task):
            samples_per_step = -5
            def next_batch(self): return None
            def forward(self, batch): return torch.zeros((), requires_grad=True)
            def optimizer_step(self): pass
        return Backwards()

    def reuses_its_loss(config):
        loss = torch.zeros(())
        count = [0]
        def step():
            count[0] += 1
            return loss.fill_(count[0])
        return step
"""


@pytest.fixture(scope="module")
def launcher(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Launcher]:
    folder = tmp_path_factory.mktemp("tasks")
    (folder / "worker_tasks.py").write_text(textwrap.dedent(TASKS))
    before = Path.cwd()
    os.chdir(folder)  # workers look for tasks where the command was started
    try:
        with Launcher() as made:
            yield made
    finally:
        os.chdir(before)


def build(worker: Worker, factory: str, **config: Any) -> Any:
    return worker.ask(
        "build",
        timeout=60,
        task=f"worker_tasks:{factory}",
        config=config,
        changed={},
        seed=1,
        data_seed=1,
        device="cpu",
    )


def test_a_worker_builds_warms_up_measures_and_finishes(launcher: Launcher) -> None:
    with launcher.worker() as worker:
        built = build(worker, "steady")
        assert built.samples_per_step == 1.0
        warmed = worker.ask("warmup", timeout=60, steps=3)
        assert (warmed.steps, warmed.first_step_ms > 0) == (3, True)
        block = worker.ask("block", timeout=60, index=0, steps=5)
        assert len(block.step_ms) == len(block.losses) == 5
        assert all(step > 0 for step in block.step_ms)
        # The steps are consecutive: together they are the block, and nothing hides between them.
        assert sum(block.step_ms) == pytest.approx(block.wall_ms, rel=1e-6)
        finished = worker.ask("finish", timeout=60)
        assert finished.host_peak_rss_mb > 10
        # A task without tensors has no tensor peak: absent, not 0.
        assert (finished.peak_mem_mb, finished.peak_mem_source) == (None, None)


def test_each_worker_is_a_fresh_process_with_the_same_settings(launcher: Launcher) -> None:
    environments = []
    pids = set()
    for _ in range(2):
        with launcher.worker() as worker:
            environments.append(build(worker, "steady").environment)
            pids.add(worker.pid)
    assert len(pids) == 2
    first, second = environments
    assert first["variables"]["PYTHONHASHSEED"] == "0"
    assert first["variables"]["MALLOC_MMAP_THRESHOLD_"] == "33554432"
    same = ("threads", "variables", "affinity", "matmul_precision", "packages", "device_name")
    assert {key: first[key] for key in same} == {key: second[key] for key in same}
    assert first["threads"] == default_threads(os.environ)


@pytest.mark.parametrize(
    ("factory", "status", "words"),
    [
        ("raises", Status.FAILED, "RuntimeError: no data today"),
        ("number", Status.FAILED, "number returned 42"),
        ("fails_in_step", Status.FAILED, "ValueError: bad batch (at worker_tasks.py:"),
        ("text_loss", Status.FAILED, "'0.5' (str)"),
        ("vector_loss", Status.FAILED, "TypeError"),
        ("exits", Status.FAILED, "SystemExit: enough"),
        ("out_of_memory", Status.OOM, "allocate"),
        ("python_memory_error", Status.OOM, "MemoryError"),
        ("accelerator_memory_error", Status.OOM, "Tried to allocate"),
        ("nan_loss", Status.DIVERGED, "nan"),
        ("leaves", Status.FAILED, "exit code 7"),
        ("crashes", Status.FAILED, "SIGSEGV"),
        ("dies", Status.FAILED, "killed (signal 9)"),
        ("undecodable", Status.FAILED, "bad \\udcff name"),
        ("child_holds_on", Status.FAILED, "exit code 3"),
        ("counts_backwards", Status.FAILED, "samples_per_step is -5"),
    ],
)
def test_what_goes_wrong_in_a_task_has_a_status_and_a_text(
    launcher: Launcher, factory: str, status: Status, words: str
) -> None:
    def run() -> None:
        with launcher.worker() as worker:
            build(worker, factory)
            worker.ask("warmup", timeout=60, steps=2)

    with pytest.raises(WorkerError) as caught:
        run()
    assert caught.value.status is status
    assert words in caught.value.text


@pytest.mark.parametrize(("kills", "status"), [(0, Status.FAILED), (1, Status.OOM)])
def test_a_kill_counts_as_out_of_memory_where_the_kernel_says_so(
    launcher: Launcher, monkeypatch: pytest.MonkeyPatch, kills: int, status: Status
) -> None:
    with launcher.worker() as worker:
        build(worker, "dies")
        before = launcher_module.oom_kill_count()
        monkeypatch.setattr(launcher_module, "oom_kill_count", lambda: before + kills)
        with pytest.raises(WorkerError) as caught:
            worker.ask("warmup", timeout=60, steps=1)
    assert caught.value.status is status


def test_what_a_task_leaves_running_ends_with_its_worker(launcher: Launcher) -> None:
    with launcher.worker() as worker:
        build(worker, "leaves_a_child")
        child = int((launcher_folder(launcher) / "child.pid").read_text())
        assert _alive(child)
    wait_until(lambda: not _alive(child))


def launcher_folder(launcher: Launcher) -> Path:
    return Path(psutil.Process(launcher.server_pid).cwd())


def test_a_refusal_of_a_tasks_own_class_is_still_a_refusal(launcher: Launcher) -> None:
    with launcher.worker() as worker, pytest.raises(PlanError, match="not today"):
        build(worker, "own_refusal")


def test_each_loss_is_kept_as_it_was_although_the_task_reuses_its_buffer(
    launcher: Launcher,
) -> None:
    with launcher.worker() as worker:
        build(worker, "reuses_its_loss")
        assert worker.ask("block", timeout=60, index=0, steps=3).losses == (1.0, 2.0, 3.0)


def test_a_time_limit_of_a_month_is_no_error(launcher: Launcher) -> None:
    with launcher.worker() as worker:
        assert worker.ask("preflight", timeout=30 * 86400.0)


def test_a_worker_that_does_not_answer_is_ended(launcher: Launcher) -> None:
    with launcher.worker() as worker:
        build(worker, "hangs")
        with pytest.raises(WorkerError) as caught:
            worker.ask("warmup", timeout=0.2, steps=1)
        assert caught.value.status is Status.TIMEOUT
        assert not psutil.pid_exists(worker.pid)


def test_what_a_task_prints_never_reaches_the_commands_output(
    launcher: Launcher, capfd: pytest.CaptureFixture[str]
) -> None:
    with launcher.worker() as worker:
        build(worker, "chatty")
        worker.ask("warmup", timeout=60, steps=1)
        assert "to the descriptor" in worker.log_tail()
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("task", "words"),
    [
        ("worker_tasks:missing", "has no 'missing'"),
        ("no_such_module_here:make", "no module 'no_such_module_here'"),
    ],
)
def test_a_missing_factory_is_refused_before_anything_is_measured(
    launcher: Launcher, task: str, words: str
) -> None:
    from trainperf_mlflow.results.study import Variant

    with launcher.worker() as worker, pytest.raises(PlanError, match=words):
        worker.ask(
            "describe",
            timeout=60,
            task=task,
            variants=(Variant(name="baseline", role="baseline", config={}),),
            seed=1,
            device="cpu",
            name="x",
        )


def test_a_killed_server_is_started_again_for_the_next_worker() -> None:
    with Launcher() as launcher:
        with launcher.worker() as worker:
            os.kill(launcher.server_pid, signal.SIGKILL)
            # Its workers die with it (Linux), so none goes on computing unseen.
            wait_until(lambda: not _alive(worker.pid))
            with pytest.raises(WorkerError):
                worker.ask("preflight", timeout=30)
        with launcher.worker() as worker:
            assert worker.ask("preflight", timeout=120)[0]["check"] == "torch"


def test_a_server_that_cannot_start_says_why() -> None:
    with Launcher({"PYTHONHOME": "/nowhere"}) as launcher, pytest.raises(MeasurementError) as e:
        launcher.worker()
    assert "trainperf doctor" in str(e.value)


def test_nothing_outlives_the_launcher() -> None:
    launcher = Launcher()
    with launcher:
        worker = launcher.worker()
        worker.ask("preflight", timeout=120)
        pids = [worker.pid, launcher.server_pid]
        worker.kill()
    wait_until(lambda: not any(map(_alive, pids)))


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < deadline, "it never came to that"
        time.sleep(0.01)


def _alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_the_users_own_environment_settings_win() -> None:
    made = worker_environment({"MALLOC_TOP_PAD_": "1", "PYTHONHASHSEED": "5", "HOME": "/h"})
    assert (made["MALLOC_TOP_PAD_"], made["PYTHONHASHSEED"], made["HOME"]) == ("1", "5", "/h")


def test_a_worker_does_not_inherit_the_run_of_the_study() -> None:
    assert "MLFLOW_RUN_ID" not in worker_environment({"MLFLOW_RUN_ID": "abc"})


def test_one_core_is_left_free_unless_the_user_sets_the_threads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(psutil, "cpu_count", lambda logical: 8)
    monkeypatch.setattr(launcher_module, "usable_cores", lambda: 4)
    assert default_threads({}) == 3
    assert default_threads({"OMP_NUM_THREADS": "6"}) == 6
    assert default_threads({"OMP_NUM_THREADS": "0"}) == 3
    monkeypatch.setattr(psutil, "cpu_count", lambda logical: 1)
    assert default_threads({}) == 1
