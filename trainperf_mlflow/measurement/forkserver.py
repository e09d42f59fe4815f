"""Fresh processes at the price of a fork: a server that has imported everything already.

A cold start costs three seconds of imports before the first step; a fork of
this server costs some hundredths. The server itself only imports: it makes no
accelerator call and starts no parallel region, since a child could use
neither after a fork, and its environment (allocator, thread and hash settings,
read once when a process starts) is the same for every child.

Run as a program: ``forkserver FD PRELOAD``, FD being the control socket. It
knows two requests, ``fork`` (with the child's connection and log as file
descriptors) and ``wait PID``, and answers each with one number.
"""

from __future__ import annotations

import ctypes
import faulthandler
import gc
import importlib
import os
import signal
import socket
import sys
from multiprocessing.connection import Connection

# Imports alone are safe before a fork (measured: OpenBLAS's threads restart in the child).
PRELOADED = (
    "torch",
    "transformers",
    "transformers.models.qwen2.modeling_qwen2",
    "trainperf_mlflow.measurement.worker",
)
MESSAGE_BYTES = 64
_PR_SET_PDEATHSIG = 1


def main(control_fd: int, preload: bool) -> None:
    """Serve until the other end of the control socket is closed."""
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the command decides what an interrupt means
    control = socket.socket(fileno=control_fd)
    # Collections while importing find nothing and cost a fifth of the imports' time.
    gc.disable()
    if preload:
        preload_modules()
    while True:
        message, fds, _, _ = socket.recv_fds(control, MESSAGE_BYTES, 2)
        if not message:
            # Python would take a second to take apart what it has imported.
            os._exit(0)
        request, _, argument = message.decode().partition(" ")
        if request == "fork":
            answer = _fork(control, *fds)
        else:
            answer = _wait(int(argument))
        control.send(str(answer).encode())


def preload_modules() -> None:
    """Import what every worker needs, as far as that asks no accelerator anything."""
    import torch

    # On import transformers asks whether there is an XPU, which a build for it cannot
    # answer without starting its driver; each worker then imports for itself.
    if torch.xpu._is_compiled():
        return
    for module in PRELOADED:
        importlib.import_module(module)


def _fork(control: socket.socket, connection_fd: int, log_fd: int) -> int:
    pid = os.fork()
    if pid:
        os.close(connection_fd)
        os.close(log_fd)
        return pid
    status = 1
    try:
        die_with_parent()
        os.setpgid(0, 0)  # so that its own children can be ended with it
        control.close()
        # What a model or a task prints is never part of the command's result.
        os.dup2(log_fd, 1)
        os.dup2(log_fd, 2)
        os.close(log_fd)
        faulthandler.enable()
        from trainperf_mlflow.measurement import worker

        # What is imported lives on: walking through it, which also copies the pages shared with
        # the server, would cost every collection 0.2 s (a block begins with one).
        gc.freeze()
        gc.enable()
        worker.serve(Connection(connection_fd))
        status = 0
    finally:
        # Not sys.exit: the server's cleanup handlers are not the child's to run.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _wait(pid: int) -> int:
    """The exit status of a child, negative for a signal, as in ``subprocess``."""
    try:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    except ChildProcessError:
        return 0


def die_with_parent() -> None:
    """No orphan goes on computing when the command is killed (Linux; elsewhere a closed
    connection ends an idle worker)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2] == "preload")
