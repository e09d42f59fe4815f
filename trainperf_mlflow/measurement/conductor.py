"""Measures the variants of a study, round by round, each repeat in a fresh process.

Yields one ``Repeat`` record for each attempt, whatever its status, as soon as
it is over; what to do with it is the caller's business.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from math import isfinite
from typing import Any, Protocol

from trainperf_mlflow.errors import Interrupted, TrainperfError
from trainperf_mlflow.measurement.launcher import WorkerError
from trainperf_mlflow.measurement.schedule import Action, Isolation, round_actions, round_orders
from trainperf_mlflow.results import Block, Record, Repeat, Status, Variant, Workload

# A repeat that takes longer hangs; a study with a time budget uses that instead.
DEFAULT_REPEAT_TIMEOUT_S = 3600.0
# A baseline that failed this often without one success will not succeed.
BASELINE_ATTEMPTS = 2


class Job(Record):
    """What the conductor needs to know of a plan."""

    study_id: str
    task: str
    variants: tuple[Variant, ...]
    workload: Workload
    repeats: int
    blocks: int
    warmup_steps: int
    steps_per_block: int
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
) -> Iterator[Repeat]:
    """Yield the study's repeats in the order in which they end; ``announce`` their starts.

    A candidate that this device cannot do is tried once and left out after
    that. The time budget is looked at between rounds; the first round is
    always measured. A baseline that never succeeds ends the study.
    """
    begin = clock()
    variants = {variant.name: variant for variant in job.variants}
    baseline_outcomes: list[Status] = []
    for name, reason in job.workload.unsupported.items():
        yield _unsupported(job, variants[name], reason)
        if variants[name].role == "baseline":
            return
    names = [name for name in variants if name not in job.workload.unsupported]
    for index, order in enumerate(round_orders(names, job.repeats, job.seed)):
        if index and job.max_time_s is not None and clock() - begin >= job.max_time_s:
            return
        for repeat in _round(job, variants, order, index, start_worker, announce):
            if variants[repeat.variant].role == "baseline":
                baseline_outcomes.append(repeat.status)
            yield repeat
        if len(baseline_outcomes) >= BASELINE_ATTEMPTS and Status.OK not in baseline_outcomes:
            return


def _round(
    job: Job,
    variants: dict[str, Variant],
    order: Sequence[str],
    index: int,
    start_worker: Callable[[], AnyWorker],
    announce: Callable[[str, int], None],
) -> Iterator[Repeat]:
    with ExitStack() as cleanup:
        attempts: dict[str, Attempt] = {}
        for action in round_actions(order, index, job.blocks, job.isolation):
            if action.kind == "start":
                announce(action.variant, index)
                attempts[action.variant] = Attempt(
                    job, variants[action.variant], index, start_worker, cleanup
                )
            attempt = attempts[action.variant]
            if attempt.ended:
                continue
            attempt.run(action)
            if attempt.ended:
                yield attempt.result()


class Attempt:
    """One repeat as it comes about."""

    def __init__(
        self,
        job: Job,
        variant: Variant,
        index: int,
        start_worker: Callable[[], AnyWorker],
        cleanup: ExitStack,
    ) -> None:
        self._job = job
        self._variant = variant
        self._started_at = time.time()
        self._deadline = time.monotonic() + (job.max_time_s or DEFAULT_REPEAT_TIMEOUT_S)
        self._worker = cleanup.enter_context(start_worker())
        self._blocks: list[Block] = []
        self._facts: dict[str, Any] = {}
        self._index = index
        self.status: Status | None = None
        self._error: str | None = None

    @property
    def ended(self) -> bool:
        return self.status is not None

    def run(self, action: Action) -> None:
        """Do one action; an error ends the attempt with its status."""
        try:
            getattr(self, f"_{action.kind}")(action)
        except WorkerError as error:
            self._end(error.status, error.text)
        except Interrupted:
            raise
        except TrainperfError as error:
            self._end(Status.FAILED, str(error))

    def _ask(self, request: str, **arguments: Any) -> Any:
        left = max(0.0, self._deadline - time.monotonic())
        return self._worker.ask(request, timeout=left, **arguments)

    def _start(self, action: Action) -> None:
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
        self._facts |= built.model_dump()

    def _warmup(self, action: Action) -> None:
        warmed = self._ask("warmup", steps=self._job.warmup_steps)
        self._facts |= {"first_step_ms": warmed.first_step_ms, "warmup_steps": warmed.steps}

    def _block(self, action: Action) -> None:
        block: Block = self._ask("block", index=action.block, steps=self._job.steps_per_block)
        self._blocks.append(block)
        bad = [loss for loss in block.losses if loss is not None and not isfinite(loss)]
        if bad:
            step = block.losses.index(bad[0])
            self._end(
                Status.DIVERGED,
                f"the loss became {bad[0]} in measured step {step + 1} of block {block.index + 1}",
            )

    def _finish(self, action: Action) -> None:
        finished = self._ask("finish")
        self._facts |= {name: getattr(finished, name) for name in type(finished).model_fields}
        self._end(Status.OK, None)

    def _end(self, status: Status, error: str | None) -> None:
        self.status = status
        self._error = error
        self._worker.__exit__(None, None, None)

    def result(self) -> Repeat:
        assert self.status is not None
        losses = [loss for block in self._blocks for loss in block.losses]
        return Repeat(
            study_id=self._job.study_id,
            variant=self._variant.name,
            index=self._index,
            seed=self._job.seed + self._index,
            status=self.status,
            error=self._error,
            started_at=self._started_at,
            ended_at=time.time(),
            blocks=tuple(self._blocks),
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
