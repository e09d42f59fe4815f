"""The memory that was predicted, beside the memory that was measured on an accelerator."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from trainperf_mlflow.analysis.estimate import Prediction, compared
from trainperf_mlflow.errors import Interrupted, TrainperfError
from trainperf_mlflow.measurement.launcher import Launcher, WorkerError
from trainperf_mlflow.results.repeats import Repeat
from trainperf_mlflow.results.study import Study

if TYPE_CHECKING:
    from trainperf_mlflow.tracking.recorder import Recorder

# A variant takes some seconds; whoever waits longer than this has measured already.
TIMEOUT_S = 120.0


def predict_measured(recorder: Recorder, launcher: Launcher, say: Callable[[str], None]) -> None:
    """Record a prediction beside each variant that was measured on an accelerator.

    A study never fails for it: what cannot be predicted is recorded with its reason.
    """
    study = recorder.study
    if study.workload.device.partition(":")[0] == "cpu":  # the tensors themselves were counted
        return
    say("predicting the memory that was measured, to know the error of predictions here")
    for prediction in predictions(study, recorder.repeats, launcher):
        recorder.record_prediction(prediction)


def predictions(
    study: Study, repeats: Iterable[Repeat], launcher: Launcher
) -> Iterator[Prediction]:
    """One for each variant whose peak was measured, each from a process of its own."""
    repeats = list(repeats)
    for variant in study.variants:
        own = [r for r in repeats if r.variant == variant.name and r.peak_mem_mb is not None]
        peaks = [repeat.peak_mem_mb for repeat in own if repeat.peak_mem_mb is not None]
        if not peaks:
            continue
        try:
            with launcher.worker() as worker:
                found = worker.ask(
                    "predict",
                    timeout=TIMEOUT_S,
                    task=study.plan["task"],
                    variant=variant,
                    device=study.workload.device,
                    environment=own[-1].environment,
                )
        except Interrupted:
            raise
        except (WorkerError, TrainperfError) as error:
            yield Prediction(variant=variant.name, reason=f"unsupported: {error}")
        else:
            yield compared(found, sum(peaks) / len(peaks))
