"""Timed steps: nothing but the steps happens between the two readings of the clock.

On a CPU the monotonic clock is read around each step. On an accelerator a
step's launch returns long before the step is done, so the device is
synchronised once where the region begins and once where it ends, and the
single steps are timed by device events that are read afterwards. Losses stay
on the device until then: reading one would synchronise every step.
"""

from __future__ import annotations

import gc
import itertools
import math
import os
import resource
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import torch

from trainperf_mlflow.results.repeats import Block

Step = Callable[[], "torch.Tensor | float | None"]
NS_PER_MS = 1e6
_SCHEDSTAT = "/proc/thread-self/schedstat"
_THREADS = "/proc/self/task"


@contextmanager
def no_gc() -> Iterator[None]:
    """No garbage collection inside: neither its pauses nor its frees belong to a step."""
    enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def synchronize(device: torch.device) -> None:
    if device.type != "cpu":
        torch.accelerator.synchronize(device)


def timed_block(step: Step, steps: int, device: torch.device, index: int) -> Block:
    """Run ``steps`` consecutive steps and time them; ms throughout."""
    measure = _host_steps if device.type == "cpu" else _device_steps
    with no_gc():
        synchronize(device)
        started_at = time.time()
        with _collections() as collected:
            before = _Usage.now()
            wall_ns, step_ms, losses, waits_ms = measure(step, steps, device)
            after = _Usage.now()
    return Block(
        index=index,
        started_at=started_at,
        wall_ms=wall_ns / NS_PER_MS,
        step_ms=tuple(step_ms),
        losses=read_losses(losses),
        cpu_ms=(after.cpu_ns - before.cpu_ns) / NS_PER_MS,
        run_delay_ms=None
        if before.run_delay_ns is None or after.run_delay_ns is None
        else (after.run_delay_ns - before.run_delay_ns) / NS_PER_MS,
        threads_delay_ms=_longest_delay_ms(before.threads_delay_ns, after.threads_delay_ns),
        involuntary_switches=after.involuntary_switches - before.involuntary_switches,
        page_faults=after.page_faults - before.page_faults,
        gc_collections=len(collected),
        compilations=after.compilations - before.compilations,
        step_run_delay_ms=tuple(waits_ms),
    )


def _host_steps(
    step: Step, steps: int, device: torch.device
) -> tuple[int, list[float], list[Any], list[float]]:
    clock = time.perf_counter_ns
    marks = [0] * (steps + 1)
    losses: list[Any] = [None] * steps
    with _waits() as wait:
        # Read as text: taking it apart can wait until the steps are over.
        waits = [b""] * (steps + 1)
        waits[0] = wait()
        marks[0] = clock()
        for i in range(steps):
            losses[i] = step()
            waits[i + 1] = wait()
            marks[i + 1] = clock()
    times = [(end - begin) / NS_PER_MS for begin, end in itertools.pairwise(marks)]
    waited = [_run_delay(text) for text in waits]
    waits_ms = [
        (after - before) / NS_PER_MS
        for before, after in itertools.pairwise(waited)
        if before is not None and after is not None
    ]
    return marks[-1] - marks[0], times, losses, waits_ms


def _device_steps(
    step: Step, steps: int, device: torch.device
) -> tuple[int, list[float], list[Any], list[float]]:
    clock = time.perf_counter_ns
    events = [torch.Event(device=device, enable_timing=True) for _ in range(steps + 1)]
    losses: list[Any] = [None] * steps
    begin = clock()
    events[0].record()
    for i in range(steps):
        losses[i] = step()
        events[i + 1].record()
    synchronize(device)
    wall_ns = clock() - begin
    times = [start.elapsed_time(end) for start, end in itertools.pairwise(events)]
    return wall_ns, times, losses, []


def first_step(step: Step, device: torch.device) -> tuple[float, float | None]:
    """Time and loss of the very first step, which may compile or allocate; ms."""
    synchronize(device)
    begin = time.perf_counter_ns()
    loss = step()
    synchronize(device)
    return (time.perf_counter_ns() - begin) / NS_PER_MS, read_losses([loss])[0]


def read_losses(losses: list[Any]) -> tuple[float | None, ...]:
    """The losses as floats, fetched from the device; None where a step returned none.

    Raises:
        TypeError: a step returned something that is no loss.
    """
    return tuple(None if loss is None else read_loss(loss) for loss in losses)


def read_loss(loss: Any) -> float:
    if isinstance(loss, torch.Tensor) and loss.numel() == 1:
        return float(loss)
    if isinstance(loss, (int, float)) and not isinstance(loss, bool):
        return float(loss)
    shape = f" of shape {tuple(loss.shape)}" if isinstance(loss, torch.Tensor) else ""
    raise TypeError(
        f"a step returned {type(loss).__name__}{shape}; "
        "return its loss as a number or a tensor of one element, or nothing"
    )


def diverged(losses: tuple[float | None, ...]) -> bool:
    return any(loss is not None and not math.isfinite(loss) for loss in losses)


class _Usage(NamedTuple):
    """What the system says about the process's use of the machine so far."""

    cpu_ns: int
    run_delay_ns: int | None
    threads_delay_ns: dict[str, int]  # by the thread's id
    involuntary_switches: int
    page_faults: int
    compilations: int

    @classmethod
    def now(cls) -> _Usage:
        usage = resource.getrusage(resource.RUSAGE_SELF)
        return cls(
            cpu_ns=time.process_time_ns(),
            run_delay_ns=_run_delay_ns(),
            threads_delay_ns=_threads_delay_ns(),
            involuntary_switches=usage.ru_nivcsw,
            page_faults=usage.ru_minflt + usage.ru_majflt,
            compilations=compilations(),
        )


@contextmanager
def _collections() -> Iterator[list[int]]:
    """The garbage collections inside, by generation: a step may ask for one by itself."""
    seen: list[int] = []

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            seen.append(info["generation"])

    gc.callbacks.append(note)
    try:
        yield seen
    finally:
        gc.callbacks.remove(note)


def compilations() -> int:
    """How many frames torch.compile has compiled in this process, again or for the first time."""
    # Importing it takes a second; who compiles has done so.
    dynamo = sys.modules.get("torch._dynamo.utils")
    return 0 if dynamo is None else int(dynamo.counters["frames"]["total"])


def _threads_delay_ns() -> dict[str, int]:
    """How long each thread of this process was runnable but had no core, so far."""
    delays = {}
    with suppress(OSError):
        for thread in Path(_THREADS).iterdir():
            with suppress(OSError):
                delay = _run_delay((thread / "schedstat").read_bytes())
                if delay is not None:
                    delays[thread.name] = delay
    return delays


def _longest_delay_ms(before: dict[str, int], after: dict[str, int]) -> float | None:
    delays = [delay - before.get(thread, 0) for thread, delay in after.items()]
    return max(delays) / NS_PER_MS if delays else None


@contextmanager
def _waits() -> Iterator[Callable[[], bytes]]:
    """A function that tells in a microsecond how long this thread has waited for a core."""
    try:
        file = os.open(_SCHEDSTAT, os.O_RDONLY)
    except OSError:
        yield lambda: b""
        return
    try:
        yield lambda: os.pread(file, 64, 0)
    finally:
        os.close(file)


def _run_delay_ns() -> int | None:
    with _waits() as wait:
        return _run_delay(wait())


def _run_delay(text: bytes) -> int | None:
    """Time that a thread was runnable but waited for a core, ns (second field of schedstat)."""
    try:
        return int(text.split()[1])
    except (IndexError, ValueError):
        return None
