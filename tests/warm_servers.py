"""Servers that start workers, forked from one that has imported torch and transformers already.

A study measured in the tests' own process starts such a server: three seconds of imports, the
same ones each time. Here a mother process imports once, and each server is a fork of it, in the
folder and with the environment that was asked for. Cold starts have tests of their own
(``test_measurement_forkserver.py``, ``test_measurement_worker.py``, and every command that runs
as a process).
"""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from trainperf_mlflow.measurement import forkserver, launcher

REQUEST_BYTES = 1 << 20
BOOT = (
    "import sys; sys.path += sys.argv[2:]; from warm_servers import main; sys.path.pop(); "
    "main(int(sys.argv[1]))"
)
# What may differ between the mother and a server: nothing reads these when a process starts.
OWN = (
    *("MLFLOW_", "_MLFLOW_", "TRAINPERF_", "PYTEST_", "TORCHINDUCTOR_CACHE_DIR"),
    *("PWD", "COLUMNS", "NO_COLOR", "FORCE_COLOR"),
)


class Server:
    """A forked server, as far as ``Launcher`` uses a process that it has started."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._process = os.pidfd_open(pid)

    def poll(self) -> int | None:
        return 0 if select.select([self._process], [], [], 0)[0] else None

    def wait(self, timeout: float | None = None) -> int:
        if not select.select([self._process], [], [], timeout)[0]:
            raise subprocess.TimeoutExpired("a forked server", timeout or 0.0)
        return 0

    def kill(self) -> None:
        signal.pidfd_send_signal(self._process, signal.SIGKILL)

    def __del__(self) -> None:
        os.close(self._process)


class Mother:
    """The process that has imported everything; it ends when its socket closes."""

    def __init__(self) -> None:
        self.environment = launcher.worker_environment(os.environ)
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        with theirs:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-P", "-c", BOOT, str(theirs.fileno())),
                    *(launcher._PACKAGE_ROOT, str(Path(__file__).parent)),
                ],
                env=self.environment,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )

    def fork(self, control_fd: int, log_fd: int, environment: dict[str, str]) -> Server:
        request = json.dumps({"cwd": str(Path.cwd()), "environment": environment}).encode()
        socket.send_fds(self._control, [request], [control_fd, log_fd])
        return Server(int(self._control.recv(64)))

    @property
    def pid(self) -> int:
        return self._process.pid

    def close(self) -> None:
        self._control.close()
        self._process.wait()


def settings(environment: dict[str, str]) -> dict[str, str]:
    return {key: value for key, value in environment.items() if not key.startswith(OWN)}


@contextmanager
def warm(mother: Mother) -> Iterator[None]:
    """Each ``Launcher`` of this process gets a fork of the mother as its server."""

    def start(command: list[str], **how: Any) -> Server | subprocess.Popen[bytes]:
        other = settings(how["env"]) != settings(mother.environment)
        if other or command[-1] != "preload":
            return subprocess.Popen(command, **how)
        return mother.fork(how["pass_fds"][0], how["stdout"].fileno(), how["env"])

    known = launcher.subprocess
    launcher.subprocess = SimpleNamespace(  # type: ignore[assignment]
        Popen=start, DEVNULL=subprocess.DEVNULL, TimeoutExpired=subprocess.TimeoutExpired
    )
    try:
        yield
    finally:
        launcher.subprocess = known


def main(control_fd: int) -> None:
    forkserver.die_with_parent()
    control = socket.socket(fileno=control_fd)
    gc.disable()
    forkserver.preload_modules()
    while True:
        request, fds, _, _ = socket.recv_fds(control, REQUEST_BYTES, 2)
        reap()
        if not request:
            os._exit(0)
        pid = os.fork()
        if not pid:
            control.close()  # or it would stay open when the mother dies
            become_server(json.loads(request), *fds)
        for fd in fds:
            os.close(fd)
        control.send(str(pid).encode())


def reap() -> None:
    """Those servers that have ended."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def become_server(asked: dict[str, Any], control_fd: int, log_fd: int) -> None:
    os.setsid()
    os.dup2(log_fd, 1)
    os.dup2(log_fd, 2)
    os.chdir(asked["cwd"])
    os.environ.clear()
    os.environ.update(asked["environment"])
    forkserver.main(control_fd, preload=True)
