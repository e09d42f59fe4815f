"""An interrupt ends a study in order: SIGINT and SIGTERM become an exception."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from trainperf_mlflow.errors import Interrupted

SIGNALS = (signal.SIGINT, signal.SIGTERM)
# Ctrl-C under `mlflow run` comes twice: from the terminal, and at once again from MLflow.
SAME_INTERRUPT_S = 3.0


@contextmanager
def interruptible() -> Iterator[None]:
    """Raise ``Interrupted`` on the first SIGINT or SIGTERM inside.

    One that follows at once is the same interrupt; a later one acts as it did
    before, so that cleaning up can be cut short.
    Outside the main thread, where Python allows no handlers, nothing changes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in SIGNALS}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    interrupted_at: float | None = None

    def interrupt(number: int, frame: FrameType | None) -> None:
        nonlocal interrupted_at
        if interrupted_at is None:
            interrupted_at = time.monotonic()
            raise Interrupted(number)
        if time.monotonic() - interrupted_at >= SAME_INTERRUPT_S:
            restore()
            signal.raise_signal(number)

    for number in SIGNALS:
        signal.signal(number, interrupt)
    try:
        yield
    finally:
        restore()
