"""What a close stands on: every artifact with its SHA-256, and every repeat's recorded values.

A manifest holds evidence only: no time and no version, so that the same evidence always
gives the same manifest. Pictures and pages are drawn from it and are no part of it.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Annotated, Final, Literal, TypeVar

from pydantic import AfterValidator, Field, ValidationError

from trainperf_mlflow.errors import EvidenceError, PlanError
from trainperf_mlflow.evidence.reading import parse_document, path_of
from trainperf_mlflow.messages import shown
from trainperf_mlflow.results.record import Record

SCHEMA: Final = "performance-evidence-manifest/v1"
SEMANTIC_ID: Final = "PERF-PROFILING-CLOSURE"

Part = Literal["study", "activation_scope", "pressure", "regression"]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


def _within(path: str) -> str:
    if not set(path.split("/")).isdisjoint({"", ".", ".."}):
        raise ValueError("leads out of its run, or is no plain path")
    return path


ArtifactPath = Annotated[str, Field(min_length=1, max_length=1000), AfterValidator(_within)]

# Drawn from the evidence, and drawn anew at any time.
VIEWS = frozenset({"plots", "report.html", "report.md"})
# A close's own files are no evidence of itself.
_CLOSE = frozenset({"evidence/manifest.json", "evidence/closing.json", "handoff/handoff.json"})
_ROLES: Mapping[str, str] = {
    "study.json": "plan",
    "comparison.json": "comparison",
    "assessment.json": "assessment",
    "blocks.json": "blocks",
    "convergence.json": "convergence",
    "result.json": "measurement",
    "environment.json": "environment",
    "evidence/activation_scope.json": "activation_scope",
    "phases/phase_memory.json": "phase_report",
    "phases/phases.json": "phase_summary",
    "profile/trace_evidence.json": "profile_report",
    "profile/summary.json": "profile_summary",
    "profile/trace.json.gz": "trace",
}
# A linked study stays open: what may still be decided or explained of it is not held here.
_OPEN_ROLES = frozenset(
    {"comparison", "assessment", "phase_report", "phase_summary", "profile_report"}
    | {"profile_summary", "trace"}
)
_REMEDIES: Mapping[str, str] = {
    "comparison": "'trainperf compare' writes it anew",
    "assessment": "'trainperf compare' writes it anew",
    "phase_report": "'trainperf phase' measures it anew",
    "phase_summary": "'trainperf phase' measures it anew",
    "profile_report": "'trainperf profile' measures it anew",
    "profile_summary": "'trainperf profile' measures it anew",
    "trace": "'trainperf profile' measures it anew",
}
_MAX_PROBLEMS = 5

R = TypeVar("R", bound=Record)


class Entry(Record):
    """A file by ``<run id>/<artifact path>`` and the SHA-256 of its bytes."""

    path: ArtifactPath
    sha256: Sha256


class Artifact(Record):
    """One file of the evidence."""

    role: str  # plan, comparison, measurement, trace, ...
    part: Part  # which of the linked studies it belongs to
    study_id: str
    run_id: str
    path: ArtifactPath  # within the run
    sha256: Sha256
    size: Annotated[int, Field(ge=0)]  # bytes
    # Whether its digest was recorded when it was written, or first here.
    fixed_at: Literal["measurement", "close"]

    @property
    def entry(self) -> Entry:
        return Entry(path=f"{self.run_id}/{self.path}", sha256=self.sha256)


class Measured(Record):
    """What a repeat's or a variant's run holds besides its files, as one digest."""

    part: Part
    study_id: str
    run_id: str
    variant: str
    repeat: int | None  # None: the variant's own run
    values_sha256: Sha256


class ReportEntry(Record):
    report: Entry | None


class ProfileEntries(Record):
    """What explains the study, where the source's manifest has it."""

    report: Entry | None
    trace_dir: str | None  # the study's run: each variant's trace is at its own
    phase_memory: ReportEntry


class Manifest(Record):
    """``evidence/manifest.json``."""

    schema_version: Literal["performance-evidence-manifest/v1"] = SCHEMA
    semantic_id: Literal["PERF-PROFILING-CLOSURE"] = SEMANTIC_ID
    run_label: str
    study_id: str
    workload_digest: str
    linked: dict[Part, tuple[str, ...]]  # the ids of the studies of each part
    source_artifacts: dict[str, Entry]  # baseline, strategy, budget, activation_memory_scope, ...
    profile: ProfileEntries
    artifacts: tuple[Artifact, ...]
    measurements: tuple[Measured, ...]

    @property
    def size(self) -> int:
        """Bytes of all artifacts."""
        return sum(artifact.size for artifact in self.artifacts)

    def first(self, role: str, part: Part = "study") -> Artifact | None:
        return next((a for a in self.artifacts if (a.role, a.part) == (role, part)), None)


@dataclass(frozen=True)
class HeldRun:
    """A run of the evidence: where its files are, and what was recorded of them."""

    part: Part
    study_id: str
    run_id: str
    kind: str  # study, variant, repeat, ...
    folder: Path  # missing where it has no files
    variant: str | None = None
    repeat: int | None = None
    values_sha256: str | None = None  # of a repeat or a variant
    recorded: Mapping[str, str] = field(default_factory=dict)  # path -> SHA-256


# --- making ------------------------------------------------------------------------------------


def collect(runs: Iterable[HeldRun]) -> tuple[tuple[Artifact, ...], tuple[Measured, ...]]:
    """Hash all files of the runs, in streams, and check them against what was recorded.

    Raises:
        EvidenceError: a file is not what was recorded when it was written, is missing, or
            cannot be read; each is named.
    """
    artifacts: list[Artifact] = []
    measured: list[Measured] = []
    problems: list[str] = []
    for run in runs:
        found = dict(_files(run))
        for path in sorted(found.keys() | run.recorded.keys()):
            role = role_of(path)
            if not _is_evidence(path, role, run.part):
                continue
            where = f"{path} of {_named(run)}"
            if path not in found:
                problems.append(f"{where} is missing{_remedy(role)}")
                continue
            try:
                digest, size = hashed(found[path])
            except OSError as error:
                problems.append(f"{where} cannot be read ({error.strerror or error})")
                continue
            recorded = run.recorded.get(path)
            if recorded not in (None, digest):
                problems.append(
                    f"{where} was changed: its SHA-256 is {digest}, recorded was "
                    f"{recorded}{_remedy(role)}"
                )
            artifacts.append(
                Artifact(
                    role=role,
                    part=run.part,
                    study_id=run.study_id,
                    run_id=run.run_id,
                    path=path,
                    sha256=digest,
                    size=size,
                    fixed_at="close" if recorded is None else "measurement",
                )
            )
        if run.values_sha256 is not None:
            measured.append(
                Measured(
                    part=run.part,
                    study_id=run.study_id,
                    run_id=run.run_id,
                    variant=run.variant or "",
                    repeat=run.repeat,
                    values_sha256=run.values_sha256,
                )
            )
    refuse(problems)
    artifacts.sort(key=lambda a: (a.part != "study", a.part, a.run_id, a.path))
    measured.sort(
        key=lambda m: (m.part != "study", m.part, m.study_id, m.variant, m.repeat or 0, m.run_id)
    )
    return tuple(artifacts), tuple(measured)


def hashed(path: Path) -> tuple[str, int]:
    """A file's SHA-256 and size, read as a stream.

    Raises:
        OSError: it cannot be read, or is no plain file.
    """
    if not path.is_file():  # a pipe would be waited for
        raise OSError(0, "it is no plain file")
    with path.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
        return digest, stream.tell()


def role_of(path: str) -> str:
    """What an artifact is evidence of.

    >>> role_of("result.json"), role_of("evidence/source/report.json"), role_of("notes.txt")
    ('measurement', 'source_report', 'other')
    """
    if path.startswith("evidence/source/"):
        return "source_report"
    return _ROLES.get(path, "other")


def _files(run: HeldRun) -> Iterator[tuple[str, Path]]:
    for folder, _, names in os.walk(run.folder):
        for name in names:
            path = Path(folder) / name
            yield path.relative_to(run.folder).as_posix(), path


def _is_evidence(path: str, role: str, part: Part) -> bool:
    if path in _CLOSE or PurePosixPath(path).parts[0] in VIEWS:
        return False
    if (part, role) == ("activation_scope", "comparison"):
        return True  # the gates of the scope ask for what it accepted
    return part in ("study", "regression") or role not in _OPEN_ROLES


def _named(run: HeldRun) -> str:
    if run.repeat is not None:
        return f"{run.variant} #{run.repeat + 1} (run {run.run_id})"
    if run.kind == "variant":
        return f"{run.variant} (run {run.run_id})"
    return f"study {run.run_id}"


def _remedy(role: str) -> str:
    return f" ({_REMEDIES[role]} while the study is open)" if role in _REMEDIES else ""


# --- comparing ---------------------------------------------------------------------------------


def differences(closed: Manifest, found: Manifest) -> list[str]:
    """In what the evidence that is there now is not the evidence of a manifest; the label aside."""
    before = {(a.run_id, a.path): a for a in closed.artifacts}
    now = {(a.run_id, a.path): a for a in found.artifacts}
    problems = []
    for key, artifact in before.items():
        other = now.get(key)
        where = f"{artifact.path} of run {artifact.run_id} ({artifact.part}, {artifact.role})"
        if other is None:
            problems.append(f"{where} is missing")
        elif other.sha256 != artifact.sha256:
            twin = next((a for a in before.values() if a.sha256 == other.sha256), None)
            what = f"swapped with {twin.path} of run {twin.run_id}" if twin else "changed"
            problems.append(
                f"{where} was {what}: its SHA-256 is {other.sha256}, in the manifest "
                f"{artifact.sha256}"
            )
    problems += [
        f"{artifact.path} of run {artifact.run_id} ({artifact.part}) is not in the manifest"
        for key, artifact in now.items()
        if key not in before
    ]
    values = {m.run_id: m for m in closed.measurements}
    holds_variants = any(m.repeat is None for m in closed.measurements)
    values_now = {m.run_id: m for m in found.measurements}
    for run_id in values | values_now:
        one, two = values.get(run_id), values_now.get(run_id)
        named = one or two
        assert named is not None
        if named.repeat is None and not holds_variants:
            continue  # closed before variants' own values were held
        number = "" if named.repeat is None else f" #{named.repeat + 1}"
        where = f"{named.variant}{number} (run {run_id})"
        if one is None:
            problems.append(f"{where} is not in the manifest")
        elif two is None:
            problems.append(f"{where} is missing from the store")
        elif one != two:
            problems.append(f"the metrics, params or tags of {where} were changed in the store")
    for name in ("study_id", "workload_digest", "linked", "source_artifacts", "profile"):
        if not problems and getattr(closed, name) != getattr(found, name):
            problems.append(
                f"{name} is {shown(getattr(found, name))}, in the manifest "
                f"{shown(getattr(closed, name))}"
            )
    return problems


def refuse(problems: list[str], heading: str = "the evidence does not match") -> None:
    """Raise an EvidenceError that names the first problems, where there are any."""
    if problems:
        more = len(problems) - _MAX_PROBLEMS
        rest = f"; and {more} more" if more > 0 else ""
        raise EvidenceError(f"{heading}: {'; '.join(problems[:_MAX_PROBLEMS])}{rest}")


# --- reading -----------------------------------------------------------------------------------


def read_record(model: type[R], data: bytes, path: str) -> R:
    """A file of a close, held to its schema: no unknown field, no text for a number.

    Raises:
        EvidenceError: it is no such file, with the field's path.
    """
    try:
        parse_document(data, path)
        return model.model_validate_json(data, strict=True)
    except PlanError as error:
        raise EvidenceError(str(error)) from None
    except ValidationError as error:
        found = [f"{path_of(item['loc'])}: {item['msg']}" for item in error.errors()]
        refuse(found, f"{path} does not keep its schema")
        raise


def canonical(record: Record) -> str:
    """A record as a close writes it."""
    return record.to_json() + "\n"
