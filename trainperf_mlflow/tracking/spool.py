"""Results on disk first: what was measured survives the command and the store.

One folder a study, named by its id::

    study.json  target.json  convergence.json  comparison.json  note.md  plots/steps.png
    repeats/0000-bf16-1a2b3c4d.json  repeats/0000-bf16-1a2b3c4d.recorded

Every file is written whole under another name, synced, then renamed.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from filelock import FileLock, Timeout
from pydantic import Field, ValidationError

from trainperf_mlflow.errors import StoreError
from trainperf_mlflow.results.comparison import Comparison
from trainperf_mlflow.results.record import Record
from trainperf_mlflow.results.repeats import Repeat, StudyConvergence
from trainperf_mlflow.results.study import Study
from trainperf_mlflow.tracking.pictures import read_pictures, write_pictures

T = TypeVar("T")
HOME_VARIABLE = "TRAINPERF_HOME"
HOME_FOLDER = ".trainperf"


class SpoolError(StoreError):
    """Results cannot be kept on disk: full, read-only, or in use by another command."""


class Target(Record):
    """Where the results belong; the URI is kept without its password."""

    tracking_uri: str
    experiment_id: str
    variant_runs: dict[str, str] = Field(default_factory=dict)


class StudyFolder:
    """The results of one study on disk."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = FileLock(path / "lock")

    @property
    def study_id(self) -> str:
        return self.path.name

    def acquire(self) -> None:
        """Keep other commands off this study while it is being measured or recovered.

        Raises:
            SpoolError: another process has it, or the folder cannot be made.
        """
        with _disk(self.path):
            (self.path / "repeats").mkdir(parents=True, exist_ok=True)
            try:
                self._lock.acquire(timeout=0)
            except Timeout:
                raise SpoolError(
                    f"study {self.study_id} is still being measured or recovered by another "
                    "command; wait for it, or end it first"
                ) from None

    def release(self) -> None:
        self._lock.release()

    def write_study(self, study: Study) -> None:
        self._write("study.json", study.to_json())

    def write_target(self, target: Target) -> None:
        self._write("target.json", target.to_json())

    def write_convergence(self, convergence: StudyConvergence) -> None:
        self._write("convergence.json", convergence.to_json(indent=None))

    def write_comparison(self, comparison: Comparison, note: str) -> None:
        # The comparison last: where it is, its note is too.
        self._write("note.md", note)
        self._write("comparison.json", comparison.to_json())

    def write_pictures(self, pictures: Mapping[str, bytes]) -> None:
        with _disk(self.path / "plots"):
            write_pictures(self.path, pictures)

    def pictures(self) -> dict[str, bytes]:
        """The pictures by their artifact paths, as far as they can be read."""
        with suppress(OSError):
            return read_pictures(self.path)
        return {}

    def add(self, repeat: Repeat) -> None:
        """Keep a repeat; returns when it is on the disk.

        Raises:
            SpoolError: it could not be written.
        """
        self._write(f"repeats/{_stem(repeat)}.json", repeat.to_json(indent=None))

    def mark_recorded(self, repeat: Repeat, run_id: str) -> None:
        """Remember that MLflow has this repeat, so that it is not sent twice."""
        self._write(f"repeats/{_stem(repeat)}.recorded", run_id)

    def recorded_as(self, repeat: Repeat) -> str | None:
        """The run id under which a repeat was recorded, if it was."""
        with suppress(OSError):
            return (self.path / "repeats" / f"{_stem(repeat)}.recorded").read_text() or None
        return None

    def study(self) -> Study:
        return self._read("study.json", Study.from_json)

    def target(self) -> Target:
        return self._read("target.json", Target.from_json)

    def convergence(self) -> StudyConvergence:
        """The longer trainings as far as they went; empty where there were none."""
        if not (self.path / "convergence.json").exists():
            return StudyConvergence(variants={})
        return self._read("convergence.json", StudyConvergence.from_json)

    def comparison(self) -> tuple[Comparison, str] | None:
        """The comparison and its note, or None where the study did not get that far."""
        if not (self.path / "comparison.json").exists():
            return None
        comparison = self._read("comparison.json", Comparison.from_json)
        return comparison, self._read("note.md", lambda data: data.decode())

    def repeats(self) -> tuple[list[Repeat], list[str]]:
        """The repeats in the order of their files, and what is wrong with unreadable ones."""
        found, problems = [], []
        for path in sorted((self.path / "repeats").glob("*.json")):
            try:
                found.append(self._read(f"repeats/{path.name}", Repeat.from_json))
            except SpoolError as error:
                problems.append(str(error))
        return found, problems

    def remove(self) -> None:
        """Everything is in MLflow: nothing more to keep."""
        shutil.rmtree(self.path, ignore_errors=True)
        self.release()
        with suppress(OSError):
            self.path.parent.rmdir()  # only where it is empty

    def _write(self, name: str, text: str) -> None:
        with _disk(self.path / name):
            write_whole(self.path / name, text)

    def _read(self, name: str, parse: Callable[[bytes], T]) -> T:
        path = self.path / name
        try:
            return parse(path.read_bytes())
        except OSError as error:
            raise SpoolError(f"{str(path)!r} cannot be read ({error.strerror})") from None
        except (ValidationError, UnicodeDecodeError):
            raise SpoolError(
                f"{str(path)!r} is damaged or truncated and is left out; delete it once it is of "
                "no use to you"
            ) from None


class Spool:
    """The studies whose results wait on disk: in TRAINPERF_HOME, else ``.trainperf`` here."""

    def __init__(self, root: Path | None = None) -> None:
        home = os.environ.get(HOME_VARIABLE)
        self.root = (root or (Path(home) if home else Path.cwd() / HOME_FOLDER)).absolute()

    def prepare(self) -> None:
        """See that results can be written.

        Raises:
            SpoolError: they cannot.
        """
        with _disk(self.root):
            self.root.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.root) as file:
                file.write(b"x")

    def folder(self, study_id: str) -> StudyFolder:
        """The folder of a study, whether it exists or not.

        Raises:
            SpoolError: the id could lead out of the spool.
        """
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}", study_id):
            raise SpoolError(f"{study_id[:60]!r} is no study id; give the id of a waiting study")
        return StudyFolder(self.root / study_id)

    def studies(self) -> list[str]:
        """The ids of the studies that wait."""
        return sorted(path.parent.name for path in self.root.glob("*/study.json"))

    def abandoned(self) -> list[str]:
        """Those of them that no command is measuring or recovering now."""
        ids = []
        for study_id in self.studies():
            folder = self.folder(study_id)
            with suppress(SpoolError):
                folder.acquire()
                folder.release()
                ids.append(study_id)
        return ids


def write_whole(path: Path, text: str) -> None:
    """Write a file so that a reader, or a crash, finds it whole or not at all."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".writing-")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    # The rename itself must reach the disk, too.
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _stem(repeat: Repeat) -> str:
    # The hash keeps names apart that look the same once they are fit for a file name.
    slug = re.sub(r"[^A-Za-z0-9_-]+", "_", repeat.variant)[:40]
    key = hashlib.sha256(repeat.variant.encode()).hexdigest()[:8]
    return f"{repeat.index:04d}-{slug}-{key}"


@contextmanager
def _disk(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise SpoolError(
            f"results cannot be kept on disk at {str(path)!r} ({error.strerror or error}); "
            f"free some space, or set {HOME_VARIABLE} to a writable folder"
        ) from None
