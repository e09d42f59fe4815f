"""The longer training of a study's variants in MLflow: one file, and on each variant its curve."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean

from mlflow.entities import Metric
from mlflow.exceptions import MlflowException

from trainperf_mlflow.errors import StoreError
from trainperf_mlflow.results.record import Status
from trainperf_mlflow.results.repeats import Convergence, StudyConvergence
from trainperf_mlflow.results.values import VariantValues
from trainperf_mlflow.tracking import names
from trainperf_mlflow.tracking.store import Store, reason, refusals

Runs = Mapping[str, Sequence[Convergence]]  # by variant


def send_convergence(
    store: Store, study_id: str, runs: Runs, variant_runs: Mapping[str, str]
) -> None:
    """The file on the study; on each variant the mean eval loss and the mean curve of its seeds.

    May be sent again: a point of a curve has the time at which its training ended.
    """
    kept = StudyConvergence(variants={name: tuple(own) for name, own in runs.items()})
    store.client.log_text(study_id, kept.to_json(indent=None), names.CONVERGENCE_FILE)
    for name, own in runs.items():
        metrics = list(_metrics([run for run in own if run.status is Status.OK]))
        if metrics:
            store.client.log_batch(variant_runs[name], metrics=metrics, synchronous=True)


def load_convergence(store: Store, study_id: str) -> dict[str, tuple[Convergence, ...]]:
    """The trainings of each variant; empty where there were none.

    Raises:
        StoreError: the store cannot be read, or the file is damaged.
    """
    with refusals(store.tracking_uri):
        found = {item.path for item in store.client.list_artifacts(study_id)}
    if names.CONVERGENCE_FILE not in found:
        return {}
    with tempfile.TemporaryDirectory(prefix="trainperf-") as folder:
        try:
            path = store.client.download_artifacts(study_id, names.CONVERGENCE_FILE, folder)
            return StudyConvergence.from_json(Path(path).read_bytes()).variants
        except (MlflowException, OSError, ValueError) as error:
            raise StoreError(
                f"study {study_id} has no readable {names.CONVERGENCE_FILE} "
                f"({reason(error, store.tracking_uri)[:200]}), without which its longer training "
                "is lost; try again, or measure it again"
            ) from None


def with_convergence(variants: Sequence[VariantValues], runs: Runs) -> tuple[VariantValues, ...]:
    return tuple(
        variant.model_copy(update={"convergence": tuple(runs.get(variant.name, ()))})
        for variant in variants
    )


def _metrics(runs: Sequence[Convergence]) -> Iterator[Metric]:
    if not runs:
        return
    at_ms = int(max(run.ended_at for run in runs) * 1000)
    ends = [run.eval_loss for run in runs if run.eval_loss is not None]
    if ends and all(map(math.isfinite, ends)):
        yield Metric(names.CONVERGENCE_EVAL_LOSS, fmean(ends), at_ms, runs[0].steps)
    for place, losses in enumerate(zip(*(run.losses for run in runs), strict=False)):
        known = [loss for loss in losses if loss is not None]
        if len(known) == len(losses):
            step = place * runs[0].every + 1
            yield Metric(names.CONVERGENCE_LOSS_SERIES, fmean(known), at_ms, step)
