"""The command's side of the worker processes: start, ask, time out, kill."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

import psutil

from trainperf_mlflow.errors import MeasurementError
from trainperf_mlflow.measurement.forkserver import MESSAGE_BYTES
from trainperf_mlflow.messages import encodable
from trainperf_mlflow.results.record import Status

# Identical processes differ mostly because glibc's heap settles differently in
# each; with these values page faults in steady state go from thousands to none.
# 33554432 is the largest mmap threshold that glibc accepts.
ALLOCATOR_SETTINGS = {
    "MALLOC_TRIM_THRESHOLD_": "1073741824",
    "MALLOC_MMAP_THRESHOLD_": "33554432",
    "MALLOC_TOP_PAD_": "67108864",
}
LOG_TAIL_BYTES = 2000
LONGEST_WAIT_S = 2_000_000.0  # what fits the system's milliseconds
_PACKAGE_ROOT = str(Path(__file__).resolve().parents[2])
_BOOT = (
    "import sys; sys.path.append(sys.argv.pop(1)); "
    "from trainperf_mlflow.measurement.forkserver import main; "
    "main(int(sys.argv[1]), sys.argv[2] == 'preload')"
)


class WorkerError(Exception):
    """A worker's repeat ended early: with which status, and why."""

    def __init__(self, status: Status, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.text = text


class Worker:
    """One live worker process. Requests are answered one at a time."""

    def __init__(
        self, launcher: Launcher, pid: int, connection: Connection, log: IO[bytes]
    ) -> None:
        self.pid = pid
        self._launcher = launcher
        self._connection = connection
        self._log = log
        self._oom_kills = oom_kill_count()
        self._ended = False

    def ask(self, request: str, timeout: float | None = None, **arguments: Any) -> Any:
        """Send a request and wait for its answer.

        Raises:
            WorkerError: the worker failed, was killed, or did not answer in ``timeout`` seconds.
            TrainperfError: the worker refuses the request (an invalid plan, a missing device).
        """
        try:
            self._connection.send((request, arguments))
            if not self._answered(timeout):
                self.kill()
                raise WorkerError(
                    Status.TIMEOUT, f"no answer to {request!r} within {timeout:.0f} s; stopped"
                )
            kind, answer = self._connection.recv()
        except (EOFError, ConnectionError):
            raise self._death() from None
        if kind == "refused":
            refusal, text = answer
            raise refusal(text)
        if kind == "failed":
            status, text = answer
            raise WorkerError(status, text)
        return answer

    def _answered(self, timeout: float | None) -> bool:
        """Wait for an answer; the end of the process counts as one, even where a child of the
        task's own still holds the connection open.

        Raises:
            EOFError: the process has ended without an answer.
        """
        if not hasattr(os, "pidfd_open"):
            return self._connection.poll(timeout and min(timeout, LONGEST_WAIT_S))
        try:
            process = os.pidfd_open(self.pid)
        except OSError:
            raise EOFError from None
        try:
            longest = None if timeout is None else min(timeout, LONGEST_WAIT_S)
            ready = wait([self._connection, process], longest)
            if process in ready and not self._connection.poll(0):
                raise EOFError
        finally:
            os.close(process)
        return bool(ready)

    def _ended_by_itself(self) -> bool:
        """Whether the process is gone already, or goes within a second."""
        with suppress(psutil.Error):
            process = psutil.Process(self.pid)
            for _ in range(100):
                if process.status() == psutil.STATUS_ZOMBIE:
                    return True
                time.sleep(0.01)
            return False
        return True

    def _death(self) -> WorkerError:
        by_itself = self._ended_by_itself()
        code = self.kill()
        tail = encodable(self.log_tail())
        said = f"; it last said: {tail}" if tail else ""
        if not by_itself:
            return WorkerError(
                Status.FAILED, f"the worker closed its connection without an answer{said}"
            )
        if code == -signal.SIGKILL:
            if oom_kill_count() > self._oom_kills:
                return WorkerError(
                    Status.OOM, "the kernel killed the worker: the machine's memory ran out"
                )
            return WorkerError(
                Status.FAILED,
                "the worker was killed (signal 9) and the kernel counted no out-of-memory kill; "
                "somebody else killed it, measure again",
            )
        if code < 0:
            with suppress(ValueError):
                name = signal.Signals(-code).name
                return WorkerError(Status.FAILED, f"the worker died of {name}{said}")
        return WorkerError(Status.FAILED, f"the worker ended with exit code {code}{said}")

    def log_tail(self) -> str:
        self._log.seek(0, os.SEEK_END)
        self._log.seek(max(0, self._log.tell() - LOG_TAIL_BYTES))
        return self._log.read().decode(errors="replace").strip()

    def kill(self) -> int:
        """End the process, if it still lives; its exit status (negative: a signal)."""
        if self._ended:
            return 0
        self._ended = True
        self._connection.close()
        # A process whose connection closed because it is dying keeps its own exit status.
        # With its children: what a task leaves running would compete with the next repeat.
        for end, target in ((os.killpg, self.pid), (os.kill, self.pid)):
            with suppress(ProcessLookupError, PermissionError):
                end(target, signal.SIGKILL)
        return self._launcher.wait(self.pid)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()
        self._log.close()


class Launcher:
    """Starts workers: forks of one preloaded server where forking is safe (Linux).

    Elsewhere the server forks before it imports anything, and each worker
    imports for itself: slower, but equally fresh.
    """

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        self._environment = {**worker_environment(os.environ), **(environment or {})}
        self._preload = sys.platform == "linux"
        self._start()

    def _start(self) -> None:
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the server
        with theirs:
            self._server = subprocess.Popen(
                [
                    *(sys.executable, "-P", "-c", _BOOT, _PACKAGE_ROOT),
                    *(str(theirs.fileno()), "preload" if self._preload else "bare"),
                ],
                env=self._environment,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                start_new_session=True,  # an interrupt at the terminal is for the command alone
            )

    @property
    def server_pid(self) -> int:
        return self._server.pid

    def worker(self) -> Worker:
        """Start a fresh process.

        Raises:
            MeasurementError: the server cannot start (it says why) or no process can be made.
        """
        if self._server.poll() is not None:
            self._start()
        ours, theirs = socket.socketpair()
        log = tempfile.TemporaryFile()  # noqa: SIM115 - the worker's, closed with it
        try:
            with theirs:
                socket.send_fds(self._control, [b"fork"], [theirs.fileno(), log.fileno()])
                pid = self._answer()
        except OSError as error:
            raise MeasurementError(self._obituary(error)) from error
        return Worker(self, pid, Connection(ours.detach()), log)

    def wait(self, pid: int) -> int:
        try:
            self._control.send(f"wait {pid}".encode())
            return self._answer()
        except OSError:
            return -signal.SIGKILL  # the server was killed, and its workers with it

    def _answer(self) -> int:
        answer = self._control.recv(MESSAGE_BYTES)
        if not answer:
            raise ConnectionResetError("the process that starts the workers has ended")
        return int(answer)

    def _obituary(self, error: OSError) -> str:
        self._log.seek(0)
        said = self._log.read().decode(errors="replace").strip()[-LOG_TAIL_BYTES:]
        return (
            f"no worker process can be started ({error}){': ' + said if said else ''}; "
            "check that torch and transformers can be imported (trainperf doctor)"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._control.close()  # the server ends by itself when the socket closes
        try:
            self._server.wait(timeout=2)
        except subprocess.TimeoutExpired:
            self._server.kill()
            self._server.wait()
        self._log.close()


def worker_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """What every worker's process starts with; the user's own settings win.

    One thread before the fork, because a parallel region in the server would
    hang the child's first one; the worker then sets the number it measures with.
    """
    # A task that logs to MLflow by itself must not write into, or end, the study's run.
    inherited = {key: value for key, value in environment.items() if key != "MLFLOW_RUN_ID"}
    return {
        **ALLOCATOR_SETTINGS,
        "PYTHONHASHSEED": "0",
        "TOKENIZERS_PARALLELISM": "false",
        # A fresh process compiles afresh: with a cache only the first repeat would pay.
        "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1",
        **inherited,
        "TRAINPERF_THREADS": str(default_threads(environment)),
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
    }


def default_threads(environment: Mapping[str, str]) -> int:
    """Threads for measuring: OMP_NUM_THREADS where set, else all cores but one.

    One busy neighbour then takes the free core; with all cores in use it slows
    every step's slowest thread (measured: 95th percentile 16 -> 175 ms on two cores).
    """
    given = environment.get("OMP_NUM_THREADS", "")
    if given.isdigit() and int(given) > 0:
        return int(given)
    physical = psutil.cpu_count(logical=False) or 1
    return max(1, min(physical, usable_cores()) - 1)


def usable_cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def oom_kill_count() -> int:
    """How many processes the kernel has killed for lack of memory (0 where it does not tell)."""
    for path in (Path("/proc/vmstat"), Path("/sys/fs/cgroup/memory.events")):
        with suppress(OSError):
            for line in path.read_text().splitlines():
                if line.startswith("oom_kill "):
                    return int(line.split()[1])
    return 0
