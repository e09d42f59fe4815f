"""A published report in MLflow: a study like a measured one, with the report itself beside it."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

from trainperf_mlflow.errors import EvidenceError, StoreError
from trainperf_mlflow.results.comparison import Comparison
from trainperf_mlflow.results.repeats import Repeat
from trainperf_mlflow.results.study import Study
from trainperf_mlflow.tracking import names
from trainperf_mlflow.tracking.recorder import Recorder
from trainperf_mlflow.tracking.search import search_runs
from trainperf_mlflow.tracking.store import Store, refusals

Decide = Callable[[Store, Recorder], tuple[Comparison, str]]


def find_import(store: Store, sha256: str) -> str | None:
    """The study that a file with these bytes was imported as, if it was.

    Raises:
        StoreError: the store cannot be read.
    """
    imported = f"tags.`{names.KIND}` = 'study' AND tags.`{names.SOURCE_SHA256}` = '{sha256}'"
    with refusals(store.tracking_uri):
        found = search_runs(store, f"{imported} AND attributes.status = 'FINISHED'")
    return str(found[0].info.run_id) if found else None


def record_import(
    store: Store,
    study: Study,
    repeats: Iterable[Repeat],
    text: str,
    decide: Decide,
    warn: Callable[[str], None],
) -> Comparison:
    """Write a report's study, variants, repeats, its text, and what is decided of them.

    Args:
        text: the report, which becomes the file under ``evidence/source/``.
        decide: gives the comparison of what was recorded, and the run's note.

    Raises:
        StoreError: the store fails; no run is left running.
    """
    recorder = Recorder.start(store, study, warn=warn)
    try:
        with refusals(store.tracking_uri):
            store.client.log_text(recorder.study_id, text, source_path(study))
        for repeat in repeats:
            recorder.record_repeat(repeat.model_copy(update={"study_id": recorder.study_id}))
        comparison, note = decide(store, recorder)
    except BaseException as error:
        recorder.fail(str(error) or repr(error))
        raise
    if not recorder.finish_study(comparison, note):
        raise StoreError(
            f"the MLflow store does not take all of study {recorder.study_id}; when it is back, "
            f"run 'trainperf recover {recorder.study_id}'"
        )
    return comparison


def source_path(study: Study) -> str:
    """The artifact that holds the report a study was imported from."""
    file = study.source.file if study.source else ""
    name = re.sub(r"[^A-Za-z0-9._-]+", "_", file)[-100:].lstrip(".")
    return f"{names.SOURCE_FOLDER}/{name or 'report.json'}"


def load_source(store: Store, study: Study) -> bytes:
    """The report that a study was imported from.

    Raises:
        EvidenceError: it is gone.
        StoreError: the store cannot be read.
    """
    found = load_file(store, study.study_id, source_path(study))
    if found is None:
        raise EvidenceError(
            f"study {study.study_id} lacks {source_path(study)}, the report that it was imported "
            "from; import the report again into another --experiment"
        )
    return found


def load_file(store: Store, run_id: str, path: str) -> bytes | None:
    """An artifact's bytes, or None where the run has no such artifact.

    Raises:
        StoreError: the store cannot be read.
    """
    folder = path.rpartition("/")[0]
    with refusals(store.tracking_uri), tempfile.TemporaryDirectory(prefix="trainperf-") as target:
        listed = store.client.list_artifacts(run_id, folder or None)
        if path not in [item.path for item in listed]:
            return None
        return Path(store.client.download_artifacts(run_id, path, target)).read_bytes()
