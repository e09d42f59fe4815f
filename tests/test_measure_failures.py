"""What users run into: killed processes, lost servers, interrupts, bad input. Nothing is lost,
no run stays RUNNING, and the message says what to do."""

from __future__ import annotations

import json
import shlex
import signal
import socket
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from click.testing import CliRunner, Result

from tests.command import COMMAND, environment, kinds, runs, start_trainperf, trainperf
from tests.mlflow_server import TrackingServer
from trainperf_mlflow.cli import cli

pytestmark = pytest.mark.usefixtures("warm_servers")

TASKS = """
import os, signal, time
from pathlib import Path

def slow(config):
    def step():
        time.sleep(config.get("sleep", 0.02))
        return 1.0
    return step

def two_lines(config):
    return lambda: sum(range(config.get("work", 20000)))

def nan(config):
    return lambda: float(config.get("loss", "nan"))

def raises(config):
    if config.get("broken"):
        raise RuntimeError("cannot build")
    return lambda: 1.0

def nonsense(config):
    return {"not": "a task"}

def killed_once(config):
    mark = Path("killed")
    def step():
        if config.get("die") and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return 1.0
    return step
"""
QUICK = ("--repeats", "2", "--iters", "2", "--warmup", "1")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "my_task.py").write_text(TASKS)
    return tmp_path


def invoke(*words: str) -> Result:
    """The command in this process, where only what it says and leaves counts: importing MLflow
    anew would take more time than all of it."""
    return CliRunner(env={"OMP_NUM_THREADS": "1"}).invoke(cli, words)


def wait_until(holds: Callable[[], bool], seconds: float = 90.0) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it never came to that"
        time.sleep(0.02)


def spooled(folder: Path) -> list[Path]:
    return list((folder / ".trainperf").glob("*/repeats/*.json"))


SLOW = (
    *("measure", "--task", "my_task:slow", "--candidate", "slower:sleep=0.04"),
    *("--repeats", "30", "--iters", "10", "--warmup", "1"),
)


@pytest.mark.usefixtures("folder")
def test_a_task_of_two_lines_is_measured_and_decided() -> None:
    done = invoke(
        # A hundred times less work: no neighbour makes up for that. Whether so few steps confirm
        # it depends on the neighbours.
        *("measure", "--task", "my_task:two_lines", "--set", "work=1000000"),
        *("--candidate", "less:work=10000", "--goal", "step_time", "--format", "json"),
        *("--repeats", "3", "--iters", "2", "--warmup", "1"),
    )
    assert done.exit_code == 0, done.stderr
    output = json.loads(done.stdout)
    assert output["decision"] in ("accept", "tune")
    assert output["candidates"][0]["delta"]["step_time_ms"] > 0
    assert "peak_mem_mb" not in output["candidates"][0]["delta"]
    # A plain callable proves nothing about its settings, and that is said.
    assert output["candidates"][0]["effect_verified"] is None


def test_a_killed_worker_costs_its_repeat_and_nothing_else(folder: Path) -> None:
    done = invoke(
        *("measure", "--task", "my_task:killed_once", "--candidate", "c:die=true"),
        *("--format", "json", *QUICK),
    )
    assert done.exit_code == 0, done.stderr
    found = runs(folder)
    assert kinds(found) == Counter(study=1, variant=2, repeat=4)
    statuses = Counter(
        run.data.tags["trainperf.status"]
        for run in found
        if run.data.tags["trainperf.kind"] == "repeat"
    )
    assert statuses == {"ok": 3, "failed": 1}
    assert "killed (signal 9)" in done.stderr
    # Whatever the times say: one failed repeat is never an accept.
    assert json.loads(done.stdout)["decision"] != "accept"
    assert not any(run.info.status == "RUNNING" for run in found)


# Under `mlflow run` Ctrl-C comes twice: from the terminal, and at once from MLflow.
@pytest.mark.parametrize(
    ("numbers", "code"),
    [((signal.SIGINT,), 130), ((signal.SIGTERM,), 143), ((signal.SIGINT, signal.SIGTERM), 130)],
)
def test_an_interrupt_keeps_what_was_measured_and_ends_the_runs(
    folder: Path, numbers: tuple[signal.Signals, ...], code: int
) -> None:
    command = start_trainperf(*SLOW, cwd=folder)
    assert command.stderr is not None
    for line in command.stderr:
        if line.startswith("[2/"):
            break
    for number in numbers:
        command.send_signal(number)
        time.sleep(0.05)
    _, errors = command.communicate(timeout=60)
    assert command.returncode == code, errors
    assert "trainperf compare" in errors
    found = runs(folder)
    assert not any(run.info.status == "RUNNING" for run in found)
    study = next(run for run in found if run.data.tags["trainperf.kind"] == "study")
    assert study.info.status == "KILLED"
    assert kinds(found)["repeat"] >= 2
    assert not psutil.pid_exists(command.pid) or command.poll() is not None
    # What was kept can be decided about, as the message says.
    again = invoke("compare", study.info.run_id, "--format", "json")
    assert again.exit_code == 0, again.stderr
    assert json.loads(again.stdout)["study_id"] == study.info.run_id


def test_a_killed_command_leaves_no_worker_and_recover_ends_its_runs(folder: Path) -> None:
    command = start_trainperf(*SLOW, cwd=folder)
    assert command.stderr is not None
    for line in command.stderr:
        if line.startswith("[3/"):
            break
    children = psutil.Process(command.pid).children(recursive=True)
    assert children
    command.kill()
    command.communicate()
    wait_until(lambda: not any(_computes(child) for child in children), 20)
    assert any(run.info.status == "RUNNING" for run in runs(folder))
    recovered = invoke("recover", "--format", "json")
    assert recovered.exit_code == 0, recovered.stderr
    found = runs(folder)
    assert not any(run.info.status == "RUNNING" for run in found)
    assert kinds(found)["repeat"] >= 3
    assert not spooled(folder)
    assert "nothing waits" in invoke("recover").stdout
    assert kinds(runs(folder)) == kinds(found)


def _computes(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_a_server_killed_during_a_study_loses_nothing(folder: Path) -> None:
    server = TrackingServer(folder, free_port())
    arguments = list(SLOW)
    arguments[arguments.index("--repeats") + 1] = "4"
    with server:
        command = start_trainperf(*arguments, cwd=folder, MLFLOW_TRACKING_URI=server.uri)
        assert command.stderr is not None
        said = []
        for line in command.stderr:
            said.append(line)
            if line.startswith("[2/"):
                server.kill()
                break
        output, rest = command.communicate(timeout=240)
    errors = "".join(said) + rest
    assert command.returncode == 3, errors
    assert "[8/8]" in errors  # measuring went on
    assert "trainperf recover" in errors
    assert len(spooled(folder)) == 8
    # The decision is told although it could not be recorded.
    assert "measured and decided" in errors
    with server:
        recovered = invoke("recover", "--format", "json")
        assert recovered.exit_code == 0, recovered.stderr
        found = runs(folder, server.uri)
    assert kinds(found) == Counter(study=1, variant=2, repeat=8)
    assert not any(run.info.status == "RUNNING" for run in found)
    study = next(run for run in found if run.data.tags["trainperf.kind"] == "study")
    assert study.data.tags["trainperf.decision"] in ("tune", "reject")
    assert output == ""


@pytest.mark.parametrize(
    ("factory", "candidate", "code", "words"),
    [
        ("raises", "c:broken=true", 0, "cannot build"),
        ("nonsense", "c:x=1", 3, "must return a trainperf_mlflow Task"),
        ("nan", "c:loss=1.0", 3, "diverged"),
    ],
)
def test_a_task_that_misbehaves_is_told_with_its_error(
    folder: Path, factory: str, candidate: str, code: int, words: str
) -> None:
    done = invoke("measure", "--task", f"my_task:{factory}", "--candidate", candidate, *QUICK)
    assert done.exit_code == code, done.stderr
    assert words in " ".join((done.stdout + done.stderr).split())
    assert "Traceback" not in done.stderr
    assert not any(run.info.status == "RUNNING" for run in runs(folder))


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("--candidate", "bf16", "--model", "tinny"), 2, "tiny"),
        (("--candidate", "bf16", "--workload", "quikc"), 2, "did you mean 'quick'"),
        (("--candidate", "bf61"), 2, "did you mean 'bf16'"),
        (("--candidate", "bf16", "--set", "batch_sise=2"), 2, "did you mean 'batch_size'"),
        (("--candidate", "bf16", "--set", "batch_size=-1"), 2, "batch_size"),
        (("--candidate", "bf16", "--set", "seq_len=huge"), 2, "seq_len"),
        (("--candidate", "bf16", "--set", "seq_len=900000"), 2, "seq_len"),
        (("--candidate", "bf16", "--set", "data=missing.txt"), 2, "missing.txt"),
        (("--candidate", "bf16", "--set", "data=empty.txt"), 2, "empty"),
        (("--candidate", "bf16", "--set", "data=binary.txt"), 2, "binary.txt"),
        (("--candidate", "bf16", "--set", "data=short.txt"), 2, "short"),
        (("--candidate", "bf16", "--device", "cuda"), 3, "cuda"),
        (("--candidate", "bf16", "--device", "abacus"), 2, "abacus"),
        (("--candidate", "bf16", "--model", "qwen25_small"), 3, "--model-source config"),
        (("--candidate", "bf16", "--model", "no/such-model"), 3, "local folder"),
        (("--candidate", "bf16", "--model", "folder", "--model-source", "local"), 2, "config.json"),
        (("--candidate", "bf16", "--tracking-uri", "http://127.0.0.1:9"), 3, "does not answer"),
        (("--candidate", "bf16", "--tracking-uri", "sqlite:////no/such/x.db"), 3, "/no/such"),
        (("--candidate", "bf16", "--plan", "missing.yaml"), 2, "missing.yaml"),
        (("--task", "nowhere:make", "--candidate", "c:x=1"), 2, "nowhere"),
        (("--task", "my_task:make", "--candidate", "c:x=1"), 2, "two_lines"),
        ((), 2, "--candidate"),
    ],
)
def test_bad_input_ends_with_its_code_and_leaves_no_run(
    folder: Path, arguments: tuple[str, ...], code: int, words: str
) -> None:
    (folder / "empty.txt").touch()
    (folder / "binary.txt").write_bytes(bytes(range(256)) * 100)
    (folder / "short.txt").write_text("ab")
    (folder / "folder").mkdir()
    done = invoke("measure", *arguments)
    assert done.exit_code == code, done.stderr
    assert words in done.stderr
    assert done.stderr.startswith("trainperf: ") or "\ntrainperf: " in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    if (folder / "mlflow.db").exists():
        assert runs(folder) == []


def test_a_name_full_of_markup_goes_through_everything(folder: Path) -> None:
    name = "x\" <script>alert(1)</script> ' [bold] ‮ " + "é" * 150
    done = trainperf(
        *("measure", "--task", "my_task:two_lines", "--candidate", "[red]|`c`:work=1"),
        *("--study", name.replace("‮", ""), "--format", "json", *QUICK),
        cwd=folder,
    )
    assert done.returncode == 0, done.stderr
    study_id = json.loads(done.stdout)["study_id"]
    study = next(run for run in runs(folder) if run.info.run_id == study_id)
    assert "<script>" not in study.data.tags["mlflow.note.content"]
    again = invoke("compare", study.info.run_name)
    assert again.exit_code == 0, again.stderr
    assert "[red]|`c`" in again.stdout


def test_two_studies_at_once_in_a_new_store_both_finish(folder: Path) -> None:
    arguments = ("measure", "--task", "my_task:two_lines", "--candidate", "c:work=1", *QUICK)
    both = [start_trainperf(*arguments, "--study", f"study {i}", cwd=folder) for i in range(2)]
    for command in both:
        _, errors = command.communicate(timeout=200)
        assert command.returncode == 0, errors
    assert kinds(runs(folder)) == Counter(study=2, variant=4, repeat=8)


def test_a_password_on_the_command_line_stays_off_the_disk(folder: Path) -> None:
    uri = f"sqlite:///{folder}/m.db?x=1&password=s3cret"
    done = trainperf(
        *("measure", "--task", "my_task:two_lines", "--candidate", "c:work=1", *QUICK),
        *("--tracking-uri", uri),
        cwd=folder,
    )
    assert done.returncode == 0, done.stderr
    held = [
        path
        for path in folder.rglob("*")
        if path.is_file() and path.suffix != ".db" and b"s3cret" in path.read_bytes()
    ]
    assert held == []
    assert "s3cret" not in done.stdout + done.stderr


def test_closed_standard_streams_lose_nothing(folder: Path) -> None:
    arguments = ("measure", "--task", "my_task:two_lines", "--candidate", "c:work=1")
    command = shlex.join([*COMMAND, *arguments, "--repeats", "1", "--iters", "1", "--warmup", "1"])
    for redirect in (">&-", "2>&-", "<&- 2>&-", "| true"):
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", f"{command} {redirect}"],
            cwd=folder, env=environment(), capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, (redirect, done.stderr)
    assert kinds(runs(folder)) == Counter(study=4, variant=8, repeat=8)


def test_doctor_tells_each_check_with_status_detail_and_remedy(folder: Path) -> None:
    done = invoke("doctor", "--format", "json")
    assert done.exit_code == 0, done.stdout
    checks: dict[str, Any] = {row["check"]: row for row in json.loads(done.stdout)["checks"]}
    assert {"python", "torch", "store", "memory", "cores"} <= set(checks)
    assert all(set(row) == {"check", "status", "detail", "remedy"} for row in checks.values())
    assert not (folder / "mlflow.db").exists()  # looking creates nothing
    bad = invoke("doctor", "--tracking-uri", "http://127.0.0.1:9")
    assert bad.exit_code == 3
    assert "fail" in bad.stdout
