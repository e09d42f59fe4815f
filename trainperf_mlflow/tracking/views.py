"""Saved views of an experiment's runs, for whoever opens MLflow without having read anything.

MLflow keeps a view as a tag of the experiment, in a format that it does not document:
nothing may depend on these views, and a link that needs none of them leads to the same runs.
"""

from __future__ import annotations

import base64
import json
import time
import zlib
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from trainperf_mlflow.tracking import names
from trainperf_mlflow.tracking.store import Store, impatient, raise_interruption

# A new version of the views is written once more over the old one; a view that its readers
# have changed or deleted stays so until then.
VERSION = "3"
_VERSION_TAG = "trainperf.views"
_TAG_PREFIX = "mlflow.sharedViewState."

# MLflow folds runs into their parents, unless they are sorted by something else than their
# start: spelled otherwise, it is something else.
NEWEST, NEWEST_FLAT = "attributes.start_time", "attributes.`start_time`"

ABOUT = """\
Each **study** here asks one question: is a changed training better than the one before, what \
does it cost, and is it kept? Open a study to read its decision; its child runs are the baseline \
and the candidates, and theirs the repeats, each a fresh process.

Under **Views**: *Studies and decisions*, *Variants of a study*, *Step curves*, *Regressions, \
scopes and calibrations*.

Time and memory are compared as baseline - candidate: positive is better.
"""


class View(NamedTuple):
    """One saved view: its key in links, its title, which runs it shows, and their columns."""

    key: str
    title: str
    condition: str
    columns: tuple[str, ...]
    flat: bool = True  # runs stand beside their parents, not below them


def _kind(kind: str, operator: str = "=") -> str:
    return f"tags.`{names.KIND}` {operator} '{kind}'"


def _tags(*found: str) -> tuple[str, ...]:
    return tuple(f"tags.`{name}`" for name in found)


def _metrics(*found: str) -> tuple[str, ...]:
    return tuple(f"metrics.`{name}`" for name in found)


STUDIES = View(
    "trainperf-studies",
    "Studies and decisions",
    _kind("study"),
    (
        *_tags(names.DECISION, names.CONFIDENCE, names.BEST_CANDIDATE),
        *_metrics(
            "speedup", "delta/step_time_pct_low", "delta/step_time_pct_high", "delta/peak_mem_pct"
        ),
        *_tags(names.GOAL, names.REASON, names.NEXT_ACTION),
    ),
    flat=False,
)
VARIANTS = View(
    "trainperf-variants",
    "Variants of a study",
    _kind("variant"),
    (
        *_tags(names.STUDY, names.DECISION),
        *_metrics(
            "step_time_ms",
            "delta/step_time_pct",
            "peak_mem_mb",
            "delta/peak_mem_pct",
            "samples_per_s",
            "loss",
            "eval_loss",
        ),
        *_tags(names.CHANGED_VARIABLE, names.EFFECT_VERIFIED, names.STATUS, names.OK_REPEATS),
    ),
)
CURVES = View(
    "trainperf-curves",
    "Step curves",
    _kind("repeat"),
    (*_tags(names.STUDY, names.VARIANT), *_metrics("step_time_ms", "peak_mem_mb", "loss")),
)
GATHERINGS = View(
    "trainperf-gatherings",
    "Regressions, scopes and calibrations",
    # MLflow's filters know no "or": what was decided, and is neither a study nor part of one.
    " AND ".join(
        (f"tags.`{names.DECISION}` != ''", *(_kind(kind, "!=") for kind in ("study", "variant")))
    ),
    _tags(names.KIND, names.DECISION, names.REASON, names.NEXT_ACTION),
    flat=False,
)
VIEWS = (STUDIES, VARIANTS, CURVES, GATHERINGS)


def share_views(store: Store) -> None:
    """Write the views and the experiment's description, where they were never written.

    Costs one read of the experiment; whatever goes wrong is let go.
    """
    try:
        with impatient():
            known = store.client.get_experiment(store.experiment_id).tags
            if known.get(_VERSION_TAG) == VERSION:
                return
            for key, value in _wanted(known, int(time.time() * 1000)).items():
                store.client.set_experiment_tag(store.experiment_id, key, value)
    except Exception as error:
        raise_interruption(error)


def shared_views(store: Store, experiment_id: str) -> list[View]:
    """The views that an experiment has: a link to another one would end in an error box."""
    with suppress(Exception):
        known = store.client.get_experiment(experiment_id).tags
        return [view for view in VIEWS if _TAG_PREFIX + view.key in known]
    return []


def condition(view: View, study_id: str | None = None) -> str:
    """The view's filter; of one study where it is given."""
    if study_id is None:
        return view.condition
    return f"{view.condition} AND tags.`{names.STUDY_ID}` = '{study_id}'"


def _wanted(known: Mapping[str, str], now_ms: int) -> dict[str, str]:
    # The newest stands first in MLflow's menu.
    found = {
        _TAG_PREFIX + view.key: _envelope(view, now_ms - index) for index, view in enumerate(VIEWS)
    }
    if not known.get(names.NOTE):
        found[names.NOTE] = ABOUT
    return found | {_VERSION_TAG: VERSION}


def _envelope(view: View, now_ms: int) -> str:
    packed = base64.b64encode(zlib.compress(json.dumps(_state(view)).encode())).decode()
    return json.dumps(
        {
            "name": view.title,
            "createdAt": now_ms,
            "updatedAt": now_ms,
            "state": f"deflate;{packed}",
        }
    )


def _state(view: View) -> dict[str, Any]:
    # Whole, since MLflow's page takes what is missing for undefined.
    return {
        "searchFilter": condition(view),
        "orderByKey": NEWEST_FLAT if view.flat else NEWEST,
        "orderByAsc": False,
        "startTime": "ALL",
        "lifecycleFilter": "Active",
        "datasetsFilter": [],
        "modelVersionFilter": "All Runs",
        "selectedColumns": ["attributes.`Created`", *view.columns],
        "columnOrder": ["attributes.`Created`", *view.columns],
        "columnWidths": {column: _width(column) for column in view.columns},
        "runsHiddenMode": "FIRST_20_RUNS",
        "viewMaximized": False,
        "runListHidden": False,
        "isAccordionReordered": False,
        "useGroupedValuesInCharts": True,
        "hideEmptyCharts": True,
        "groupBy": None,
        "groupsExpanded": {},
        "globalLineChartConfig": {
            "xAxisKey": "step",
            "lineSmoothness": 0,
            "selectedXAxisMetricKey": "",
        },
    }


def _width(column: str) -> int:
    """Pixels in which neither the column's title nor a short value is cut."""
    title = column.partition("`")[2].rstrip("`")
    return max(96, 32 + 7 * len(title))
