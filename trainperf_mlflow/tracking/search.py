"""The runs of the store that meet a condition, page by page."""

from __future__ import annotations

from mlflow.entities import Run

from trainperf_mlflow.tracking import names
from trainperf_mlflow.tracking.store import Store

PAGE = 1000


def search_runs(store: Store, condition: str) -> list[Run]:
    """All active runs that meet an MLflow filter, the newest first; of the store's experiment,
    or of all where it names none."""
    experiments = [store.experiment_id] if store.experiment_id else _experiments(store)
    found: list[Run] = []
    token: str | None = None
    while True:
        page = store.client.search_runs(experiments, condition, max_results=PAGE, page_token=token)
        found.extend(page)
        token = page.token
        if not token:
            return found


def newest_experiment(store: Store) -> str | None:
    """The experiment of the newest study."""
    found = store.client.search_runs(
        _experiments(store), f"tags.`{names.KIND}` = 'study'", max_results=1
    )
    return str(found[0].info.experiment_id) if found else None


def _experiments(store: Store) -> list[str]:
    """The ids of all active experiments."""
    ids: list[str] = []
    token: str | None = None
    while True:
        page = store.client.search_experiments(max_results=PAGE, page_token=token)
        ids.extend(experiment.experiment_id for experiment in page)
        token = page.token
        if not token:
            return ids


def runs_of_study(store: Store, study_id: str) -> list[Run]:
    """The study's run and all its descendants, by one query."""
    return search_runs(store, f"tags.`{names.STUDY_ID}` = '{study_id}'")
