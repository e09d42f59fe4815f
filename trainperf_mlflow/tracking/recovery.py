"""After a killed command or a lost store: what waits on disk is sent, what still runs is ended."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from trainperf_mlflow.errors import PlanError, StoreError
from trainperf_mlflow.tracking import names, writing
from trainperf_mlflow.tracking.explaining import refuse_closed
from trainperf_mlflow.tracking.pictures import read_pictures, send_pictures
from trainperf_mlflow.tracking.recorder import Recorder
from trainperf_mlflow.tracking.search import runs_of_study
from trainperf_mlflow.tracking.spool import Spool, StudyFolder, Target
from trainperf_mlflow.tracking.store import Store, connect, read_store, refusals
from trainperf_mlflow.tracking.uris import MASK, masked, resolve_uri
from trainperf_mlflow.tracking.waiting import WaitingFolder, send_waiting


@dataclass(frozen=True)
class Recovered:
    """What became of one study.

    Attributes:
        sent: repeats that MLflow did not have.
        ended: runs that were still running.
        decision: the study's decision, where it had come to one.
        complete: MLflow now has everything.
        store: where the study is.
    """

    study_id: str
    sent: int
    ended: int
    decision: str | None
    complete: bool
    store: Store


@dataclass(frozen=True)
class Explained:
    """Results of a phase or profile command that are in MLflow now."""

    study_id: str
    kind: str
    store: Store


def recover(
    study: str | Path,
    *,
    tracking_uri: str | None = None,
    spool: Spool | None = None,
    warn: Callable[[str], None] = lambda message: None,
) -> Recovered:
    """Send what MLflow lacks of a study and end its runs; a second time does nothing more.

    A study that had come to its comparison ends FINISHED with its decision, any other
    KILLED with what was measured.

    Args:
        study: a study's id, or its folder on disk.

    Raises:
        EvidenceError: the study was closed meanwhile; what waits stays on disk.
        StoreError: the store fails, or another command has the study.
        PlanError: nothing is known about such a study.
    """
    folder = StudyFolder(study) if isinstance(study, Path) else (spool or Spool()).folder(study)
    if not (folder.path / "study.json").exists():
        return _end_runs(folder.study_id, tracking_uri)
    folder.acquire()
    try:
        store = _target_store(folder.target(), folder.study_id, tracking_uri)
        refuse_closed(
            store,
            folder.study_id,
            f"what waits is kept in {str(folder.path)!r}: delete it when it is of no use",
        )
        with refusals(store.tracking_uri):
            running = _running(store, folder.study_id)
        recorder = Recorder.resume(store, folder, warn)
        sent = recorder.waiting
        known = folder.comparison()
        if known is None:
            complete = recorder.kill()
        else:
            complete = recorder.finish_study(*known, folder.pictures())
        if complete:
            with refusals(store.tracking_uri):
                _kill_running(store, folder.study_id)
    finally:
        folder.release()
    decision = None if known is None else known[0].decision.decision
    sent -= recorder.waiting
    return Recovered(folder.study_id, sent, len(running), decision, complete, store)


def recover_explanation(folder: WaitingFolder, *, tracking_uri: str | None = None) -> Explained:
    """Send what a phase or profile command measured while its store was away.

    Raises:
        StoreError: the store fails, another command has the folder, or it is damaged.
        EvidenceError: the study was closed meanwhile.
    """
    folder.acquire()
    try:
        waiting = folder.read()
        store = _target_store(waiting.target, waiting.study_id, tracking_uri)
        send_waiting(store, waiting, folder.path)
        with suppress(StoreError, OSError):  # the results are there without their pictures
            send_pictures(store, waiting.study_id, read_pictures(folder.path))
        folder.remove()
    finally:
        folder.release()
    return Explained(waiting.study_id, waiting.kind, store)


def _target_store(target: Target, study_id: str, tracking_uri: str | None) -> Store:
    """The store the study was recorded in; its password is not on disk."""
    if tracking_uri is None and MASK not in target.tracking_uri:
        uri = target.tracking_uri
    else:
        uri = resolve_uri(tracking_uri)
        if tracking_uri is None and masked(uri) != target.tracking_uri:
            raise StoreError(
                f"study {study_id} belongs into {target.tracking_uri!r}, whose password is "
                "not kept on disk; set MLFLOW_TRACKING_URI to the whole URI"
            )
    client = connect(uri)
    with refusals(uri):
        client.get_run(study_id)  # another store could have the experiment, too
        experiment = client.get_experiment(target.experiment_id)
    return Store(client, uri, experiment.experiment_id, experiment.name)


def _end_runs(study_id: str, tracking_uri: str | None) -> Recovered:
    """Nothing waits on disk: what is left is to end runs that nobody writes to any more."""
    store = read_store(tracking_uri)
    with refusals(store.tracking_uri):
        found = runs_of_study(store, study_id)
        if not found:
            raise PlanError(
                f"no results of a study {study_id!r} wait on disk, and "
                f"{masked(store.tracking_uri)!r} has no such study; "
                "correct the id, or set TRAINPERF_HOME or MLFLOW_TRACKING_URI"
            )
        own = next((run.data.tags for run in found if run.info.run_id == study_id), {})
        # The runs of a closed study are its evidence.
        ended = 0 if names.CLOSED in own else _kill_running(store, study_id)
    return Recovered(study_id, 0, ended, own.get(names.DECISION), True, store)


def _running(store: Store, study_id: str) -> list[str]:
    return [
        run.info.run_id
        for run in runs_of_study(store, study_id)
        if run.info.status in ("RUNNING", "SCHEDULED")
    ]


def _kill_running(store: Store, study_id: str) -> int:
    running = _running(store, study_id)
    for run_id in running:
        writing.end_run(store, run_id, "KILLED")
    return len(running)
