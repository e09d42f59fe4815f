"""An interrupt ends a study in order: SIGINT and SIGTERM become an exception."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from trainperf_mlflow.errors import Interrupted

SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def interruptible() -> Iterator[None]:
    """Raise ``Interrupted`` on the first SIGINT or SIGTERM inside.

    A second one acts as it did before, so that cleaning up can be cut short.
    Outside the main thread, where Python allows no handlers, nothing changes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in SIGNALS}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def interrupt(number: int, frame: FrameType | None) -> None:
        restore()
        raise Interrupted(number)

    for number in SIGNALS:
        signal.signal(number, interrupt)
    try:
        yield
    finally:
        restore()
