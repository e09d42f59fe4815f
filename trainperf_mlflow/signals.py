"""An interrupt ends a study in order: SIGINT, SIGTERM and SIGHUP become an exception."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from trainperf_mlflow.errors import Interrupted

# SIGHUP: the terminal was closed, or the connection to it lost.
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# Ctrl-C under `mlflow run` comes twice: from the terminal, and at once again from MLflow.
SAME_INTERRUPT_S = 3.0


class Interruption:
    """Whether a signal has come. Libraries swallow exceptions; this remembers."""

    def __init__(self) -> None:
        self.number: int | None = None
        self.deferred = False

    def check(self) -> None:
        """Raise ``Interrupted`` if a signal has come, even where the exception was swallowed."""
        if self.number is not None and not self.deferred:
            raise Interrupted(self.number)

    @contextmanager
    def later(self) -> Iterator[None]:
        """Only remember a signal inside; ``check`` raises it afterwards."""
        self.deferred = True
        try:
            yield
        finally:
            self.deferred = False


@contextmanager
def interruptible() -> Iterator[Interruption]:
    """Raise ``Interrupted`` on the first SIGINT, SIGTERM or SIGHUP inside.

    One that follows at once is the same interrupt; a later one acts as it did
    before, so that cleaning up can be cut short.
    Outside the main thread, where Python allows no handlers, nothing changes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield Interruption()
        return
    interruption = Interruption()
    before = {number: signal.getsignal(number) for number in SIGNALS}
    if before[signal.SIGHUP] is signal.SIG_IGN:  # nohup: the study is to outlive its terminal
        del before[signal.SIGHUP]

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    interrupted_at = 0.0

    def interrupt(number: int, frame: FrameType | None) -> None:
        nonlocal interrupted_at
        if interruption.number is None:
            interrupted_at = time.monotonic()
            interruption.number = number
            interruption.check()
        elif time.monotonic() - interrupted_at >= SAME_INTERRUPT_S:
            restore()
            signal.raise_signal(number)

    for number in before:
        signal.signal(number, interrupt)
    try:
        yield interruption
    finally:
        restore()
