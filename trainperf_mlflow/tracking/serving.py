"""MLflow's own page on a store: started, waited for, ended."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from trainperf_mlflow.errors import PlanError, StoreError
from trainperf_mlflow.tracking.links import UI_PORT
from trainperf_mlflow.tracking.store import Store
from trainperf_mlflow.tracking.uris import masked, sqlite_path, without_passwords

HOST = "127.0.0.1"
# MLflow imports a lot, on a slow disk for a minute.
START_S = 180.0
END_S = 10.0
_PORTS_TRIED = 50


@contextmanager
def served(store: Store, port: int | None = None) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """The address of an MLflow that answers, and its process; ended at the end.

    Args:
        port: the one to take; by default 5000, or the next that is free.

    Raises:
        PlanError: the port is taken.
        StoreError: MLflow does not start, with its own last words.
    """
    port = port or _free_port()
    _refuse_taken(port)
    with tempfile.TemporaryFile() as log:
        process = _start(store, port, log)
        try:
            address = f"http://{HOST}:{port}"
            _wait(process, address, store, log)
            yield address, process
        finally:
            _end(process)


def _start(store: Store, port: int, log: IO[bytes]) -> subprocess.Popen[bytes]:
    path = sqlite_path(store.tracking_uri)
    return subprocess.Popen(
        [
            *(sys.executable, "-m", "mlflow", "server"),
            *("--host", HOST, "--port", str(port), "--workers", "1"),
        ],
        # In the environment, where a list of processes does not show a password.
        # MLflow's job runners, seven processes more, serve pages that nobody looks at here.
        env={
            "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
            **os.environ,
            "MLFLOW_BACKEND_STORE_URI": store.tracking_uri,
        },
        cwd=path.parent if path is not None else Path.cwd(),
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        # Ctrl-C is for this process, which then ends the server and its workers.
        start_new_session=True,
    )


def _wait(process: subprocess.Popen[bytes], address: str, store: Store, log: IO[bytes]) -> None:
    until = time.monotonic() + START_S
    while time.monotonic() < until:
        if process.poll() is not None:
            break
        with suppress(OSError), urllib.request.urlopen(f"{address}/health", timeout=5):  # noqa: S310
            return
        time.sleep(0.1)
    log.seek(0)
    said = without_passwords(log.read().decode("utf-8", "replace"), store.tracking_uri)
    last = " ".join(said.split())[-400:] or "it said nothing"
    raise StoreError(
        f"MLflow does not serve {masked(store.tracking_uri)!r} (... {last}); "
        "'trainperf doctor' says what is wrong with the store"
    )


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ask the server and its workers to end, and see that they do."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(END_S)
            break
    with suppress(ProcessLookupError):  # a worker that outlived its server
        os.killpg(process.pid, signal.SIGKILL)


def _free_port() -> int:
    found = next((p for p in range(UI_PORT, UI_PORT + _PORTS_TRIED) if not _taken(p)), None)
    if found is None:
        raise PlanError(
            f"the ports {UI_PORT} to {UI_PORT + _PORTS_TRIED - 1} are all taken; "
            "name another with --port"
        )
    return found


def _refuse_taken(port: int) -> None:
    if _taken(port):
        raise PlanError(
            f"port {port} is taken by another program; name another with --port, or none, "
            "and the next free one is taken"
        )


def _taken(port: int) -> bool:
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((HOST, port))
        except OSError:
            return True
    return False
