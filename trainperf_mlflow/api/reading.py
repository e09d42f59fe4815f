"""Read what MLflow holds: decide again, comparisons, tables, where to look."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from trainperf_mlflow.api.annotating import annotate, note_of
from trainperf_mlflow.api.assessing import assessed
from trainperf_mlflow.api.closed import with_close
from trainperf_mlflow.api.pages import attach_report
from trainperf_mlflow.api.picturing import attach, compared_pictures
from trainperf_mlflow.decisions.study import decide_study
from trainperf_mlflow.evidence.agreement import beside_published
from trainperf_mlflow.evidence.formats import DECIDED_BY_FORMAT
from trainperf_mlflow.results.comparison import Comparison

if TYPE_CHECKING:
    import pandas as pd

    from trainperf_mlflow.tracking.store import Store


def compare(
    study: str, *, tracking_uri: str | None = None, experiment: str | None = None
) -> Comparison:
    """Decide again about a study from what MLflow holds, and tag it so; one that is closed
    keeps the tags of the close, and of one whose store can only be read a warning tells that.

    Args:
        study: a run id, a unique prefix of one, or a study's name (the newest of it).

    Raises:
        PlanError: there is no such study.
        MeasurementError: the baseline has no repeat that succeeded.
        StoreError: the store or the study's records cannot be read.
    """
    return decide_again(*find(study, tracking_uri, experiment))


def load_comparison(
    study: str, *, tracking_uri: str | None = None, experiment: str | None = None
) -> Comparison:
    """The comparison of a study as it was recorded last.

    Raises:
        PlanError: there is no such study.
        StoreError: it has no readable comparison.
    """
    from trainperf_mlflow.tracking import queries

    return queries.load_comparison(*find(study, tracking_uri, experiment))


def decisions(
    experiment: str | None = None,
    decision: str | None = None,
    *,
    tracking_uri: str | None = None,
) -> pd.DataFrame:
    """One row per study, regression, scope and calibration, newest first: what was decided, why,
    and the gains.

    Args:
        experiment: only this one's; by default those of all.
        decision: only accept, tune, reject or measure.
    """
    from trainperf_mlflow.tracking import queries
    from trainperf_mlflow.tracking.store import read_store

    return queries.decisions(read_store(tracking_uri, experiment), decision)


def runs(
    study: str, *, tracking_uri: str | None = None, experiment: str | None = None
) -> pd.DataFrame:
    """One row per variant and per repeat of a study, with configuration and metrics."""
    from trainperf_mlflow.tracking import queries

    return queries.runs(*find(study, tracking_uri, experiment))


def study_links(study_id: str, *, tracking_uri: str | None = None) -> dict[str, str]:
    """Where to look at a study: links into MLflow's UI and, for a file store, the command."""
    from trainperf_mlflow.tracking.links import study_links as links
    from trainperf_mlflow.tracking.store import read_store

    return links(read_store(tracking_uri), study_id)


def decide_again(
    store: Store, study_id: str, warn: Callable[[str], None] = lambda message: None
) -> Comparison:
    from trainperf_mlflow.tracking import queries
    from trainperf_mlflow.tracking.explaining import (
        ASSESSMENT_FILE,
        closed_label,
        send_assessment,
        study_files,
    )
    from trainperf_mlflow.tracking.writing import send_comparison

    study = queries.load_study(store, study_id)
    variants = queries.load_variants(store, study_id, study)
    if study.source is not None and study.source.format in DECIDED_BY_FORMAT:
        return queries.load_comparison(store, study_id)
    files = study_files(store, study_id)
    comparison = assessed(store, decide_study(study, variants), variants, files)
    comparison = beside_published(study, comparison)
    if closed_label(store, study_id) is not None:
        # What the study is tagged with belongs to the close.
        return with_close(store, comparison)
    if not store.writable:
        told = "the store can only be read, so this decision was not written into it"
        return comparison.model_copy(update={"warnings": (*comparison.warnings, told)})
    send_comparison(store, comparison, note_of(store, comparison), {})
    if ASSESSMENT_FILE in files:
        send_assessment(store, comparison)
    # Those of single blocks stay as measured: the blocks do not change.
    attach(store, study_id, compared_pictures(study, variants, comparison, warn), warn)
    attach_report(store, comparison, warn)
    annotate(store, comparison)
    return comparison


def find(study: str, tracking_uri: str | None, experiment: str | None) -> tuple[Store, str]:
    from trainperf_mlflow.tracking.queries import find_study
    from trainperf_mlflow.tracking.store import read_store

    store = read_store(tracking_uri, experiment)
    return store, find_study(store, study)
