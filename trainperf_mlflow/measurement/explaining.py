"""Runs what explains a study: each variant in fresh processes, in an order that changes.

Like the conductor it yields an attempt as soon as it is over, whatever its status.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

from trainperf_mlflow.attribution import Attempt
from trainperf_mlflow.errors import Interrupted, TrainperfError, UnsupportedError
from trainperf_mlflow.measurement.conductor import DEFAULT_REPEAT_TIMEOUT_S, AnyWorker
from trainperf_mlflow.measurement.launcher import WorkerError
from trainperf_mlflow.measurement.schedule import round_orders
from trainperf_mlflow.results.record import Record, Status
from trainperf_mlflow.results.study import Variant, Workload


class ExplainingJob(Record):
    """What is to be explained, and how often."""

    task: str
    variants: tuple[Variant, ...]
    workload: Workload
    rounds: int
    warmup_steps: int
    seed: int


def explain(
    job: ExplainingJob,
    start_worker: Callable[[], AnyWorker],
    look: Callable[[AnyWorker, Variant, float], dict[str, Any]],
    announce: Callable[[str, int], None] = lambda variant, index: None,
    prepare: Callable[[AnyWorker], Any] = lambda worker: None,
) -> Iterator[Attempt]:
    """Yield one attempt per variant and round.

    Args:
        look: asks a warmed-up worker for what is wanted, within so many seconds; its
            result are fields of the ``Attempt``.
        prepare: called with each fresh worker before anything is built.
    """
    variants = {variant.name: variant for variant in job.variants}
    for name, reason in job.workload.unsupported.items():
        yield Attempt(variant=name, index=0, status=Status.UNSUPPORTED, error=reason)
    names = [name for name in variants if name not in job.workload.unsupported]
    for index, order in enumerate(round_orders(tuple(names), job.rounds, job.seed)):
        for name in (name for name in order if name in names):
            announce(name, index)
            attempt = _attempt(job, variants[name], index, start_worker, look, prepare)
            yield attempt
            if attempt.status is Status.UNSUPPORTED:
                names.remove(name)  # nor will it be able to in the next round


def _attempt(
    job: ExplainingJob,
    variant: Variant,
    index: int,
    start_worker: Callable[[], AnyWorker],
    look: Callable[[AnyWorker, Variant, float], dict[str, Any]],
    prepare: Callable[[AnyWorker], Any],
) -> Attempt:
    deadline = time.monotonic() + DEFAULT_REPEAT_TIMEOUT_S

    def left() -> float:
        return max(0.0, deadline - time.monotonic())

    try:
        with start_worker() as worker:
            prepare(worker)
            built = worker.ask(
                "build",
                timeout=left(),
                task=job.task,
                config=variant.config,
                changed=variant.changed,
                seed=job.seed + index,
                data_seed=job.seed,
                device=job.workload.device,
            )
            worker.ask("warmup", timeout=left(), steps=job.warmup_steps)
            found = look(worker, variant, left())
    except WorkerError as error:
        return Attempt(variant=variant.name, index=index, status=error.status, error=error.text)
    except Interrupted:
        raise
    except UnsupportedError as error:
        return Attempt(
            variant=variant.name, index=index, status=Status.UNSUPPORTED, error=str(error)
        )
    except TrainperfError as error:
        return Attempt(variant=variant.name, index=index, status=Status.FAILED, error=str(error))
    return Attempt(
        variant=variant.name,
        index=index,
        status=Status.OK,
        samples_per_step=built.samples_per_step,
        environment=built.environment,
        **found,
    )
