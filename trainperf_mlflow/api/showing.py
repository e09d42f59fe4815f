"""One study whole: what was decided, every repeat, where to look, what is kept."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from trainperf_mlflow.api.reading import find
from trainperf_mlflow.errors import StoreError
from trainperf_mlflow.results import Comparison, Record, Study

if TYPE_CHECKING:
    import pandas as pd


class Shown(Record):
    """All that ``trainperf show`` prints."""

    study: Study
    comparison: Comparison | None  # None: not decided
    runs: list[dict[str, Any]]  # as of ``runs``
    links: dict[str, str]
    artifacts: list[str]  # of the study's run


def show(study: str, *, tracking_uri: str | None = None, experiment: str | None = None) -> Shown:
    """A study as it was recorded, which is read and not touched.

    Args:
        study: a run id, a unique prefix of one, or a study's name (the newest of it).

    Raises:
        PlanError: there is no such study.
        StoreError: the store or the study's records cannot be read.
    """
    from trainperf_mlflow.tracking import queries
    from trainperf_mlflow.tracking.links import study_links

    store, study_id = find(study, tracking_uri, experiment)
    comparison = None
    with suppress(StoreError):
        comparison = queries.load_comparison(store, study_id)
    return Shown(
        study=queries.load_study(store, study_id),
        comparison=comparison,
        runs=_records(queries.runs(store, study_id)),
        links=study_links(store, study_id),
        artifacts=queries.artifacts(store, study_id),
    )


def _records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows without what they do not have."""
    rows = frame.astype(object).to_dict("records")
    return [
        {str(key): value for key, value in row.items() if value is not None and value == value}
        for row in rows
    ]
