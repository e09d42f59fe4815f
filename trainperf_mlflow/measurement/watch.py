"""What happens on the machine around a block: read before and after it, never inside.

Linux tells most of it in ``/proc``. What a system does not tell is None.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from trainperf_mlflow.results.repeats import DeviceState, Watch

# Short beside the shortest block (0.5 s): three runs before and three after take some 2 ms.
REFERENCE_RUNS = 3
REFERENCE_ADDITIONS = 10_000
REFERENCE_INTERVAL_S = 0.05
_PROC = Path("/proc")


class Reading(NamedTuple):
    """Counters since the machine started; seconds."""

    clock_s: float
    busy_s: float | None  # of the cores that this process may use
    steal_s: float | None
    cores: int
    own_s: float  # CPU time of this process and its children
    cpu_pressure_s: float | None
    memory_pressure_s: float | None


def reading(root: Path = _PROC) -> Reading:
    """The counters now."""
    busy, steal, cores = _cores_time(root / "stat")
    return Reading(
        clock_s=time.monotonic(),
        busy_s=busy,
        steal_s=steal,
        cores=cores,
        own_s=time.process_time() + sum(_children_s()),
        cpu_pressure_s=_pressure_s(root / "pressure" / "cpu"),
        memory_pressure_s=_pressure_s(root / "pressure" / "memory"),
    )


def between(
    before: Reading,
    after: Reading,
    reference_ms: tuple[float, float] | None = None,
    device: DeviceState | None = None,
) -> Watch:
    """What two readings say about the time between them."""
    span = after.clock_s - before.clock_s

    def share(first: float | None, last: float | None, of: float = span) -> float | None:
        return None if first is None or last is None or of <= 0 else max(0.0, last - first) / of

    all_busy = share(before.busy_s, after.busy_s)
    own = share(before.own_s, after.own_s)
    return Watch(
        others_cores=None if all_busy is None or own is None else max(0.0, all_busy - own),
        steal=share(before.steal_s, after.steal_s, span * max(1, after.cores)),
        cpu_pressure=share(before.cpu_pressure_s, after.cpu_pressure_s),
        memory_pressure=share(before.memory_pressure_s, after.memory_pressure_s),
        reference_ms=reference_ms,
        device=device,
    )


def watched(seconds: float) -> tuple[Watch, tuple[float, ...]]:
    """The machine during so many seconds in which this process does next to nothing, and what the
    reference computation took now and then; ms."""
    before, end, times = reading(), time.monotonic() + seconds, [reference_ms()]
    while time.monotonic() < end:
        time.sleep(min(REFERENCE_INTERVAL_S, seconds))
        times.append(reference_ms())
    return between(before, reading(), (times[0], times[-1])), tuple(times)


def reference_ms() -> float:
    """The best time of a fixed small computation: a core that is slower now takes longer.

    It stays within the first cache, so that it takes nothing away from the training.
    """
    return min(_additions_ms() for _ in range(REFERENCE_RUNS))


def _additions_ms() -> float:
    begin, total = time.perf_counter_ns(), 0
    for number in range(REFERENCE_ADDITIONS):
        total += number
    return (time.perf_counter_ns() - begin) / 1e6


def _cores_time(path: Path) -> tuple[float | None, float | None, int]:
    """Busy and stolen seconds of the usable cores, and how many there are."""
    usable = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()
    busy = steal = cores = 0
    with suppress(OSError, ValueError, IndexError):
        for line in path.read_text().splitlines():
            name, *values = line.split()
            if name.startswith("cpu") and name[3:].isdigit() and int(name[3:]) in usable:
                user, nice, system, _, _, irq, softirq, stolen, *_ = map(int, values)
                busy += user + nice + system + irq + softirq
                steal += stolen
                cores += 1
    if not cores:
        return None, None, 0
    tick = os.sysconf("SC_CLK_TCK")
    return busy / tick, steal / tick, cores


def _children_s() -> Iterator[float]:
    """The CPU seconds of each live child, as of workers that prepare data."""
    with suppress(OSError, ValueError, IndexError):
        pids = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
        for pid in pids:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            yield (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _pressure_s(path: Path) -> float | None:
    """Seconds in which some process waited for this resource."""
    with suppress(OSError, ValueError, IndexError):
        some = path.read_text().splitlines()[0]
        return int(some.rpartition("total=")[2]) / 1e6
    return None
