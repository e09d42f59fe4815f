"""Where to look at a study: links that open MLflow's UI at the right page.

MLflow's UI opens an experiment in a view for other things than training runs, unless
the link says otherwise; the links that MLflow itself prints do not.
"""

from __future__ import annotations

import json
import shlex
from contextlib import suppress
from urllib.parse import quote, urlsplit

from mlflow.entities import Run

from trainperf_mlflow.analysis.explanation import TRACE_FILE
from trainperf_mlflow.errors import StoreError
from trainperf_mlflow.tracking import names, views
from trainperf_mlflow.tracking.search import newest_experiment, runs_of_study
from trainperf_mlflow.tracking.store import Store, refusals
from trainperf_mlflow.tracking.uris import has_password, masked, scheme_of

UI_PORT = 5000
# Longer lists make links that browsers and terminals cut.
MAX_RUNS = 20
_VIEW = "workflowType=machine_learning"


def study_links(store: Store, study_id: str, server: str | None = None) -> dict[str, str]:
    """What to open and, for a store without a server, what to start first.

    Args:
        server: the address of the MLflow that shows the store, where it is known.

    Returns:
        ``study``, ``compare`` (the variants side by side), ``charts`` (of their
        metrics), ``curves`` (step times of the repeats), ``report``, ``pictures``, ``trace``
        and ``experiment`` (all studies), as far as they are there; with a database also
        ``command``, which serves the links.
    """
    links = {} if _is_server(store) else {"command": ui_command(store)}
    base = server or _base(store)
    return links if base is None else links | _pages(store, study_id, f"{base}/")


def note_links(store: Store, study_id: str) -> dict[str, str]:
    """The same pages for a note in MLflow: whoever reads it is on the right server already."""
    return _pages(store, study_id, "")


def run_link(store: Store, run_id: str) -> str:
    """The page of one run, for a note of the same MLflow."""
    experiment_id = store.client.get_run(run_id).info.experiment_id
    return f"#/experiments/{experiment_id}/runs/{run_id}?{_VIEW}"


def studies_link(store: Store, address: str) -> str:
    """All studies of the store's experiment; where it names none, of the newest study's."""
    with refusals(store.tracking_uri):
        experiment_id = store.experiment_id or newest_experiment(store)
    if experiment_id is None:
        return f"{address}/#/experiments"
    return experiment_link(store, experiment_id, f"{address}/")


def server_of(store: Store) -> str | None:
    """The address of the MLflow that the store is; None for a database.

    Raises:
        StoreError: it is one without a page of this kind.
    """
    if not _is_server(store):
        return None
    base = _base(store)
    if base is None:
        raise StoreError(
            f"{masked(store.tracking_uri)!r} has pages of its own; look for the experiment there"
        )
    return base


def experiment_link(store: Store, experiment_id: str, base: str) -> str:
    """All studies of an experiment, with their decisions where that view is there.

    Args:
        base: what comes before ``#``.
    """
    shared = views.STUDIES in views.shared_views(store, experiment_id)
    view = f"&viewStateShareKey={views.STUDIES.key}" if shared else ""
    return f"{base}#/experiments/{experiment_id}/runs?{_VIEW}{view}"


def _pages(store: Store, study_id: str, base: str) -> dict[str, str]:
    with refusals(store.tracking_uri):
        experiment_id = store.client.get_run(study_id).info.experiment_id
        found = runs_of_study(store, study_id)
    page = f"{base}#/experiments/{experiment_id}/runs"
    links = {"study": f"{page}/{study_id}?{_VIEW}"}
    variants, repeats = _of_kind(found, "variant"), _of_kind(found, "repeat")
    if len(variants) > 1:
        query = f"runs={_list(variants)}&experiments={_list([experiment_id])}"
        links["compare"] = f"{base}#/compare-runs?{query}&{_VIEW}"
        condition = quote(views.condition(views.VARIANTS, study_id), safe="")
        links["charts"] = (
            f"{page}?{_VIEW}&searchFilter={condition}&orderByKey={quote(views.NEWEST_FLAT)}"
            "&compareRunsMode=CHART"
        )
    if repeats:
        series = names.STEP_TIME_SERIES
        query = (
            f"runs={_list(repeats)}&experiments={_list([experiment_id])}"
            f"&metric={_encoded(series)}&plot_metric_keys={_list([series])}&x_axis=step"
        )
        links["curves"] = f"{base}#/metric?{query}&{_VIEW}"
    if _has(store, study_id, names.REPORT_FILE):
        links["report"] = f"{page}/{study_id}/artifacts/{names.REPORT_FILE}?{_VIEW}"
    drawn = _files(store, study_id, names.PICTURES_FOLDER)
    if drawn:
        # The tree beside it shows the others.
        first = names.FIRST_PICTURE if names.FIRST_PICTURE in drawn else drawn[0]
        links["pictures"] = f"{page}/{study_id}/artifacts/{first}?{_VIEW}"
    traced = next((run for run in variants if _has(store, run, TRACE_FILE)), None)
    if traced is not None:
        links["trace"] = f"{page}/{traced}/artifacts/{TRACE_FILE}?{_VIEW}"
    return links | {"experiment": experiment_link(store, experiment_id, base)}


def _has(store: Store, run_id: str, path: str) -> bool:
    return path in _files(store, run_id, path.rpartition("/")[0])


def _files(store: Store, run_id: str, folder: str) -> list[str]:
    with suppress(Exception):  # an artifact store that is away takes no other link away
        return [item.path for item in store.client.list_artifacts(run_id, folder or None)]
    return []


def ui_command(store: Store) -> str:
    """The command that shows this store."""
    uri = store.tracking_uri
    target = '"$MLFLOW_TRACKING_URI"' if has_password(uri) else shlex.quote(uri)
    return f"mlflow ui --backend-store-uri {target} --port {UI_PORT}"


def _is_server(store: Store) -> bool:
    return scheme_of(store.tracking_uri) in ("http", "https", "databricks", "databricks-uc")


def _base(store: Store) -> str | None:
    if not _is_server(store):
        return f"http://localhost:{UI_PORT}"
    parts = urlsplit(store.tracking_uri)
    host = parts.netloc.rpartition("@")[2]  # without user and password
    path = parts.path.rstrip("/")
    return f"{parts.scheme}://{host}{path}" if parts.scheme.startswith("http") else None


def _of_kind(found: list[Run], kind: str) -> list[str]:
    """The ids of the newest runs of a kind, the baseline's first."""
    of_kind = [run for run in found if run.data.tags.get(names.KIND) == kind][:MAX_RUNS]
    of_kind.sort(key=lambda run: (run.data.tags[names.ROLE], run.info.start_time))
    return [run.info.run_id for run in of_kind]


def _list(values: list[str]) -> str:
    return quote(json.dumps(values, separators=(",", ":")), safe=",")


def _encoded(value: str) -> str:
    return quote(json.dumps(value), safe="")
