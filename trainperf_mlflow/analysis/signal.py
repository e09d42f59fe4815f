"""Which number stands for a block's step time, chosen by a rule and recorded.

A thread that is runnable but has no core waits for somebody else's work. The kernel counts that
wait for each thread, so where one thread does the work it can be subtracted: what is left is
the time the step itself took, sleeping and waiting for data included. With several threads, data
workers or an accelerator the waits of the others are not seen; there the wall time is taken, and
a wait disturbs its pair.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import Literal, NamedTuple

from trainperf_mlflow.analysis.thinning import LOSSES_OF_BLOCK, evenly
from trainperf_mlflow.results.repeats import Block
from trainperf_mlflow.results.values import BlockValues

# A block that waited for a core for a larger share of its time was disturbed.
GATE = 0.05
# CPU time over wall time above which more than one thread worked: clocks differ by some percent.
ONE_THREAD = 1.1

SignalName = Literal["net", "gated wall"]


class Signal(NamedTuple):
    """The signal of a comparison and why it was chosen."""

    name: SignalName
    reason: str

    def low(self, block: BlockValues) -> float:
        """The block's step time that is compared: the mean of its fastest quarter, ms."""
        return block.low_ms if self.name == "gated wall" else block.net_low_ms or block.low_ms

    def mean(self, block: BlockValues) -> float:
        """The block's mean step time, in which stalls show, ms."""
        return block.mean_ms if self.name == "gated wall" else block.net_mean_ms or block.mean_ms


def block_values(block: Block, samples_per_step: float | None) -> BlockValues | None:
    """What a comparison reads of a block, or None where it has no time to compare."""
    steps = block.step_ms
    if not steps or block.wall_ms <= 0 or min(steps) <= 0:
        return None
    waits = block.step_run_delay_ms
    # A wait is counted when the thread gets its core, so it may end in a step that is shorter.
    net = [max(0.0, step - wait) for step, wait in zip(steps, waits, strict=False)]
    known = len(net) == len(steps) and min(net) > 0
    delays = [ms for ms in (block.run_delay_ms, block.threads_delay_ms) if ms is not None]
    return BlockValues(
        index=block.index,
        process=block.process,
        started_at=block.started_at,
        wall_s=block.wall_ms / 1000,
        samples_per_step=samples_per_step,
        mean_ms=block.wall_ms / len(steps),
        low_ms=_low(steps),
        net_mean_ms=fmean(net) if known else None,
        net_low_ms=_low(net) if known else None,
        run_delay=None if not delays else max(delays) / block.wall_ms,
        cpu=None if block.cpu_ms is None else block.cpu_ms / block.wall_ms,
        steps=len(steps),
        faults=block.page_faults,
        gc=block.gc_collections,
        compilations=block.compilations,
        watch=block.watch,
        again=block.again,
        losses=evenly(block.losses, LOSSES_OF_BLOCK),
    )


def choose_signal(blocks: Iterable[BlockValues], device: str, data_workers: bool) -> Signal:
    """The signal for a baseline and a candidate, from the blocks of both.

    Args:
        device: where it trained, e.g. "cpu" or "cuda:0".
        data_workers: whether other processes prepare the data.
    """
    blocks = list(blocks)
    if not device.startswith("cpu"):
        return Signal("gated wall", f"the work is done on {device}, not by a thread")
    if data_workers:
        return Signal("gated wall", "other processes prepare the data")
    if any(block.net_low_ms is None for block in blocks):
        return Signal("gated wall", "this system does not tell how long a thread waits for a core")
    busiest = max((block.cpu or 0.0 for block in blocks), default=0.0)
    if busiest > ONE_THREAD:
        return Signal("gated wall", f"several threads do the work ({busiest:.1f} cores were busy)")
    return Signal("net", "one thread does the work, so its waits for a core are subtracted")


def _low(values: Sequence[float]) -> float:
    """The mean of the fastest quarter.

    On recorded streams it finds more than the 25th percentile, the median or the mean, and is
    wrong no more often; the fastest step alone would find as much, but is a single one.
    """
    fastest = sorted(values)[: max(1, round(len(values) / 4))]
    return fmean(fastest)
