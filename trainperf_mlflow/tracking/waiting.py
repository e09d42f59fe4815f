"""What explains a study waits on disk until MLflow has it: whole, and for whoever recovers it.

One folder a command, beside those of the studies::

    bf16-1a2b3c4d-0000.json  waiting.json  bf16-1a2b3c4d/trace.json.gz  plots/phases.png  lock
"""

from __future__ import annotations

import hashlib
import json
import math
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from mlflow.entities import Metric
from pydantic import ValidationError

from trainperf_mlflow.analysis.explanation import TRACE_FILE
from trainperf_mlflow.errors import StoreError
from trainperf_mlflow.results.record import Record
from trainperf_mlflow.tracking import names
from trainperf_mlflow.tracking.entities import run_tags
from trainperf_mlflow.tracking.explaining import refuse_closed
from trainperf_mlflow.tracking.pictures import write_pictures
from trainperf_mlflow.tracking.spool import Spool, SpoolError, Target, write_whole
from trainperf_mlflow.tracking.store import Store, refusals
from trainperf_mlflow.tracking.uris import masked

WAITING_FILE = "waiting.json"


class Parcel(Record):
    """What one run gets, and when it was measured."""

    run_id: str
    files: dict[str, str]  # artifact path -> JSON
    metrics: dict[str, float]
    trace: str | None  # the trace's path within the folder that it waits in
    at_ms: int


class Waiting(Record):
    """The parcels of a command, and where they belong: ``waiting.json``."""

    study_id: str
    study: str | None = None  # its name
    kind: str  # phase, profile
    target: Target
    parcels: tuple[Parcel, ...]


def parcel(
    run_id: str,
    files: Mapping[str, Mapping[str, Any]],
    metrics: Mapping[str, float] | None = None,
    trace: Path | None = None,
) -> Parcel:
    """Objects to attach as JSON by their artifact paths, metrics, and a trace by its path within
    the folder that it waits in: the folder may be moved.
    """
    return Parcel(
        run_id=run_id,
        files={name: json.dumps(content, indent=2) for name, content in files.items()},
        metrics={key: value for key, value in (metrics or {}).items() if math.isfinite(value)},
        trace=None if trace is None else str(trace),
        at_ms=int(time.time() * 1000),
    )


class Kept:
    """A folder that holds results until MLflow has them; it is left where sending fails."""

    def __init__(self, study_id: str, kind: str, study: str | None = None) -> None:
        spool = Spool()
        spool.prepare()
        self.study_id, self.kind, self.study = study_id, kind, study
        self.path = Path(tempfile.mkdtemp(prefix=f"{kind}-{study_id[:12]}-", dir=spool.root))
        self._lock = FileLock(self.path / "lock")
        self._lock.acquire()
        self._told = False
        self._waiting: Waiting | None = None

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

    def put(self, store: Store, parcels: Iterable[Parcel]) -> str | None:
        """Have parcels wait, so that not even a kill loses them; what keeps them from the disk."""
        self._waiting = Waiting(
            study_id=self.study_id,
            study=self.study,
            kind=self.kind,
            target=Target(
                tracking_uri=masked(store.tracking_uri), experiment_id=store.experiment_id
            ),
            parcels=tuple(parcels),
        )
        return self.keep(WAITING_FILE, self._waiting.to_json(indent=None))

    def send(self, store: Store, pictures: Mapping[str, bytes] | None = None) -> None:
        """Send what waits; it goes on waiting where it is not sent.

        Args:
            pictures: by artifact path; they wait, too.

        Raises:
            EvidenceError: the study was closed meanwhile.
            StoreError: the store refuses.
        """
        assert self._waiting is not None
        try:
            send_waiting(store, self._waiting, self.path)
        except StoreError as error:
            with suppress(OSError):
                write_pictures(self.path, pictures or {})
            raise StoreError(
                f"{error}; what was measured is kept in {str(self.path)!r}; when the store is "
                f"back, 'trainperf recover {self.study_id}' sends it"
            ) from None

    def remove(self) -> None:
        """MLflow has everything."""
        shutil.rmtree(self.path, ignore_errors=True)
        self.leave()

    def leave(self) -> None:
        """No command writes here any more; an empty folder is of no use."""
        self._lock.release()
        if self.path.exists() and {path.name for path in self.path.iterdir()} <= {"lock"}:
            shutil.rmtree(self.path, ignore_errors=True)
        with suppress(OSError):
            self.path.parent.rmdir()  # only where it is empty


class WaitingFolder:
    """The results of a command that the store did not take."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = FileLock(path / "lock")

    def acquire(self) -> None:
        """Keep other commands off.

        Raises:
            SpoolError: one has it.
        """
        try:
            self._lock.acquire(timeout=0)
        except Timeout:
            raise SpoolError(
                f"{str(self.path)!r} is being sent by another command; wait for it"
            ) from None

    def release(self) -> None:
        self._lock.release()

    def read(self) -> Waiting:
        """What waits.

        Raises:
            SpoolError: it cannot be read.
        """
        try:
            return Waiting.from_json((self.path / WAITING_FILE).read_bytes())
        except (OSError, ValidationError, UnicodeDecodeError):
            raise SpoolError(
                f"{str(self.path / WAITING_FILE)!r} is damaged; measure it again, and delete "
                "the folder"
            ) from None

    def remove(self) -> None:
        """MLflow has everything."""
        shutil.rmtree(self.path, ignore_errors=True)
        self.release()
        with suppress(OSError):
            self.path.parent.rmdir()  # only where it is empty


def waiting_folders(spool: Spool) -> Iterator[WaitingFolder]:
    """The folders of commands whose results a store did not take, in their order in time."""
    found = []
    for path in spool.root.glob(f"*/{WAITING_FILE}"):
        with suppress(FileNotFoundError):  # another command has just sent and removed it
            found.append((path.stat().st_mtime_ns, path))
    for _, path in sorted(found):
        yield WaitingFolder(path.parent)


def send_waiting(store: Store, waiting: Waiting, folder: Path) -> None:
    """Send what waits in a folder to its runs; sending it again changes nothing.

    Raises:
        EvidenceError: the study was closed meanwhile; nothing is sent.
        StoreError: the store refuses.
    """
    refuse_closed(
        store,
        waiting.study_id,
        f"its {waiting.kind} results are kept in {str(folder)!r}: delete it when it is of no use",
    )
    for one in waiting.parcels:
        _send(store, one, folder)


def _send(store: Store, one: Parcel, folder: Path) -> None:
    client, run_id = store.client, one.run_id
    tags = names.digest_tags(one.files)
    with refusals(store.tracking_uri):
        if one.trace is not None:
            trace = folder / one.trace
            client.log_artifact(run_id, str(trace), TRACE_FILE.rpartition("/")[0])
            with trace.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            tags[f"{names.SHA256_PREFIX}{TRACE_FILE}"] = digest
        for name, text in one.files.items():
            client.log_text(run_id, text, name)
        client.log_batch(
            run_id,
            metrics=[Metric(key, value, one.at_ms, 0) for key, value in one.metrics.items()],
            tags=run_tags(tags),
            synchronous=True,
        )
