"""The report of a study for whoever asks."""

from __future__ import annotations

from typing import get_args

from trainperf_mlflow.api.closed import with_close
from trainperf_mlflow.api.pages import Format, material_of, page_of
from trainperf_mlflow.api.reading import find
from trainperf_mlflow.decisions.reasons import Language
from trainperf_mlflow.errors import PlanError
from trainperf_mlflow.messages import shown


def report(
    study: str,
    format: Format = "html",
    *,
    lang: Language = "en",
    tracking_uri: str | None = None,
    experiment: str | None = None,
) -> str:
    """The report of a study as it was decided last; nothing is decided anew.

    Args:
        study: a run id, a unique prefix of one, or a study's name (the newest of it).
        format: html, one file that needs nothing else; or markdown, for a pull request.
        lang: en or zh. Names, errors and the words within pictures stay as they were recorded.

    Raises:
        PlanError: there is no such study, format or language, or it is not decided yet, or
            it is a regression or a ladder, which gathers studies and has no report of its own.
        StoreError: the store or the study's records cannot be read.
    """
    for what, value, known in (("format", format, get_args(Format)), ("lang", lang, ("en", "zh"))):
        if value not in known:
            raise PlanError(f"unknown {what} {shown(value)}; known: {', '.join(known)}")
    from trainperf_mlflow.tracking import names, queries

    store, study_id = find(study, tracking_uri, experiment)
    files = queries.artifacts(store, study_id)
    if names.COMPARISON_FILE not in files:
        queries.load_study(store, study_id)  # refuses a run that is no study
        raise PlanError(
            f"study {study_id} is not decided yet, so there is nothing to report; run "
            f"'trainperf compare {study_id}' first"
        )
    comparison = with_close(store, queries.load_comparison(store, study_id))
    return page_of(material_of(store, comparison, files), format, lang)
