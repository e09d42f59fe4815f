"""Measures the variants of a study, round by round, each repeat with fresh processes.

Yields one ``Repeat`` record for each attempt, whatever its status, as soon as
it is over; what to do with it is the caller's business.
"""

from __future__ import annotations

import itertools
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import islice
from math import isfinite
from statistics import median
from typing import Any, Protocol

from trainperf_mlflow.analysis.noise import (
    MOST_AGAIN,
    REFERENCE_BLOCKS,
    to_measure_again,
    usual_references_ms,
)
from trainperf_mlflow.errors import Interrupted, TrainperfError
from trainperf_mlflow.measurement import pace
from trainperf_mlflow.measurement.launcher import WorkerError
from trainperf_mlflow.measurement.protocol import Warmed
from trainperf_mlflow.measurement.schedule import Isolation, Round, paired_rounds
from trainperf_mlflow.results.record import Record, Role, Status
from trainperf_mlflow.results.repeats import Block, Repeat
from trainperf_mlflow.results.study import Variant, Workload

# A repeat that takes longer hangs; a study with a time budget uses that instead.
DEFAULT_REPEAT_TIMEOUT_S = 3600.0
# A baseline that failed this often without one success will not succeed.
BASELINE_ATTEMPTS = 2
# Processes stay alive side by side where the memory for the others is free this many times over:
# a candidate may need more than the one that was seen.
MEMORY_MARGIN = 2.0
# Before blocks are measured again, so long at most. Most disturbances last from parts of a second
# to some seconds.
CALM_S = 3.0


class Job(Record):
    """What the conductor needs to know of a plan.

    ``repeats`` are the rounds at most, ``blocks`` those of each; None for ``warmup_steps`` or
    ``steps_per_block``: as many as ``pace`` finds.
    """

    study_id: str
    task: str
    variants: tuple[Variant, ...]
    workload: Workload
    repeats: int
    blocks: int
    warmup_steps: int | None
    steps_per_block: int | None
    seed: int
    isolation: Isolation
    max_time_s: float | None = None


class AnyWorker(Protocol):
    def ask(self, request: str, timeout: float | None = None, **arguments: Any) -> Any: ...
    def __enter__(self) -> AnyWorker: ...
    def __exit__(self, *exception: Any) -> None: ...


def conduct(
    job: Job,
    start_worker: Callable[[], AnyWorker],
    announce: Callable[[str, int], None] = lambda variant, index: None,
    clock: Callable[[], float] = time.monotonic,
    enough: Callable[[int], bool] = lambda rounds: False,
) -> Iterator[Repeat]:
    """Yield the study's repeats in the order in which they end; ``announce`` their starts.

    A candidate that this device cannot do is tried once and left out after
    that. The time budget is looked at between rounds; the first round is
    always measured. A baseline that never succeeds ends the study, and so does
    ``enough``, which is asked after each round how many there were.
    """
    begin = clock()
    variants = {variant.name: variant for variant in job.variants}
    baseline_outcomes: list[Status] = []
    for name, reason in job.workload.unsupported.items():
        yield _unsupported(job, variants[name], reason)
        if variants[name].role == "baseline":
            return
    names = [name for name in variants if name not in job.workload.unsupported]
    conductor = _Conductor(job, variants, start_worker, announce)
    for planned in islice(paired_rounds(names, job.blocks, job.seed), job.repeats):
        if planned.number and job.max_time_s is not None and clock() - begin >= job.max_time_s:
            return
        for repeat in conductor.round(planned):
            if variants[repeat.variant].role == "baseline":
                baseline_outcomes.append(repeat.status)
            yield repeat
        if len(baseline_outcomes) >= BASELINE_ATTEMPTS and Status.OK not in baseline_outcomes:
            return
        if enough(planned.number + 1):
            return


class _Conductor:
    """What one round teaches the next: the pace, whether the processes fit side by side, and how
    often disturbed blocks may still be measured again."""

    def __init__(
        self,
        job: Job,
        variants: Mapping[str, Variant],
        start_worker: Callable[[], AnyWorker],
        announce: Callable[[str, int], None],
    ) -> None:
        self._job = job
        self._variants = variants
        self._start_worker = start_worker
        self._announce = announce
        self._isolation = job.isolation
        self._data_workers = any(v.config.get("num_workers") for v in job.variants)
        self._warmup = job.warmup_steps
        self._steps = job.steps_per_block
        # On a disturbed machine a study measures twice as many blocks at most.
        self._budget = job.repeats * job.blocks * len(job.variants)
        self._recent: deque[Block] = deque(maxlen=REFERENCE_BLOCKS)
        self._usual_ms: float | None = None  # of the reference computation

    def round(self, planned: Round) -> Iterator[Repeat]:
        with ExitStack() as cleanup:
            attempts: dict[str, Attempt] = {}
            first, *others = planned.starts
            self._begin(first, planned, attempts, cleanup)
            if self._isolation == "auto":
                # One step shows what a process needs, and no variant gets fewer than that.
                attempts[first].warm_to(1 if self._warmup is None else min(1, self._warmup))
                if not attempts[first].ended:
                    self._isolation = _fitting(attempts[first], len(others))
            take_turns = self._isolation == "resident"
            measure = self._side_by_side if take_turns else self._one_by_one
            yield from measure(planned, attempts, cleanup)

    def _side_by_side(
        self, planned: Round, attempts: dict[str, Attempt], cleanup: ExitStack
    ) -> Iterator[Repeat]:
        """All processes of the round stay alive and take turns by blocks; only one ever runs."""
        for name in planned.starts[1:]:
            self._begin(name, planned, attempts, cleanup)
        told = _Told()
        self._warm_up([attempts[name] for name in planned.starts])
        yield from told.ended(attempts)
        for index, order in enumerate(planned.blocks):
            for again in itertools.count():
                if again:
                    attempts[order[0]].calm(self._usual_ms)
                for name in order:
                    attempts[name].block(index, self._steps, again)
                    yield from told.ended(attempts)
                if not self._again(attempts.values(), again):
                    break
        for name in planned.starts:
            attempts[name].finish()
            attempts[name].succeed()
            yield from told.ended(attempts)

    def _one_by_one(
        self, planned: Round, attempts: dict[str, Attempt], cleanup: ExitStack
    ) -> Iterator[Repeat]:
        """Each block has its own process, which ends before the next one starts."""
        told = _Told()
        started = planned.starts[0]
        orders = list(planned.blocks)
        orders[0] = (started, *(name for name in orders[0] if name != started))
        for index, order in enumerate(orders):
            for name in order:
                for again in itertools.count():
                    if index or again or name != started:
                        self._begin(name, planned, attempts, cleanup)
                    if again:
                        attempts[name].calm(self._usual_ms)
                    self._warm_up([attempts[name]])
                    attempts[name].block(index, self._steps, again)
                    # Alone: its neighbour's process is gone, and has trained no other steps.
                    if not self._again([attempts[name]], again):
                        break
                    attempts[name].leave()
                if index == len(orders) - 1:
                    attempts[name].finish()
                    attempts[name].succeed()
                else:
                    attempts[name].leave()
                yield from told.ended(attempts)

    def _again(self, attempts: Iterable[Attempt], again: int) -> bool:
        """Whether the neighbouring blocks that were just measured are measured once more: their
        pairs were disturbed, and neither they nor the study have been so too often."""
        latest = [(a.role, a.latest) for a in attempts if not a.ended and a.latest is not None]
        self._recent += [block for _, block in latest]
        self._usual_ms = next(reversed(usual_references_ms(list(self._recent))), None)
        if again >= MOST_AGAIN or self._budget <= 0:
            return False
        baseline = next((block for role, block in latest if role == "baseline"), None)
        candidates = [block for role, block in latest if role == "candidate"]
        device, workers = self._job.workload.device, self._data_workers
        if not to_measure_again(baseline, candidates, self._usual_ms, device, workers):
            return False
        self._budget -= len(latest)
        return True

    def _begin(
        self, name: str, planned: Round, attempts: dict[str, Attempt], cleanup: ExitStack
    ) -> None:
        if name not in attempts:
            self._announce(name, planned.number)
            attempts[name] = Attempt(self._job, self._variants[name], planned.number)
        attempts[name].start(self._start_worker, cleanup)

    def _warm_up(self, attempts: Sequence[Attempt]) -> None:
        """The same steps for all; where the plan leaves it open, until all have settled."""
        if self._warmup is not None:
            for attempt in attempts:
                attempt.warm_to(self._warmup)
        else:
            self._warmup = self._until_settled(attempts)
        if self._steps is None:
            self._steps = pace.steps_per_block(_step_times(attempts))

    def _until_settled(self, attempts: Sequence[Attempt]) -> int:
        steps, spent_ms = 1, 0.0
        before: list[tuple[float, ...]] = []
        for attempt in attempts:
            attempt.warm_to(steps)
        for _ in range(pace.MAX_WINDOWS):
            steps += pace.window_steps(_step_times(attempts))
            for attempt in attempts:
                attempt.warm_to(steps)
            after = [attempt.step_ms for attempt in attempts if not attempt.ended]
            spent_ms += sum(map(sum, after))
            same = len(before) == len(after) and all(map(pace.settled, before, after))
            if same or not after or spent_ms >= pace.MAX_WARMUP_MS:
                break
            before = after
        return steps


def _fitting(seen: Attempt, others: int) -> Isolation:
    """Side by side where the memory of all is known to fit."""
    held, free = seen.held_mb, seen.free_mb
    fits = held is not None and free is not None and held * others * MEMORY_MARGIN <= free
    return "resident" if fits else "process"


class _Told:
    """Which attempts of a round have been told of."""

    def __init__(self) -> None:
        self._names: set[str] = set()

    def ended(self, attempts: Mapping[str, Attempt]) -> Iterator[Repeat]:
        for name, attempt in attempts.items():
            if attempt.ended and name not in self._names:
                self._names.add(name)
                yield attempt.result()


def _step_times(attempts: Sequence[Attempt]) -> list[float]:
    """The median step of each attempt's last warmup, ms."""
    return [median(a.step_ms) for a in attempts if a.step_ms and not a.ended]


class Attempt:
    """One repeat as it comes about. An error ends it with its status; what follows is skipped."""

    def __init__(self, job: Job, variant: Variant, index: int) -> None:
        self._job = job
        self._variant = variant
        self._index = index
        self._started_at = time.time()
        self._left_s = job.max_time_s or DEFAULT_REPEAT_TIMEOUT_S
        self._worker: AnyWorker | None = None
        self._process = -1
        self._warmed = 0
        self._blocks: dict[int, Block] = {}
        self._facts: dict[str, Any] = {}
        self._error: str | None = None
        self.status: Status | None = None
        self.step_ms: tuple[float, ...] = ()  # of the last warmup
        self.held_mb: float | None = None
        self.free_mb: float | None = None

    @property
    def ended(self) -> bool:
        return self.status is not None

    @property
    def role(self) -> Role:
        return self._variant.role

    @property
    def latest(self) -> Block | None:
        """The block that was measured last."""
        return next(reversed(self._blocks.values()), None)

    def start(self, start_worker: Callable[[], AnyWorker], cleanup: ExitStack) -> None:
        """A fresh process with a fresh initialisation."""
        if self.ended:
            return
        self._worker = cleanup.enter_context(start_worker())
        self._process += 1
        self._warmed = 0
        job = self._job
        built = self._ask(
            "build",
            task=job.task,
            config=self._variant.config,
            changed=self._variant.changed,
            seed=job.seed + self._index,
            data_seed=job.seed,
            device=job.workload.device,
        )
        if built is not None:
            self._facts |= built.model_dump()

    def warm_to(self, steps: int) -> None:
        """Unmeasured steps until there have been so many in this process."""
        # A plan without warmup still resets the peaks of building.
        if steps <= self._warmed and self._warmed:
            return
        warmed: Warmed | None = self._ask("warmup", steps=steps - self._warmed)
        if warmed is None:
            return
        if warmed.data_digest is not None:
            self._facts["data_digest"] = warmed.data_digest
        if warmed.first_step_ms is not None:
            self._facts["first_step_ms"] = warmed.first_step_ms
            self.step_ms = (warmed.first_step_ms,)
        self._warmed = self._facts["warmup_steps"] = steps
        self.step_ms = warmed.step_ms or self.step_ms
        self.held_mb, self.free_mb = warmed.held_mb, warmed.free_mb

    def calm(self, usual_ms: float | None) -> None:
        """Wait until the core is as fast as usual, though not for long: what disturbed a block
        often lasts for some. The wait is none of the repeat's own time."""
        if usual_ms is not None:
            left_s = self._left_s
            self._ask("calm", usual_ms=usual_ms, at_most_s=min(CALM_S, left_s / 2))
            self._left_s = left_s

    def block(self, index: int, steps: int | None, again: int = 0) -> None:
        """Measure a block; one that was measured before is replaced."""
        block: Block | None = self._ask("block", index=index, steps=steps or pace.MIN_STEPS)
        if block is None:
            return
        block = block.model_copy(update={"process": self._process, "again": again})
        self._blocks[index] = block
        bad = [loss for loss in block.losses if loss is not None and not isfinite(loss)]
        if bad:
            step = block.losses.index(bad[0])
            self._end(
                Status.DIVERGED,
                f"the loss became {bad[0]} in measured step {step + 1} of block {block.index + 1}",
            )

    def finish(self) -> None:
        """What must not disturb measured steps: peaks, evaluation, the watched step."""
        finished = self._ask("finish")
        if finished is not None:
            self._facts |= {name: getattr(finished, name) for name in type(finished).model_fields}

    def succeed(self) -> None:
        if not self.ended:
            self._end(Status.OK, None)

    def leave(self) -> None:
        """End the process, not the repeat."""
        if self._worker is not None:
            self._worker.__exit__(None, None, None)

    def _ask(self, request: str, **arguments: Any) -> Any:
        """The worker's answer, or None where the repeat has ended, or ends with this."""
        if self.ended or self._worker is None:
            return None
        begin = time.monotonic()
        try:
            return self._worker.ask(request, timeout=self._left_s, **arguments)
        except WorkerError as error:
            self._end(error.status, error.text)
        except Interrupted:
            raise
        except TrainperfError as error:
            self._end(Status.FAILED, str(error))
        finally:
            # Only its own time counts: the others of its round take turns with it.
            self._left_s = max(0.0, self._left_s - (time.monotonic() - begin))
        return None

    def _end(self, status: Status, error: str | None) -> None:
        self.status = status
        self._error = error
        self.leave()

    def result(self) -> Repeat:
        assert self.status is not None
        blocks = tuple(block for _, block in sorted(self._blocks.items()))
        losses = [loss for block in blocks for loss in block.losses]
        return Repeat(
            study_id=self._job.study_id,
            variant=self._variant.name,
            index=self._index,
            seed=self._job.seed + self._index,
            status=self.status,
            error=self._error,
            started_at=self._started_at,
            ended_at=time.time(),
            blocks=blocks,
            loss=losses[-1] if losses else None,
            **self._facts,
        )


def _unsupported(job: Job, variant: Variant, reason: str) -> Repeat:
    now = time.time()
    return Repeat(
        study_id=job.study_id,
        variant=variant.name,
        index=0,
        seed=job.seed,
        status=Status.UNSUPPORTED,
        error=reason,
        started_at=now,
        ended_at=now,
    )
