"""The runs of the store's experiment that meet a condition, page by page."""

from __future__ import annotations

from mlflow.entities import Run

from trainperf_mlflow.tracking import names
from trainperf_mlflow.tracking.store import Store

PAGE = 1000


def search_runs(store: Store, condition: str) -> list[Run]:
    """All active runs that meet an MLflow filter, the newest first."""
    found: list[Run] = []
    token: str | None = None
    while True:
        page = store.client.search_runs(
            [store.experiment_id], condition, max_results=PAGE, page_token=token
        )
        found.extend(page)
        token = page.token
        if not token:
            return found


def runs_of_study(store: Store, study_id: str) -> list[Run]:
    """The study's run and all its descendants, by one query."""
    return search_runs(store, f"tags.`{names.STUDY_ID}` = '{study_id}'")
