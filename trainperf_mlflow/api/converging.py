"""The longer training that a plan asks for, after the measured part of a study."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from trainperf_mlflow.analysis.convergence import MIN_SEEDS
from trainperf_mlflow.measurement.converging import train_further
from trainperf_mlflow.results.record import Status

if TYPE_CHECKING:
    from trainperf_mlflow.measurement.conductor import Job
    from trainperf_mlflow.measurement.launcher import Launcher
    from trainperf_mlflow.signals import Interruption
    from trainperf_mlflow.tracking.recorder import Recorder


def converge(
    job: Job,
    steps: int,
    recorder: Recorder,
    launcher: Launcher,
    interruption: Interruption,
    say: Callable[[str], None],
) -> None:
    """Train what has been measured for ``steps`` steps, with the seeds of the study's rounds and
    at least three, and record where that led.

    Raises:
        Interrupted: by a signal; what was trained is kept.
    """
    measured = {
        values.name
        for values in recorder.values()
        if any(repeat.status is Status.OK for repeat in values.repeats)
    }
    variants = tuple(variant for variant in job.variants if variant.name in measured)
    if not any(variant.role == "baseline" for variant in variants):
        return
    rounds = {repeat.index for repeat in recorder.repeats}
    seeds = max(MIN_SEEDS, len(rounds))

    def announce(variant: str, index: int) -> None:
        interruption.check()
        say(f"{variant}: training {steps} steps, seed {index + 1} of {seeds}")

    for name, run in train_further(job, variants, seeds, steps, launcher.worker, announce):
        recorder.keep_convergence(name, run)
        interruption.check()
    recorder.record_convergence()
