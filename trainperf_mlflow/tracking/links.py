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
from trainperf_mlflow.tracking import names, views
from trainperf_mlflow.tracking.search import runs_of_study
from trainperf_mlflow.tracking.store import Store, refusals
from trainperf_mlflow.tracking.uris import has_password, scheme_of

UI_PORT = 5000
# Longer lists make links that browsers and terminals cut.
MAX_RUNS = 20
_VIEW = "workflowType=machine_learning"


def study_links(store: Store, study_id: str) -> dict[str, str]:
    """What to open and, for a store without a server, what to start first.

    Returns:
        ``study``, ``experiment`` (all studies), ``compare`` (the variants side by
        side), ``charts`` (their metrics) and ``curves`` (step times of the repeats);
        where they are there, ``report`` and ``trace``; with a database also
        ``command``, which serves the links.
    """
    with refusals(store.tracking_uri):
        experiment_id = store.client.get_run(study_id).info.experiment_id
        found = runs_of_study(store, study_id)
    links = {} if _is_server(store) else {"command": ui_command(store)}
    base = _base(store)
    if base is None:
        return links
    page = f"{base}/#/experiments/{experiment_id}/runs"
    keys = [view.key for view in views.shared_views(store, experiment_id)]
    links |= {
        "study": f"{page}/{study_id}?{_VIEW}",
        "experiment": f"{page}?{_VIEW}{_shared(views.STUDIES, keys)}",
    }
    variants, repeats = _of_kind(found, "variant"), _of_kind(found, "repeat")
    if variants:
        condition = quote(views.condition(views.VARIANTS, study_id), safe="")
        links["charts"] = (
            f"{page}?{_VIEW}&searchFilter={condition}&orderByKey={quote(views.NEWEST_FLAT)}"
            "&compareRunsMode=CHART"
        )
    if len(variants) > 1:
        query = f"runs={_list(variants)}&experiments={_list([experiment_id])}"
        links["compare"] = f"{base}/#/compare-runs?{query}&{_VIEW}"
    if repeats:
        series = names.STEP_TIME_SERIES
        query = (
            f"runs={_list(repeats)}&experiments={_list([experiment_id])}"
            f"&metric={_encoded(series)}&plot_metric_keys={_list([series])}&x_axis=step"
        )
        links["curves"] = f"{base}/#/metric?{query}&{_VIEW}"
    if _has(store, study_id, names.REPORT_FILE):
        links["report"] = f"{page}/{study_id}/artifacts/{names.REPORT_FILE}?{_VIEW}"
    traced = next((run for run in variants if _has(store, run, TRACE_FILE)), None)
    if traced is not None:
        links["trace"] = f"{page}/{traced}/artifacts/{TRACE_FILE}?{_VIEW}"
    return links


def _shared(view: views.View, keys: list[str]) -> str:
    return f"&viewStateShareKey={view.key}" if view.key in keys else ""


def _has(store: Store, run_id: str, path: str) -> bool:
    with suppress(Exception):  # an artifact store that is away takes no other link away
        folder = path.rpartition("/")[0] or None
        return any(item.path == path for item in store.client.list_artifacts(run_id, folder))
    return False


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
