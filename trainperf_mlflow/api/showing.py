"""One study whole: what was decided, every repeat, where to look, what is kept."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from trainperf_mlflow.api.closed import with_close
from trainperf_mlflow.api.reading import find
from trainperf_mlflow.decisions.regression_study import Regression
from trainperf_mlflow.decisions.scope_study import Scope
from trainperf_mlflow.errors import StoreError
from trainperf_mlflow.results.comparison import Comparison
from trainperf_mlflow.results.record import Record
from trainperf_mlflow.results.study import Study

if TYPE_CHECKING:
    import pandas as pd
    from mlflow.entities import Run

    from trainperf_mlflow.tracking.store import Store


class Shown(Record):
    """All that ``trainperf show`` prints."""

    study: Study
    comparison: Comparison | None  # None: not decided
    runs: list[dict[str, Any]]  # as of ``runs``
    links: dict[str, str]
    artifacts: list[str]  # of the study's run

    def summary(self) -> dict[str, Any]:
        """The object that ``--format json`` prints."""
        comparison = self.comparison
        return {
            **self.model_dump(mode="json", exclude={"comparison"}),
            "comparison": None if comparison is None else comparison.whole(),
        }


class ShownGathering(Record):
    """What ``trainperf show`` prints of a run that gathers studies."""

    study_id: str
    name: str
    kind: str  # regression or scope
    decided: Regression | Scope | None  # None: it came to no decision
    error: str | None  # why not
    studies: tuple[str, ...]  # the ids of those that it gathers
    links: dict[str, str]
    artifacts: list[str]

    def summary(self) -> dict[str, Any]:
        """The object that ``--format json`` prints."""
        return self.model_dump(mode="json")


def show(
    study: str, *, tracking_uri: str | None = None, experiment: str | None = None
) -> Shown | ShownGathering:
    """A study, a regression or a ladder as it was recorded, which is read and not touched.

    Args:
        study: a run id, a unique prefix of one, or a study's name (the newest of it).

    Raises:
        PlanError: there is no such study.
        StoreError: the store or the study's records cannot be read.
    """
    from trainperf_mlflow.tracking import queries
    from trainperf_mlflow.tracking.links import study_links

    store, study_id = find(study, tracking_uri, experiment)
    run = queries.gathering_run(store, study_id)
    if run is not None:
        return _gathering(store, run)
    comparison = None
    with suppress(StoreError):
        comparison = with_close(store, queries.load_comparison(store, study_id))
    return Shown(
        study=queries.load_study(store, study_id),
        comparison=comparison,
        runs=_records(queries.runs(store, study_id)),
        links=study_links(store, study_id),
        artifacts=queries.artifacts(store, study_id),
    )


def _gathering(store: Store, run: Run) -> ShownGathering:
    from trainperf_mlflow.tracking import names, queries
    from trainperf_mlflow.tracking.links import study_links

    run_id, kind = str(run.info.run_id), run.data.tags[names.KIND]
    files = queries.artifacts(store, run_id)
    decided: Regression | Scope | None = None
    if kind == "regression" and names.REGRESSION_FILE in files:
        decided = queries.load_gathering(store, run_id, names.REGRESSION_FILE, Regression.from_json)
    elif kind == "scope" and names.LADDER_FILE in files:
        decided = queries.load_gathering(store, run_id, names.LADDER_FILE, Scope.from_json)
    return ShownGathering(
        study_id=run_id,
        name=str(run.info.run_name),
        kind=kind,
        decided=decided,
        error=run.data.tags.get(names.ERROR) or (None if decided else str(run.info.status)),
        studies=tuple(queries.gathered_studies(run)),
        links=study_links(store, run_id),
        artifacts=files,
    )


def _records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows without what they do not have."""
    rows = frame.astype(object).to_dict("records")
    return [
        {str(key): value for key, value in row.items() if value is not None and value == value}
        for row in rows
    ]
