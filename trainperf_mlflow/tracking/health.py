"""What ``doctor`` and the preflight ask about the store: reachable, writable, room for results."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Literal

from trainperf_mlflow.errors import StoreError
from trainperf_mlflow.results.check import Check
from trainperf_mlflow.tracking.spool import Spool
from trainperf_mlflow.tracking.store import (
    NoExperimentError,
    artifact_location,
    check_writable,
    connect,
    default_experiment,
    local_folder,
    read_store,
)
from trainperf_mlflow.tracking.uris import masked, resolve_uri, sqlite_path

MIN_FREE_BYTES = 200 * 1024**2
LOW_FREE_BYTES = 2 * 1024**3


def check_store(tracking_uri: str | None = None, experiment: str | None = None) -> list[Check]:
    """One check each for the store, its experiment, its artifacts and the results on disk.

    Nothing is created: a store that does not exist yet is told, not made.
    """
    try:
        uri = resolve_uri(tracking_uri)
    except StoreError as error:
        return [_failed("store", error), spool_check(Spool())]
    path = sqlite_path(uri)
    if path is not None and not path.exists():
        checks = [_new_sqlite(path)]
        location: str | None = artifact_location(uri, "")
    else:
        checks, location = _existing(uri, tracking_uri, experiment)
    if checks[0].status != "fail" and location is not None:
        checks.append(_artifacts(location))
    return [*checks, spool_check(Spool())]


def _new_sqlite(path: Path) -> Check:
    if not path.parent.is_dir():
        return _check(
            "store", "fail", f"the folder {str(path.parent)!r} does not exist", "create it"
        )
    try:
        check_writable(path.parent)
    except OSError as error:
        return _check(
            "store",
            "fail",
            f"{str(path.parent)!r} cannot be written ({error.strerror})",
            "run in a writable folder, or set MLFLOW_TRACKING_URI",
        )
    return _check("store", "ok", f"{path} (created by the first study)")


def _existing(
    uri: str, tracking_uri: str | None, experiment: str | None
) -> tuple[list[Check], str | None]:
    try:
        client = connect(uri)
    except StoreError as error:
        return [_failed("store", error)], None
    checks = [_check("store", "ok", masked(uri))]
    try:
        store = read_store(tracking_uri, experiment or default_experiment())
    except NoExperimentError:
        checks.append(_check("experiment", "ok", "created by the first study"))
        return checks, artifact_location(uri, "")
    except StoreError as error:
        return [*checks, _failed("experiment", error)], None
    checks.append(_check("experiment", "ok", store.experiment_name))
    return checks, client.get_experiment(store.experiment_id).artifact_location


def _artifacts(location: str) -> Check:
    folder = local_folder(location)
    if folder is None:
        return _check("artifacts", "ok", f"{masked(location)} (written by the first study)")
    return _room("artifacts", folder, "make it writable, or choose another store")


def spool_check(spool: Spool) -> Check:
    return _room("results on disk", spool.root, "set TRAINPERF_HOME to a writable folder")


def _room(name: str, folder: Path, remedy: str) -> Check:
    existing = next(path for path in (folder, *folder.absolute().parents) if path.is_dir())
    try:
        check_writable(existing)
        free = shutil.disk_usage(existing).free
    except OSError as error:
        return _check(name, "fail", f"{str(folder)!r} cannot be written ({error.strerror})", remedy)
    detail = f"{folder}, {free / 1024**3:.1f} GiB free"
    if free < LOW_FREE_BYTES:
        return _check(name, "fail" if free < MIN_FREE_BYTES else "warn", detail, "free some disk")
    return _check(name, "ok", detail)


def _failed(name: str, error: StoreError) -> Check:
    detail, _, remedy = str(error).partition("; ")
    return _check(name, "fail", detail, remedy)


def _check(
    check: str, status: Literal["ok", "warn", "fail"], detail: str, remedy: str = ""
) -> Check:
    return Check(check=check, status=status, detail=detail, remedy=remedy)
