"""What explains a study goes to the runs that it has: metrics and files, never a tag that decides.

Every function may be called again: a later measurement replaces an earlier one.
"""

from __future__ import annotations

import hashlib
import json
import math
import shutil
import tempfile
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Any

from mlflow.entities import Metric, RunTag

from trainperf_mlflow.analysis.explanation import PHASES_FILE, PROFILE_FILE, TRACE_FILE
from trainperf_mlflow.errors import EvidenceError, StoreError
from trainperf_mlflow.results import Closed, Comparison, Study, VariantValues
from trainperf_mlflow.tracking import names, queries
from trainperf_mlflow.tracking.spool import Spool, write_whole
from trainperf_mlflow.tracking.store import Store, local_folder, refusals

PHASE_MEMORY_FILE = "phases/phase_memory.json"
TRACE_EVIDENCE_FILE = "profile/trace_evidence.json"
ASSESSMENT_FILE = "assessment.json"

Summaries = dict[str, Mapping[str, Any]]


class Kept:
    """A folder that holds results until MLflow has them; it is left where sending fails."""

    def __init__(self, study_id: str, kind: str) -> None:
        spool = Spool()
        spool.prepare()
        self.path = Path(tempfile.mkdtemp(prefix=f"{kind}-{study_id[:12]}-", dir=spool.root))
        self._told = False

    def keep(self, name: str, text: str) -> str | None:
        """Write a file whole; what kept it from the disk, the first time that happens.

        What was measured is still in memory and goes to MLflow: a full disk ends nothing.
        """
        try:
            write_whole(self.path / name, text)
        except OSError as error:
            if not self._told:
                self._told = True
                return (
                    f"{str(self.path)!r} cannot be written ({error.strerror}): should MLflow not "
                    "take the results either, they are lost; free some space"
                )
        return None

    def remove(self) -> None:
        """MLflow has everything."""
        shutil.rmtree(self.path, ignore_errors=True)
        self.remove_empty()

    def remove_empty(self) -> None:
        for folder in (self.path, self.path.parent):
            with suppress(OSError):
                folder.rmdir()  # only where it is empty


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


def with_close(store: Store, comparison: Comparison) -> Comparison:
    """The comparison with what its study was closed as; unchanged while that is open.

    Raises:
        StoreError: the store cannot be read.
    """
    with refusals(store.tracking_uri):
        tags = store.client.get_run(comparison.study_id).data.tags
    if names.CLOSED not in tags:
        return comparison
    closed = Closed(
        label=tags[names.CLOSED],
        decision=tags.get(names.DECISION, ""),
        reason=tags.get(names.REASON, ""),
        next_action=tags.get(names.NEXT_ACTION, ""),
        confidence=tags.get(names.CONFIDENCE, "unconfirmed"),
    )
    return comparison.model_copy(update={"closed": closed})


def closed_label(store: Store, study_id: str) -> str | None:
    """The label that a study was closed under; None while it is open.

    Raises:
        StoreError: the store cannot be read.
    """
    with refusals(store.tracking_uri):
        label: str | None = store.client.get_run(study_id).data.tags.get(names.CLOSED)
    return label


def send(
    store: Store,
    run_id: str,
    kept: Kept,
    files: Mapping[str, Mapping[str, Any]],
    metrics: Mapping[str, float] | None = None,
    trace: Path | None = None,
) -> None:
    """Attach objects as JSON by their artifact paths, metrics and a trace to a run.

    Raises:
        StoreError: the store refuses; what was measured stays in the kept folder.
    """
    now = int(time.time() * 1000)
    finite = {key: value for key, value in (metrics or {}).items() if math.isfinite(value)}
    texts = {name: json.dumps(content, indent=2) for name, content in files.items()}
    tags = names.digest_tags(texts)
    try:
        with refusals(store.tracking_uri):
            if trace is not None:
                store.client.log_artifact(run_id, str(trace), TRACE_FILE.rpartition("/")[0])
                with trace.open("rb") as file:
                    digest = hashlib.file_digest(file, "sha256").hexdigest()
                tags[f"{names.SHA256_PREFIX}{TRACE_FILE}"] = digest
            for name, text in texts.items():
                store.client.log_text(run_id, text, name)
            store.client.log_batch(
                run_id,
                metrics=[Metric(key, value, now, 0) for key, value in finite.items()],
                tags=[RunTag(key, value) for key, value in tags.items()],
                synchronous=True,
            )
    except StoreError as error:
        raise StoreError(
            f"{error}; what was measured is kept in {str(kept.path)!r}; run the command again "
            "when the store is back"
        ) from None


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
        StoreError: the store refuses.
    """
    assert comparison.assessment is not None
    client, study_id = store.client, comparison.study_id
    files = {ASSESSMENT_FILE: comparison.assessment.to_json()}
    tags = {}
    if note is not None:
        files[names.COMPARISON_FILE] = comparison.to_json()
        tags[names.NOTE] = note
    tags |= names.digest_tags(files)
    with refusals(store.tracking_uri):
        for path, text in files.items():
            client.log_text(study_id, text, path)
        client.log_batch(
            study_id, tags=[RunTag(key, value) for key, value in tags.items()], synchronous=True
        )
