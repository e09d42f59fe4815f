"""What explains a study goes to the runs that it has: metrics and files, never a tag that decides.

Every function may be called again: a later measurement replaces an earlier one.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from trainperf_mlflow.analysis.explanation import PHASES_FILE, PROFILE_FILE, TRACE_FILE
from trainperf_mlflow.errors import EvidenceError, StoreError
from trainperf_mlflow.results.comparison import Comparison
from trainperf_mlflow.results.study import Study
from trainperf_mlflow.results.values import VariantValues
from trainperf_mlflow.tracking import names, queries
from trainperf_mlflow.tracking.entities import run_tags
from trainperf_mlflow.tracking.store import Store, local_folder, refusals

PHASE_MEMORY_FILE = "phases/phase_memory.json"
TRACE_EVIDENCE_FILE = "profile/trace_evidence.json"
ASSESSMENT_FILE = "assessment.json"

Summaries = dict[str, Mapping[str, Any]]


def load_open_study(store: Store, study_id: str) -> tuple[Study, tuple[VariantValues, ...]]:
    """A study that may still be explained, and its variants as measured.

    Raises:
        EvidenceError: it is closed, so nothing may be added to its evidence, or imported,
            so there is nothing to run.
        StoreError: it cannot be read.
    """
    label = closed_label(store, study_id)
    if label is not None:
        raise EvidenceError(
            f"study {study_id} is closed ({label!r}), and its evidence is final; "
            "measure a new study to look further"
        )
    study = queries.load_study(store, study_id)
    if study.source is not None:
        raise EvidenceError(
            f"study {study_id} was imported from {study.source.file!r} and measured elsewhere, "
            "so it cannot be run again here; measure a study of your own to look further"
        )
    return study, queries.load_variants(store, study_id)


def closed_label(store: Store, study_id: str) -> str | None:
    """The label that a study was closed under; None while it is open.

    Raises:
        StoreError: the store cannot be read.
    """
    with refusals(store.tracking_uri):
        label: str | None = store.client.get_run(study_id).data.tags.get(names.CLOSED)
    return label


def refuse_closed(store: Store, study_id: str, but: str) -> None:
    """Refuse to add to a study that was closed meanwhile.

    Args:
        but: what becomes of what was to be added.

    Raises:
        EvidenceError: it is closed.
        StoreError: the store cannot be read.
    """
    label = closed_label(store, study_id)
    if label is not None:
        raise EvidenceError(
            f"study {study_id} was closed meanwhile, as {label!r}, and its evidence is final; {but}"
        )


def trace_place(store: Store, run_id: str) -> str:
    """Where a run's trace is: a file's path, or an address where artifacts are remote.

    Raises:
        StoreError: the store cannot be read.
    """
    with refusals(store.tracking_uri):
        location = str(store.client.get_run(run_id).info.artifact_uri)
    folder = local_folder(location)
    return f"{location}/{TRACE_FILE}" if folder is None else str(folder / TRACE_FILE)


def study_files(store: Store, study_id: str) -> set[str]:
    """The files and folders at the top of a study's artifacts.

    Raises:
        StoreError: the store cannot be read.
    """
    with refusals(store.tracking_uri):
        return {found.path for found in store.client.list_artifacts(study_id)}


def load_summaries(
    store: Store, files: set[str], variants: Iterable[VariantValues]
) -> tuple[Summaries, Summaries]:
    """What phases and traces showed of each variant, by its name, as far as they were looked at.

    Args:
        files: those of the study: where it has no such report, no variant is asked.

    Raises:
        StoreError: the store cannot be read.
    """
    runs = {variant.name: variant.run_id for variant in variants if variant.run_id is not None}
    phases, profiles = (
        {name: _summary(store, run_id, file) for name, run_id in runs.items()}
        if PurePosixPath(file).parts[0] in files
        else {}
        for file in (PHASES_FILE, PROFILE_FILE)
    )
    return phases, profiles


def _summary(store: Store, run_id: str, file: str) -> Mapping[str, Any]:
    folder = PurePosixPath(file).parts[0]
    with refusals(store.tracking_uri), tempfile.TemporaryDirectory(prefix="trainperf-") as here:
        if file not in {found.path for found in store.client.list_artifacts(run_id, folder)}:
            return {}
        text = Path(store.client.download_artifacts(run_id, file, here)).read_bytes()
    try:
        found: Mapping[str, Any] = json.loads(text)
    except ValueError as error:
        raise StoreError(
            f"{file} of run {run_id} is damaged ({error}); run phase or profile again"
        ) from None
    return found


def send_assessment(store: Store, comparison: Comparison, note: str | None = None) -> None:
    """The assessment as the study's file and, where a note comes with it, in its comparison.

    Raises:
        EvidenceError: the study was closed meanwhile; nothing is sent.
        StoreError: the store refuses.
    """
    assert comparison.assessment is not None
    client, study_id = store.client, comparison.study_id
    refuse_closed(store, study_id, "its assessment stays as it was then")
    files = {ASSESSMENT_FILE: comparison.assessment.to_json()}
    tags = {}
    if note is not None:
        files[names.COMPARISON_FILE] = comparison.to_json()
        tags[names.NOTE] = note
    tags |= names.digest_tags(files)
    with refusals(store.tracking_uri):
        for path, text in files.items():
            client.log_text(study_id, text, path)
        client.log_batch(study_id, tags=run_tags(tags), synchronous=True)
