"""All that a close reads of a study and of those linked to it, each file and run once."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar, get_args

from trainperf_mlflow.analysis.explanation import PHASES_FILE, PROFILE_FILE
from trainperf_mlflow.errors import EvidenceError, PlanError
from trainperf_mlflow.evidence.closing_report import Basis, Regression
from trainperf_mlflow.evidence.exported import Exported
from trainperf_mlflow.evidence.gates import BUDGET_POLICIES, Closable
from trainperf_mlflow.evidence.manifest import (
    VIEWS,
    Artifact,
    Entry,
    HeldRun,
    Manifest,
    Part,
    ProfileEntries,
    ReportEntry,
    collect,
)
from trainperf_mlflow.evidence.reading import parse_document
from trainperf_mlflow.evidence.scope import scope_report
from trainperf_mlflow.results.comparison import Comparison
from trainperf_mlflow.results.decision import Confidence
from trainperf_mlflow.results.record import Status
from trainperf_mlflow.results.repeats import StudyConvergence
from trainperf_mlflow.results.study import Study
from trainperf_mlflow.results.values import VariantValues

if TYPE_CHECKING:
    from trainperf_mlflow.tracking.closing import Files, StudyRuns
    from trainperf_mlflow.tracking.store import Store

T = TypeVar("T")

_SCOPE: Final = "activation_scope"


@dataclass(frozen=True)
class Links:
    """The ids of the studies that a close also stands on."""

    scope: str | None = None
    pressure: str | None = None
    regressions: tuple[str, ...] = ()

    @classmethod
    def of(cls, linked: Mapping[Part, tuple[str, ...]]) -> Links:
        """Those of a manifest."""
        return cls(
            scope=next(iter(linked.get(_SCOPE, ())), None),
            pressure=next(iter(linked.get("pressure", ())), None),
            regressions=linked.get("regression", ()),
        )

    def parts(self) -> dict[Part, tuple[str, ...]]:
        parts: dict[Part, tuple[str, ...]] = {}
        if self.scope:
            parts[_SCOPE] = (self.scope,)
        if self.pressure:
            parts["pressure"] = (self.pressure,)
        if self.regressions:
            parts["regression"] = self.regressions
        return parts


@dataclass
class Gathered:
    """A study with its linked ones: their runs, and access to their files."""

    main: StudyRuns
    files: Files
    linked: dict[Part, tuple[StudyRuns, ...]] = field(default_factory=dict)

    @property
    def closed(self) -> str | None:
        """The label, where the study is closed."""
        from trainperf_mlflow.tracking import names

        return self.main.tags.get(names.CLOSED)

    @property
    def recorded(self) -> dict[str, str]:
        """Of the study's own files, the SHA-256 that was recorded."""
        from trainperf_mlflow.tracking.closing import recorded_digests

        return recorded_digests(self.main.run)

    def own_files(self, paths: tuple[str, ...]) -> dict[str, bytes]:
        """Those of the study's files that there are."""
        folder = self.files.folder(self.main.run)
        return {p: (folder / p).read_bytes() for p in paths if (folder / p).is_file()}

    def study_with_label(self, label: str) -> str | None:
        from trainperf_mlflow.tracking.closing import study_with_label

        return study_with_label(self.main.store, label)

    def with_regressions(self, links: Links) -> Links:
        """The links, and the regressions whose primary workload is this study."""
        from trainperf_mlflow.tracking import names
        from trainperf_mlflow.tracking.closing import linking_to

        found = linking_to(self.main.store, self.main.study_id, names.PRIMARY_STUDY)
        ids = sorted(str(run.info.run_id) for run in found if run.info.status == "FINISHED")
        return replace(links, regressions=tuple(ids))

    def manifest(self, label: str, links: Links) -> Manifest:
        """The manifest of what there is now.

        Raises:
            EvidenceError: a file is missing or not what was recorded, or a linked study is gone.
            StoreError: the store cannot be read.
        """
        from trainperf_mlflow.tracking.closing import scope_studies, study_runs

        parts = links.parts()
        self.linked = {
            part: tuple(study_runs(self.main.store, study_id) for study_id in ids)
            for part, ids in parts.items()
        }
        if _SCOPE in self.linked:  # a ladder stands on the studies of its lengths
            self.linked[_SCOPE] += tuple(
                study_runs(self.main.store, study_id)
                for ladder in self.linked[_SCOPE]
                for study_id in scope_studies(ladder)
            )
        held = list(self._held("study", self.main))
        for part, studies in self.linked.items():
            for linked in studies:
                held += self._held(part, linked)
        artifacts, measurements = collect(held)
        sources = self._sources(artifacts)
        study = study_of(self.files, self.main)
        report, phases = (
            next((a.entry for a in artifacts if (a.part, a.role) == ("study", role)), None)
            for role in ("profile_report", "phase_report")
        )
        traced = any((a.part, a.role) == ("study", "trace") for a in artifacts)
        return Manifest(
            run_label=label,
            study_id=self.main.study_id,
            workload_digest=study.workload.digest,
            linked=parts,
            source_artifacts=sources,
            profile=ProfileEntries(
                report=report,
                trace_dir=self.main.study_id if traced else None,
                phase_memory=ReportEntry(report=phases),
            ),
            artifacts=artifacts,
            measurements=measurements,
        )

    def _held(self, part: Part, study: StudyRuns) -> Iterator[HeldRun]:
        from trainperf_mlflow.tracking import names
        from trainperf_mlflow.tracking.closing import (
            recorded_digests,
            values_digest,
            variant_digest,
        )

        for run in study.runs:
            tags = run.data.tags
            kind = tags.get(names.KIND, "")
            recorded = recorded_digests(run)
            if run.info.run_id == study.study_id and names.SOURCE_SHA256 in tags:
                source = study_of(self.files, study)
                recorded[_source_path(source)] = tags[names.SOURCE_SHA256]
            is_repeat = kind == "repeat"
            values = values_digest(run) if is_repeat else None
            if kind == "variant":
                values = variant_digest(run, final=part == "study")
            yield HeldRun(
                part=part,
                study_id=study.study_id,
                run_id=str(run.info.run_id),
                kind=kind,
                folder=self.files.folder(run),
                variant=tags.get(names.VARIANT),
                repeat=int(tags[names.REPEAT]) if is_repeat else None,
                values_sha256=values,
                recorded=recorded,
            )

    def _sources(self, artifacts: tuple[Artifact, ...]) -> dict[str, Entry]:
        """The files that take the places of the source's upstream reports."""
        study = study_of(self.files, self.main)

        def entry(part: Part, *roles: str) -> Entry | None:
            found = {a.role: a for a in artifacts if a.part == part}
            return next((found[role].entry for role in roles if role in found), None)

        whole = entry("study", "source_report", "comparison", "plan")
        budget = whole if study.policy in BUDGET_POLICIES else None
        known = {
            "baseline": whole,
            "strategy": whole,
            "budget": budget,
            "activation_memory_scope": entry(
                _SCOPE, "activation_scope", "source_report", "comparison"
            ),
            "pressure_validation": entry("pressure", "source_report", "plan"),
            "phase_memory": entry("study", "phase_report"),
        }
        return {name: found for name, found in known.items() if found is not None}

    # --- what is decided on ----------------------------------------------------------------

    def closable(self) -> Closable:
        """The study as the gates read it; call it after ``manifest``.

        Raises:
            EvidenceError: a file that is needed is missing or damaged.
        """
        exported = self._exported(self.main)
        scope = next(iter(self.linked.get(_SCOPE, ())), None)
        pressure = next(iter(self.linked.get("pressure", ())), None)
        runs = {str(run.info.run_id): run for run in self.main.runs}
        folders = {
            v.name: self.files.folder(runs[v.run_id]) for v in exported.variants if v.run_id in runs
        }
        return Closable(
            exported=exported,
            profiles=_summaries(folders, PROFILE_FILE),
            phases=_summaries(folders, PHASES_FILE),
            scope=None if scope is None else self._scope(scope),
            scope_basis=None if scope is None else _scope_basis(scope),
            pressure=None
            if pressure is None
            else (pressure.study_id, self._exported(pressure, decided=False).config()),
            regressions=tuple(_regression(r) for r in self.linked.get("regression", ())),
        )

    def _exported(self, study: StudyRuns, *, decided: bool = True) -> Exported:
        from trainperf_mlflow.decisions.study import decide_study
        from trainperf_mlflow.tracking import names
        from trainperf_mlflow.tracking.convergence import with_convergence
        from trainperf_mlflow.tracking.queries import variants_of

        described = study_of(self.files, study)
        folder = self.files.folder(study.run)
        variants = variants_of(described, study.runs)
        if (folder / names.CONVERGENCE_FILE).is_file():
            trained = _parsed(folder / names.CONVERGENCE_FILE, StudyConvergence.from_json)
            variants = with_convergence(variants, trained.variants)
        path = folder / names.COMPARISON_FILE
        if path.is_file():
            comparison = _parsed(path, Comparison.from_json)
        elif decided:
            raise EvidenceError(
                f"study {study.study_id} has no {names.COMPARISON_FILE}; run "
                f"'trainperf compare {study.study_id}' first"
            )
        else:
            comparison = decide_study(described, variants)
        return Exported(
            study=described,
            variants=variants,
            comparison=comparison,
            environment=self._environment(study, variants),
        )

    def _environment(
        self, study: StudyRuns, variants: tuple[VariantValues, ...]
    ) -> Mapping[str, Any]:
        """That of the first repeat that succeeded, the baseline's where there is one."""
        from trainperf_mlflow.tracking.names import ENVIRONMENT_FILE

        runs = {str(run.info.run_id): run for run in study.runs}
        ordered = sorted(variants, key=lambda variant: variant.role)
        for repeat in (r for v in ordered for r in v.repeats if r.status is Status.OK):
            path = self.files.folder(runs[str(repeat.run_id)]) / ENVIRONMENT_FILE
            found = _parsed(path, json.loads) if path.is_file() else None
            if isinstance(found, dict):
                return found
        return {}

    def _scope(self, study: StudyRuns) -> Mapping[str, Any]:
        """The ladder's report: its own, the one it was imported from, or made of the study."""
        from trainperf_mlflow.tracking import names

        folder = self.files.folder(study.run)
        places = [folder / names.SCOPE_FILE]
        if names.SOURCE_SHA256 in study.tags:
            places.append(folder / _source_path(study_of(self.files, study)))
        for path in places:
            if path.is_file():
                try:
                    return parse_document(path.read_bytes(), str(path.name)).content
                except PlanError as error:
                    raise EvidenceError(str(error)) from None
        return scope_report(self._exported(study))


@contextmanager
def gathered(store: Store, study_id: str) -> Iterator[Gathered]:
    """A study's runs and files, until the block ends.

    Raises:
        StoreError: the store cannot be read.
    """
    from trainperf_mlflow.tracking.closing import opened_files, study_runs

    with opened_files(store, skip=VIEWS) as files:
        yield Gathered(study_runs(store, study_id), files)


def study_of(files: Files, study: StudyRuns) -> Study:
    """What a study was to measure.

    Raises:
        EvidenceError: its ``study.json`` is missing or damaged.
    """
    from trainperf_mlflow.tracking.names import STUDY_FILE

    path = files.folder(study.run) / STUDY_FILE
    if not path.is_file():
        raise EvidenceError(
            f"{STUDY_FILE} of study {study.study_id} is missing; where it was deleted, get it "
            "back; where the study was interrupted, 'trainperf recover' sends it"
        )
    return _parsed(path, Study.from_json)


def _parsed(path: Path, parse: Callable[[bytes], T]) -> T:
    try:
        return parse(path.read_bytes())
    except (OSError, ValueError) as error:
        raise EvidenceError(f"{path.name} is damaged ({str(error)[:200]})") from None


def _source_path(study: Study) -> str:
    from trainperf_mlflow.tracking.importing import source_path

    return source_path(study)


def _summaries(folders: Mapping[str, Path], file: str) -> dict[str, Mapping[str, Any]]:
    found = {name: folder / file for name, folder in folders.items()}
    return {name: _parsed(path, json.loads) for name, path in found.items() if path.is_file()}


def _regression(study: StudyRuns) -> Regression:
    from trainperf_mlflow.tracking import names

    return Regression(
        status="collected",
        study_id=study.study_id,
        candidate=study.tags.get(names.BEST_CANDIDATE),
        decision=study.tags.get(names.DECISION),
        reason=study.tags.get(names.REASON),
        confidence=_confidence(study),
    )


def _scope_basis(study: StudyRuns) -> Basis:
    from trainperf_mlflow.tracking import names

    return Basis(
        what="activation_scope",
        study_id=study.study_id,
        decision=study.tags.get(names.DECISION, ""),
        confidence=_confidence(study) or "unconfirmed",
    )


def _confidence(study: StudyRuns) -> Confidence | None:
    from trainperf_mlflow.tracking import names

    found = study.tags.get(names.CONFIDENCE)
    return next((known for known in get_args(Confidence) if known == found), None)
