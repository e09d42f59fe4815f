"""Runs that gather studies: a regression over several, a scope over a ladder of lengths."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence

from mlflow.entities import Metric

from trainperf_mlflow.results.decision import Decision
from trainperf_mlflow.tracking import colours, names
from trainperf_mlflow.tracking.creating import own_run
from trainperf_mlflow.tracking.entities import run_tags
from trainperf_mlflow.tracking.links import run_link
from trainperf_mlflow.tracking.store import Store, refusals
from trainperf_mlflow.tracking.writing import RunStatus, decision_tags, end_run


def create_gathering_run(store: Store, kind: str, name: str, tags: Mapping[str, str | None]) -> str:
    """A new run of a kind; under ``mlflow run`` the project's run itself.

    Raises:
        StoreError: the store refuses.
    """
    ours = {names.KIND: kind, names.SCHEMA: names.SCHEMA_VERSION, **tags}
    with refusals(store.tracking_uri):
        run_id = own_run(store, name, names.tags(ours), time.time())
        # By this tag a run is found with all that belongs to it.
        store.client.set_tag(run_id, names.STUDY_ID, run_id)
    return run_id


def finish_gathering_run(
    store: Store,
    run_id: str,
    files: Mapping[str, str],
    decision: Decision,
    note: str,
    metrics: Mapping[str, float],
    tags: Mapping[str, str | None],
) -> None:
    """What was decided: files by their artifact paths, tags, metrics and the note; ended.

    Raises:
        StoreError: the store refuses.
    """
    now = int(time.time() * 1000)
    told = {
        **decision_tags(decision),
        names.RUN_COLOUR: colours.of_decision(decision.decision),
        names.NOTE: note,
        **tags,
    }
    with refusals(store.tracking_uri):
        for path, text in files.items():
            store.client.log_text(run_id, text, path)
        store.client.log_batch(
            run_id,
            metrics=[Metric(key, value, now, 0) for key, value in metrics.items()],
            tags=run_tags(told),
            synchronous=True,
        )
        store.client.set_terminated(run_id, "FINISHED")


def stop_gathering_run(store: Store, run_id: str, status: RunStatus, error: str) -> None:
    """End a run whose work did not come to its end.

    Raises:
        StoreError: the store refuses.
    """
    with refusals(store.tracking_uri):
        end_run(store, run_id, status, error)


def gather(store: Store, run_id: str, study_id: str) -> None:
    """Put a study under a gathering run, so that MLflow shows it there.

    Raises:
        StoreError: the store refuses.
    """
    with refusals(store.tracking_uri):
        # The run that 'mlflow run' has made is the gathering run itself.
        if study_id != run_id and study_id != os.environ.get("MLFLOW_RUN_ID"):
            store.client.set_tag(study_id, names.PARENT_RUN_ID, run_id)


def links_to(store: Store, study_ids: Sequence[str]) -> dict[str, str]:
    """Study id -> its page, for a note of the same MLflow.

    Raises:
        StoreError: the store refuses.
    """
    with refusals(store.tracking_uri):
        return {study_id: run_link(store, study_id) for study_id in study_ids}
