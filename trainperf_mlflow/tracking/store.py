"""Opening the MLflow store: found, reachable, writable, or refused with a remedy."""

from __future__ import annotations

import hashlib
import logging
import os
import re
import socket
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit
from urllib.request import url2pathname

import sqlalchemy
from filelock import FileLock, Timeout
from mlflow import MlflowClient
from mlflow.entities import Experiment
from mlflow.exceptions import MlflowException

from trainperf_mlflow.errors import StoreError, TrainperfError
from trainperf_mlflow.tracking.uris import (
    ARTIFACT_FOLDER,
    DATABASES,
    SERVER_DATABASES,
    address,
    masked,
    resolve_uri,
    scheme_of,
    sqlite_path,
    without_passwords,
)

DEFAULT_EXPERIMENT = "trainperf"
CONNECT_S = 3.0
ANSWER_S = 5
LOCKED_S = 10.0
SCHEMA_LOCK_S = 120.0
# PostgreSQL keeps 200 characters of a run's artifact URI: the location, "/", a run id of 32
# characters and "/artifacts".
MAX_LOCATION = 200 - 43


class NoExperimentError(StoreError):
    """The store answers, but has no such experiment yet."""


@dataclass(frozen=True)
class Store:
    """A store that answered, and the experiment to write to or to read."""

    client: MlflowClient
    tracking_uri: str  # absolute; may hold a password, never print it
    experiment_id: str  # empty: all experiments are read
    experiment_name: str
    writable: bool = True  # False: an sqlite file that can only be read


def open_store(tracking_uri: str | None = None, experiment: str | None = None) -> Store:
    """The store to write to, and its experiment, which is created where it does not exist.

    The experiment is that of the run MLFLOW_RUN_ID (under ``mlflow run``), else the
    one given, else MLFLOW_EXPERIMENT_ID or MLFLOW_EXPERIMENT_NAME, else ``trainperf``.

    Raises:
        StoreError: the store is unreachable, refuses, or cannot be written.
    """
    uri = resolve_uri(tracking_uri)
    client = connect(uri)
    with refusals(uri):
        found = _experiment(client, uri, experiment, create=True)
    _check_artifacts(uri, found.artifact_location)
    return Store(client, uri, found.experiment_id, found.name)


def read_store(tracking_uri: str | None = None, experiment: str | None = None) -> Store:
    """The store to read: the experiment given, else all of them. Creates nothing, and an
    sqlite file may be read-only.

    Raises:
        NoExperimentError: there is no such store or experiment yet.
        StoreError: the store is unreachable or refuses.
    """
    uri = resolve_uri(tracking_uri)
    path = sqlite_path(uri)
    if path is not None and not path.exists():
        raise NoExperimentError(
            f"there is no store {str(path)!r} yet; measure a study first, change to the folder "
            "where you did, or set MLFLOW_TRACKING_URI"
        )
    writable = path is None or not _only_readable(path)
    client = connect(uri, to_write=writable)
    if experiment is None:
        return Store(client, uri, "", "any", writable)
    with refusals(uri):
        found = _experiment(client, uri, experiment, create=False)
    return Store(client, uri, found.experiment_id, found.name, writable)


def refuse_read_only(store: Store) -> None:
    """Tell before the work that its results could not be kept.

    Raises:
        StoreError: the store can only be read.
    """
    if not store.writable:
        raise StoreError(
            f"the store {masked(store.tracking_uri)!r} can only be read, so nothing could be "
            "kept in it; make the file and its folder writable"
        )


def default_experiment() -> str:
    """The experiment that a study goes to where none is named."""
    return os.environ.get("MLFLOW_EXPERIMENT_NAME") or DEFAULT_EXPERIMENT


def connect(uri: str, *, to_write: bool = True) -> MlflowClient:
    """A client of the store at this absolute URI, which has answered.

    Raises:
        StoreError: within about ten seconds, where MLflow itself waits for minutes.
    """
    quiet()
    reach(uri)
    path = sqlite_path(uri)
    if path is not None and to_write:
        _check_sqlite(path)
    elif scheme_of(uri) in SERVER_DATABASES:
        _check_database(uri)
    # Only who may write makes a schema, and the lock's file with it.
    lock = _schema_lock(uri, path) if to_write else nullcontext()
    with lock, refusals(uri), impatient():
        client = MlflowClient(tracking_uri=uri)
        client.search_experiments(max_results=1)
    return client


def reach(uri: str, timeout_s: float = CONNECT_S) -> None:
    """See that something listens where the URI points.

    Raises:
        StoreError: nothing does.
    """
    target = address(uri)
    if target is None:
        return
    try:
        socket.create_connection(target, timeout=timeout_s).close()
    except OSError as error:
        raise StoreError(
            f"the MLflow store {masked(uri)!r} does not answer "
            f"({error.strerror or error or 'timed out'}); start it, or correct "
            "MLFLOW_TRACKING_URI (unset, results go to ./mlflow.db)"
        ) from None


def answers(store: Store, run_id: str) -> bool:
    """Whether the store can be read now; costs seconds at most where it is gone."""
    try:
        reach(store.tracking_uri, timeout_s=1.0)
        with impatient():
            store.client.get_run(run_id)
    except Exception as error:
        raise_interruption(error)
        return False
    return True


@contextmanager
def impatient() -> Iterator[None]:
    """Let MLflow wait for an answer once and for seconds: a probe, not a transfer."""
    wanted = {
        "MLFLOW_HTTP_REQUEST_TIMEOUT": str(ANSWER_S),
        "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
    }
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextmanager
def refusals(uri: str) -> Iterator[None]:
    """Turn what MLflow and its drivers raise into a StoreError without passwords."""
    try:
        yield
    except TrainperfError:
        raise
    except Exception as error:
        raise_interruption(error)
        raise StoreError(
            f"the MLflow store {masked(uri)!r} refuses: {reason(error, uri)}"
        ) from None


def reason(error: BaseException, uri: str) -> str:
    """The first words of an error, in one line and without the store's password."""
    text = " ".join(str(error).split()) or type(error).__name__
    return without_passwords(text, uri)[:500]


def raise_interruption(error: BaseException) -> None:
    """Raise the interrupt that MLflow swallowed and re-raised as an error of its own, if any."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, TrainperfError) and hasattr(seen, "signum"):
            raise seen
        seen = seen.__cause__ or seen.__context__


def local_folder(location: str) -> Path | None:
    """The folder of a local artifact location, or None for a remote one.

    >>> local_folder("file:///tmp/a%20b"), local_folder("s3://bucket/x")
    (PosixPath('/tmp/a b'), None)
    """
    parts = urlsplit(location)
    if parts.scheme == "file":
        return Path(url2pathname(parts.path))
    return Path(unquote(location)) if not parts.scheme else None


def artifact_location(uri: str, experiment: str) -> str | None:
    """Where a new experiment's artifacts go; None where a server decides.

    Absolute, and next to an sqlite file: a relative one would follow whoever opens it.
    """
    if scheme_of(uri) not in DATABASES:
        return None
    path = sqlite_path(uri)
    folder = path.parent if path is not None else Path.cwd()
    name = re.sub(r"[^A-Za-z0-9_-]+", "_", experiment)[:40] or "experiment"
    return (folder / ARTIFACT_FOLDER / name).absolute().as_uri()


def check_writable(folder: Path) -> None:
    """Create the folder and write into it.

    Raises:
        OSError: it cannot be created or written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    # Only a real write tells: permissions say nothing to root or on a read-only mount.
    with tempfile.TemporaryFile(dir=folder) as file:
        file.write(b"x")


def quiet() -> None:
    """Keep MLflow's housekeeping (schema migrations, retries) off the terminal."""
    if "MLFLOW_LOGGING_LEVEL" in os.environ:
        return
    for name in ("alembic", "mlflow.store.db", "mlflow.store.db.utils"):
        logging.getLogger(name).setLevel(logging.WARNING)
    logging.getLogger("urllib3.connectionpool").setLevel(logging.ERROR)


# --- the experiment ----------------------------------------------------------------------------


def _experiment(client: MlflowClient, uri: str, name: str | None, *, create: bool) -> Experiment:
    run_id = os.environ.get("MLFLOW_RUN_ID")
    if run_id and create:
        found = _experiment_of_run(client, uri, run_id)
        if name and name not in (found.name, found.experiment_id):
            raise StoreError(
                f"experiment {name!r} was asked for, but 'mlflow run' has put this study into "
                f"{found.name!r}; name it there: mlflow run --experiment-name {name!r}"
            )
        return found
    experiment_id = os.environ.get("MLFLOW_EXPERIMENT_ID")
    if not name and experiment_id:
        return _active(client.get_experiment(experiment_id))
    name = name or default_experiment()
    known = client.get_experiment_by_name(name)
    if known is not None:
        return _active(known)
    if not create:
        names = ", ".join(repr(e.name) for e in client.search_experiments(max_results=20))
        raise NoExperimentError(
            f"there is no experiment {name!r} in {masked(uri)!r}; it has {names or 'none'}; "
            "measure a study first, or correct --experiment or MLFLOW_TRACKING_URI"
        )
    location = artifact_location(uri, name)
    if location is not None:
        _check_length(uri, location)
    try:
        created = client.create_experiment(name, artifact_location=location)
    except MlflowException:
        # Another process may have been faster.
        known = client.get_experiment_by_name(name)
        if known is None:
            raise
        return _active(known)
    return client.get_experiment(created)


def _experiment_of_run(client: MlflowClient, uri: str, run_id: str) -> Experiment:
    try:
        run = client.get_run(run_id)
    except MlflowException as error:
        raise StoreError(
            f"MLFLOW_RUN_ID is {run_id!r}, but {masked(uri)!r} has no such run "
            f"({reason(error, uri)}); unset MLFLOW_RUN_ID, or give 'mlflow run' an absolute "
            "MLFLOW_TRACKING_URI: a relative one means another file in the project's folder"
        ) from None
    return _active(client.get_experiment(run.info.experiment_id))


def _active(experiment: Experiment) -> Experiment:
    if experiment.lifecycle_stage != "active":
        raise StoreError(
            f"experiment {experiment.name!r} is deleted, and its name stays taken; restore it "
            f"with 'mlflow experiments restore --experiment-id {experiment.experiment_id}', "
            "or choose another with --experiment"
        )
    return experiment


def _check_length(uri: str, location: str) -> None:
    if scheme_of(uri) in SERVER_DATABASES and len(location) > MAX_LOCATION:
        raise StoreError(
            f"the artifact location {location!r} has {len(location)} characters, and this "
            f"database keeps {MAX_LOCATION}; start in a folder with a shorter path, or create "
            "the experiment with a shorter location"
        )


def _check_artifacts(uri: str, location: str) -> None:
    _check_length(uri, location)
    folder = local_folder(location)
    if folder is None:
        return
    try:
        check_writable(folder)
    except OSError as error:
        raise StoreError(
            f"artifacts go to {str(folder)!r}, which cannot be written ({error.strerror}); "
            "make it writable, or choose another store or --experiment"
        ) from None


# --- before MLflow itself looks ----------------------------------------------------------------


def _check_sqlite(path: Path) -> None:
    """A write that is rolled back: read-only files, folders and mounts, foreign files, locks."""
    if not path.parent.is_dir():
        raise StoreError(f"the store's folder {str(path.parent)!r} does not exist; create it")
    try:
        _write_nothing(path)
    except sqlite3.Error as error:
        remedy = (
            "end the program that holds it, or try again"
            if "locked" in str(error)
            else "make the file and its folder writable, or name another store with "
            "MLFLOW_TRACKING_URI=sqlite:////absolute/mlflow.db"
        )
        raise StoreError(f"the store {str(path)!r} cannot be used ({error}); {remedy}") from None


def _write_nothing(path: Path) -> None:
    with closing(sqlite3.connect(path, timeout=LOCKED_S, isolation_level=None)) as database:
        database.execute("BEGIN IMMEDIATE")
        database.execute("CREATE TABLE trainperf_write_check (x INTEGER)")
        database.execute("ROLLBACK")


def _only_readable(path: Path) -> bool:
    try:
        _write_nothing(path)
    except sqlite3.OperationalError as error:
        # A folder in which no journal can be made says that something cannot be opened.
        if error.sqlite_errorcode & 0xFF not in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN):
            return False
        with suppress(sqlite3.Error), closing(sqlite3.connect(path)) as database:
            return bool(database.execute("SELECT count(*) FROM sqlite_master").fetchone())
    except sqlite3.Error:
        pass
    return False


def _check_database(uri: str) -> None:
    # MLflow retries a refused password for minutes, so ask once before it does.
    options: dict[str, Any] = {}
    if scheme_of(uri) == "postgresql":
        options["connect_timeout"] = ANSWER_S
    engine = sqlalchemy.create_engine(uri, connect_args=options, poolclass=sqlalchemy.pool.NullPool)
    try:
        engine.connect().close()
    except sqlalchemy.exc.SQLAlchemyError as error:
        cause = getattr(error, "orig", None) or error
        raise StoreError(
            f"the database {masked(uri)!r} refuses: {reason(cause, uri)}; "
            "correct MLFLOW_TRACKING_URI, or create the database and its user"
        ) from None
    finally:
        engine.dispose()


@contextmanager
def _schema_lock(uri: str, path: Path | None) -> Iterator[None]:
    # Processes that create the schema at the same time break each other's migrations.
    if scheme_of(uri) not in DATABASES:
        yield
        return
    if path is not None:
        file = path.with_name(f".{path.name}.trainperf-lock")
    else:
        key = hashlib.sha256(uri.encode()).hexdigest()[:16]
        file = Path(tempfile.gettempdir()) / f"trainperf-{key}.lock"
    lock = FileLock(file)
    # Where no lock can be made or it stays taken, the schema is most likely there already.
    with suppress(OSError, Timeout):
        lock.acquire(timeout=SCHEMA_LOCK_S)
    try:
        yield
    finally:
        lock.release()
