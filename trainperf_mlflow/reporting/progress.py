"""Where a study stands, while it runs.

Drawn only when told, between repeats: a thread that refreshes a bar would
disturb the steps that are being timed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import Self, TextIO

from rich.console import Console
from rich.progress import BarColumn, TextColumn
from rich.progress import Progress as Bar

from trainperf_mlflow.reporting.text import clipped, plain

_NAME_CHARS = 40
_DETAIL_CHARS = 200


class _Console(Console):
    def on_broken_pipe(self) -> None:
        # rich would end the whole process, and the study with it.
        raise


class Progress:
    """A bar on a terminal, a line per repeat elsewhere.

    Args:
        total_repeats: of all variants together.
        stream: where to write; stderr, so that stdout holds only the result.
        clock: seconds, monotonic.
    """

    def __init__(
        self, total_repeats: int, stream: TextIO, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._total = total_repeats
        self._done = 0
        self._clock = clock
        self._started_at = clock()
        self._stream: TextIO | None = stream
        console = _Console(file=stream)
        self._bar: Bar | None = None
        if console.is_terminal and not console.is_dumb_terminal:
            self._bar = Bar(
                BarColumn(bar_width=24),
                TextColumn("{task.completed:.0f}/{task.total:.0f}"),
                TextColumn("{task.description}", markup=False),
                console=console,
                auto_refresh=False,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._task = self._bar.add_task("starting", total=total_repeats)

    def start(self) -> None:
        """The first repeat is about to run; time left counts from here."""
        self._started_at = self._clock()
        if self._bar is not None:
            self._told(self._bar.start)

    def running(self, variant: str, round: int, rounds: int) -> None:
        """A repeat begins; ``round`` counts from 0."""
        if self._bar is not None:
            self._draw(self._bar, f"{_where(variant, round, rounds)}{self._time_left()}")

    def advance(self, variant: str, round: int, rounds: int, status: str, detail: str = "") -> None:
        """A repeat ended with a status; ``detail`` is its step time, or its error."""
        self._done += 1
        detail = clipped(plain(detail), _DETAIL_CHARS)
        line = f"{_where(variant, round, rounds)}: {status}" + (f", {detail}" if detail else "")
        if self._bar is not None:
            self._draw(self._bar, f"{line}{self._time_left()}")
        else:
            self._line(f"[{self._done}/{self._total}] {line}{self._time_left()}")

    def say(self, message: str) -> None:
        """A line of its own, above the bar where there is one."""
        if self._bar is not None:
            bar = self._bar
            self._told(lambda: bar.console.print(plain(message), markup=False, highlight=False))
        else:
            self._line(plain(message))

    def looked(self, pairs: int, settled: str | None) -> None:
        """The study was looked at after so many pairs, and ends there where it is settled.

        Where there is no bar, one line is enough: the one that says why it ends.
        """
        if settled is not None:
            self.say(f"{pairs} pairs: {settled}, stops")
        elif self._bar is not None:
            self.say(f"{pairs} pairs: undecided, goes on")

    def finish(self) -> None:
        """Nothing more will run; may be called twice."""
        if self._bar is not None:
            self._told(self._bar.stop)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.finish()

    def _time_left(self) -> str:
        if not self._done or self._done >= self._total:
            return ""
        per_repeat = (self._clock() - self._started_at) / self._done
        return f", about {duration(per_repeat * (self._total - self._done))} left"

    def _draw(self, bar: Bar, description: str) -> None:
        self._told(
            lambda: bar.update(
                self._task, completed=self._done, description=description, refresh=True
            )
        )

    def _line(self, text: str) -> None:
        stream = self._stream
        if stream is not None:
            self._told(lambda: (stream.write(f"{text}\n"), stream.flush()))

    def _told(self, write: Callable[[], object]) -> None:
        # A closed terminal or pipe is no reason to lose a study.
        try:
            write()
        except (OSError, ValueError):
            self._bar = None
            self._stream = None


def duration(seconds: float) -> str:
    """A rough time for people.

    >>> duration(42), duration(330), duration(8000)
    ('42 s', '6 min', '2.2 h')
    """
    if seconds < 100:
        return f"{seconds:.0f} s"
    if seconds < 100 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def _where(variant: str, round: int, rounds: int) -> str:
    return f"{clipped(plain(variant), _NAME_CHARS)}, round {round + 1} of {rounds}"
