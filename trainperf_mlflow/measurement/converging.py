"""A longer training of each variant, after all that is timed: what does its eval loss lead to?"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from trainperf_mlflow.analysis.thinning import evenly, stride
from trainperf_mlflow.errors import Interrupted, TrainperfError
from trainperf_mlflow.measurement.launcher import WorkerError
from trainperf_mlflow.measurement.protocol import Built, Trained
from trainperf_mlflow.results.record import Status
from trainperf_mlflow.results.repeats import Convergence
from trainperf_mlflow.results.study import Variant

if TYPE_CHECKING:
    from trainperf_mlflow.measurement.conductor import AnyWorker, Job

# What a chart and a file of all variants can hold.
LOSSES_KEPT = 500
# A training that takes longer than this for one seed hangs.
TIMEOUT_S = 24 * 3600.0


def train_further(
    job: Job,
    variants: tuple[Variant, ...],
    seeds: int,
    steps: int,
    start_worker: Callable[[], AnyWorker],
    announce: Callable[[str, int], None] = lambda variant, index: None,
) -> Iterator[tuple[str, Convergence]]:
    """Yield each variant's training with each seed: those of the study's rounds, and their data.

    Each has a process of its own, one at a time. A variant that failed once is left out after
    that, and all end where the baseline did, since there is nothing to compare with.
    """
    failed: set[str] = set()
    for index in range(seeds):
        for variant in variants:
            if variant.name in failed:
                continue
            announce(variant.name, index)
            run = _trained(job, variant, index, steps, start_worker)
            yield variant.name, run
            if run.status is not Status.OK:
                failed.add(variant.name)
        if any(variant.role == "baseline" and variant.name in failed for variant in variants):
            return


def _trained(
    job: Job,
    variant: Variant,
    index: int,
    steps: int,
    start_worker: Callable[[], AnyWorker],
) -> Convergence:
    seed = job.seed + index
    try:
        with start_worker() as worker:
            built: Built = worker.ask(
                "build",
                timeout=TIMEOUT_S,
                task=job.task,
                config=variant.config,
                changed=variant.changed,
                seed=seed,
                data_seed=job.seed,
                device=job.workload.device,
            )
            trained: Trained = worker.ask("train", timeout=TIMEOUT_S, steps=steps)
    except WorkerError as error:
        return _failed(index, seed, steps, error.status, error.text)
    except Interrupted:
        raise
    except TrainperfError as error:
        return _failed(index, seed, steps, Status.FAILED, str(error))
    return Convergence(
        index=index,
        seed=seed,
        status=Status.OK if trained.diverged is None else Status.DIVERGED,
        error=trained.diverged,
        steps=steps,
        every=stride(len(trained.losses), LOSSES_KEPT),
        losses=evenly(trained.losses, LOSSES_KEPT),
        eval_loss=trained.eval_loss,
        quality_checked=built.quality_checked,
        ended_at=time.time(),
    )


def _failed(index: int, seed: int, steps: int, status: Status, error: str) -> Convergence:
    return Convergence(
        index=index, seed=seed, status=status, error=error, steps=steps, ended_at=time.time()
    )
