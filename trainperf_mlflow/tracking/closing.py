"""What a close reads of MLflow, and the one moment at which a study becomes closed."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from mlflow.entities import Run

from trainperf_mlflow.errors import PlanError
from trainperf_mlflow.results.decision import Decision
from trainperf_mlflow.tracking import colours, names
from trainperf_mlflow.tracking.entities import run_tags
from trainperf_mlflow.tracking.search import runs_of_study, search_runs
from trainperf_mlflow.tracking.store import Store, local_folder, refusals
from trainperf_mlflow.tracking.writing import decision_tags

_LINKS = (
    names.SCOPE_STUDY,
    names.PRESSURE_STUDY,
    names.REGRESSIONS,
    names.PRIMARY_STUDY,
    names.ADJACENT_STUDIES,
    names.SCOPE_STUDIES,
)
# Of a repeat's tags, those that a comparison reads.
_VALUE_TAGS = (
    names.KIND,
    names.ROLE,
    names.VARIANT,
    names.REPEAT,
    names.STATUS,
    names.ERROR,
    names.QUALITY_CHECKED,
    names.EFFECT_VERIFIED,
    names.EFFECT_DETAIL,
    names.WORKLOAD_DIGEST,
)


@dataclass(frozen=True)
class StudyRuns:
    """A study's run and all its descendants, as one query gave them."""

    store: Store  # at the study's experiment
    run: Run
    runs: tuple[Run, ...]

    @property
    def study_id(self) -> str:
        return str(self.run.info.run_id)

    @property
    def tags(self) -> Mapping[str, str]:
        return dict(self.run.data.tags)


class Files:
    """The runs' artifacts as folders: in place where they are local, else fetched once each."""

    def __init__(self, store: Store, fetched: Path, skip: Collection[str]) -> None:
        self._store = store
        self._fetched = fetched
        self._skip = skip
        self._folders: dict[str, Path] = {}

    def folder(self, run: Run) -> Path:
        """The folder of a run's artifacts, which is missing where the run has none.

        Raises:
            StoreError: the store cannot be read.
        """
        run_id = str(run.info.run_id)
        if run_id not in self._folders:
            place = local_folder(run.info.artifact_uri)
            self._folders[run_id] = place if place is not None else self._fetch(run_id)
        return self._folders[run_id]

    def _fetch(self, run_id: str) -> Path:
        folder = self._fetched / run_id
        folder.mkdir()
        client = self._store.client
        with refusals(self._store.tracking_uri):
            for item in client.list_artifacts(run_id):
                if item.path not in self._skip:
                    client.download_artifacts(run_id, item.path, str(folder))
        return folder


@contextmanager
def opened_files(store: Store, skip: Collection[str] = ()) -> Iterator[Files]:
    """Access to artifacts, until the block ends.

    Args:
        skip: files and folders at the top of a run that need not be fetched.
    """
    with TemporaryDirectory(prefix="trainperf-") as folder:
        yield Files(store, Path(folder), skip)


def study_runs(store: Store, study_id: str) -> StudyRuns:
    """A study and its descendants.

    Raises:
        StoreError: the store cannot be read.
    """
    with refusals(store.tracking_uri):
        run = store.client.get_run(study_id)
        store = replace(store, experiment_id=run.info.experiment_id)
        found = {str(r.info.run_id): r for r in runs_of_study(store, study_id)}
    found.setdefault(study_id, run)
    return StudyRuns(store, run, tuple(found.values()))


def values_digest(run: Run) -> str:
    """The SHA-256 of what a comparison reads of a repeat's run: metrics, params and status."""
    return _digest(run, _VALUE_TAGS, run.data.metrics)


def variant_digest(run: Run, *, final: bool) -> str:
    """The SHA-256 of what a variant's own run says of it: params, and what it is and came to.

    Args:
        final: nothing may be added any more, so its metrics are held too.
    """
    return _digest(run, (*_VALUE_TAGS, names.CHANGED_VARIABLE), run.data.metrics if final else {})


def _digest(run: Run, known: Collection[str], metrics: Mapping[str, float]) -> str:
    tags = {key: value for key, value in run.data.tags.items() if key in known}
    values = {"metrics": metrics, "params": run.data.params, "tags": tags}
    text = json.dumps(values, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def recorded_digests(run: Run) -> dict[str, str]:
    """Artifact path -> the SHA-256 that was recorded when the file was written."""
    prefix = names.SHA256_PREFIX
    return {
        key.removeprefix(prefix): value
        for key, value in run.data.tags.items()
        if key.startswith(prefix)
    }


def study_with_label(store: Store, label: str) -> str | None:
    """The study of this experiment that was closed under a label.

    Raises:
        StoreError: the store cannot be read.
    """
    # Quotes cannot be escaped in MLflow's filters: a wildcard stands for whatever is not plain.
    pattern = re.sub(r"[^A-Za-z0-9 -]", "_", label)
    with refusals(store.tracking_uri):
        found = search_runs(store, f"tags.`{names.CLOSED}` LIKE '{pattern}'")
    same = (run for run in found if run.data.tags[names.CLOSED] == label)
    return next((str(run.info.run_id) for run in same), None)


def send_close(
    study: StudyRuns,
    files: Mapping[str, str],
    tags: Mapping[str, str | None],
    decision: Decision,
    candidates: Mapping[str, Decision],
) -> None:
    """Write a close's files in their order, the candidates' decisions, and last of all the tags
    by which the study is closed: in one call, so that it is closed whole or not at all.

    Args:
        candidates: the decision by the run of each.

    Raises:
        StoreError: the store refuses; closing again completes what was begun.
    """
    client, study_id = study.store.client, study.study_id
    final = {
        **decision_tags(decision),
        names.RUN_COLOUR: colours.of_decision(decision.decision),
        **names.digest_tags(files),
        **tags,
    }
    with refusals(study.store.tracking_uri):
        for path, text in files.items():
            client.log_text(study_id, text, path)
        for run_id, own in candidates.items():
            client.log_batch(run_id, tags=run_tags(decision_tags(own)), synchronous=True)
        client.log_batch(study_id, tags=run_tags(final), synchronous=True)


# --- links -------------------------------------------------------------------------------------


def scope_studies(study: StudyRuns) -> list[str]:
    """The studies of a ladder, where this is one."""
    return [found for found in study.tags.get(names.SCOPE_STUDIES, "").split(",") if found]


def links_from(run: Run) -> list[tuple[str, str]]:
    """What a study names as linked to it: the tag's last word and the other study's id."""
    return [
        (tag.removeprefix("trainperf."), found)
        for tag in _LINKS
        for found in run.data.tags.get(tag, "").split(",")
        if found
    ]


def linking_to(store: Store, study_id: str, *tags: str) -> list[Run]:
    """The studies that name this one in one of the tags; in all of them where none is given.

    Raises:
        StoreError: the store cannot be read.
    """
    found: dict[str, Run] = {}
    with refusals(store.tracking_uri):
        for tag in tags or _LINKS:
            for run in search_runs(store, f"tags.`{tag}` LIKE '%{study_id}%'"):
                found[str(run.info.run_id)] = run
    return list(found.values())


def get_study(store: Store, study_id: str) -> Run:
    """A study's run.

    Raises:
        PlanError: there is none.
        StoreError: the store cannot be read.
    """
    with refusals(store.tracking_uri):
        run = store.client.get_run(study_id)
    if names.KIND not in run.data.tags:
        raise PlanError(f"run {study_id} belongs to no study of this toolkit")
    return run
