"""Closing a study: its evidence fixed by hashes, weighed by the gates, and handed on."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal

from pydantic import JsonValue

from trainperf_mlflow.api.annotating import annotate
from trainperf_mlflow.api.closed import as_closed
from trainperf_mlflow.api.gathering import Gathered, Links, gathered
from trainperf_mlflow.api.pages import attach_report
from trainperf_mlflow.api.reading import find
from trainperf_mlflow.api.verifying import verified
from trainperf_mlflow.errors import EvidenceError, PlanError
from trainperf_mlflow.evidence.chain import CLOSING, FILES, HANDOFF, MANIFEST, broken
from trainperf_mlflow.evidence.closed import closed_as
from trainperf_mlflow.evidence.closing import close_study
from trainperf_mlflow.evidence.closing_report import ClosingReport
from trainperf_mlflow.evidence.gates import Closable
from trainperf_mlflow.evidence.handoff import Handoff, make_handoff
from trainperf_mlflow.evidence.labels import known_label
from trainperf_mlflow.evidence.manifest import (
    Entry,
    Manifest,
    canonical,
    differences,
    read_record,
    refuse,
)
from trainperf_mlflow.messages import shown
from trainperf_mlflow.results.comparison import Comparison
from trainperf_mlflow.results.decision import Decision
from trainperf_mlflow.results.record import Record

if TYPE_CHECKING:
    from trainperf_mlflow.tracking.closing import StudyRuns


class Closure(Record):
    """How a close ended, or, with ``check``, what it would decide."""

    schema_version: Literal["trainperf-close/v1"] = "trainperf-close/v1"
    # ready: checked and nothing written; repaired: an interrupted close was completed.
    status: Literal["completed", "repaired", "already_complete", "ready"]
    study_id: str
    study: str
    label: str
    decision: str
    reason: str
    text: str
    next_action: str
    rollback: bool
    confidence: str
    policy: str
    best_candidate: str | None
    candidates: tuple[dict[str, JsonValue], ...]  # the gates' records
    decision_scopes: dict[str, JsonValue]
    missing_evidence: tuple[str, ...]
    limitations: tuple[str, ...]
    artifacts: int
    bytes: int
    measured_repeats: int
    # Artifacts of the study's run.
    manifest_path: str = MANIFEST
    report_path: str = CLOSING
    handoff_path: str = HANDOFF


def close(
    study: str,
    label: str | None = None,
    *,
    scope_study: str | None = None,
    pressure_study: str | None = None,
    check: bool = False,
    tracking_uri: str | None = None,
    experiment: str | None = None,
    warn: Callable[[str], None] = lambda message: None,
) -> Closure:
    """Check all evidence of a study, decide by the gates, and write manifest, report, handoff.

    What is missing (phases, traces, a regression, ...) is listed and keeps a candidate from
    being accepted; what does not match is refused. From then on the decision is the close's,
    and nothing can be added to the study. Of two closes of one study at once only one goes on.
    That a label stands for one study is best effort: it is asked once more under the study's
    claim, and two studies closed within that moment can still share one.

    Args:
        study: a run id, a unique prefix of one, or a study's name (the newest of it).
        label: a name of one's own for this close; with ``check`` it may be left out.
        scope_study: a study with zero-momentum SGD, which answers within its own scope.
        pressure_study: the same training with a longer sequence.
        check: only read. Of a closed study: verify everything again.

    Raises:
        PlanError: there is no such study, it cannot be closed, or the label is none.
        EvidenceError: an artifact is missing or was changed, a linked study is another
            workload, the study or the label is closed with other evidence, or the chain of
            files is broken; what it is is named.
        StoreError: the store cannot be read or written.
    """
    wanted = None if label is None and check else known_label(label)
    from trainperf_mlflow.tracking.queries import find_study
    from trainperf_mlflow.tracking.store import refuse_read_only

    store, study_id = find(study, tracking_uri, experiment)
    if not check:
        refuse_read_only(store)
    links = Links(
        scope=find_study(store, scope_study) if scope_study else None,
        pressure=find_study(store, pressure_study) if pressure_study else None,
    )
    with gathered(store, study_id) as found:
        _refuse_unfit(found.main, links)
        files = found.own_files(FILES)
        if found.closed is not None:
            return _closed_before(found, files, wanted, links, check, warn)
        return _close(found, files, wanted or "", links, check, warn)


def load_handoff(
    study: str, *, tracking_uri: str | None = None, experiment: str | None = None
) -> Handoff:
    """The handoff of a closed study, after every hash of its evidence was verified.

    Raises:
        PlanError: there is no such study, or it is not closed.
        EvidenceError: an artifact is missing or was changed, or the chain is broken.
        StoreError: the store cannot be read.
    """
    store, study_id = find(study, tracking_uri, experiment)
    with gathered(store, study_id) as found:
        files = found.own_files(FILES)
        if found.closed is None:
            problem = broken(study_id, files, closed=False)
            if problem is not None:
                raise EvidenceError(f"{problem}; run 'trainperf close' with the same label again")
            raise PlanError(
                f"study {study_id} is not closed, so it has no handoff; "
                f"run 'trainperf close {study_id} --label LABEL' first"
            )
        return verified(found, files).handoff


# --- a study that is open ----------------------------------------------------------------------


def _close(
    found: Gathered,
    files: Mapping[str, bytes],
    label: str,
    links: Links,
    check: bool,
    warn: Callable[[str], None],
) -> Closure:
    study_id = found.main.study_id
    manifest = found.manifest(label, found.with_regressions(links))
    begun = _begun(study_id, files, manifest, check)
    _refuse_taken(found, label)
    material = found.closable()
    _refuse_disagreement(material)
    texts = {MANIFEST: canonical(manifest)}
    report = close_study(material, manifest, _sha256(texts[MANIFEST]))
    texts[CLOSING] = canonical(report)
    study = material.exported.study
    entries = [Entry(path=f"{study_id}/{p}", sha256=_sha256(texts[p])) for p in (CLOSING, MANIFEST)]
    handoff = make_handoff(study, report, entries[0], entries[1], manifest.profile.report)
    texts[HANDOFF] = canonical(handoff)
    comparison = material.exported.comparison
    closed = closed_as(report, comparison)
    if check:
        return _closure("ready", report, manifest, closed, study.name, closed.best_candidate)
    if begun:
        changed = [path for path in FILES if path in files and files[path].decode() != texts[path]]
        refuse(
            [f"{path} is not what this evidence gives" for path in changed],
            "the files of an interrupted close differ; close under another --label",
        )
    elif files:
        warn("the files of an interrupted close under another label are replaced")
    from trainperf_mlflow.tracking import names
    from trainperf_mlflow.tracking.claims import claim
    from trainperf_mlflow.tracking.closing import send_close

    runs = {c.variant: c.run_id for c in comparison.candidates}
    runs |= {v.name: v.run_id for v in material.exported.variants if v.run_id}
    claimed = claim(found.main)
    try:
        _refuse_taken(found, label)
        send_close(
            found.main,
            texts,
            {
                names.CLOSED: label,
                names.MEASURED_DECISION: comparison.decision.decision,
                names.HANDOFF: HANDOFF,
                names.BEST_CANDIDATE: closed.best_candidate,
                names.SCOPE_STUDY: links.scope,
                names.PRESSURE_STUDY: links.pressure,
                names.REGRESSIONS: ",".join(manifest.linked.get("regression", ())) or None,
            },
            closed,
            {
                run_id: closed.candidates[name]
                for name, run_id in runs.items()
                if name in closed.candidates and run_id
            },
        )
    except BaseException:
        claimed.release()
        raise
    _tell(found, as_closed(comparison, closed), warn)
    claimed.release()
    status: Literal["repaired", "completed"] = "repaired" if begun else "completed"
    return _closure(status, report, manifest, closed, study.name, closed.best_candidate)


def _refuse_taken(found: Gathered, label: str) -> None:
    taken = found.study_with_label(label) if label else None
    if taken not in (None, found.main.study_id):
        raise EvidenceError(
            f"the label {shown(label)} belongs to study {taken}, which has other evidence; "
            "give another --label"
        )


def _tell(found: Gathered, comparison: Comparison, warn: Callable[[str], None]) -> None:
    """Page and notes, which say from now on how the study was closed."""
    attach_report(found.main.store, comparison, warn)
    annotate(found.main.store, comparison)


def _begun(study_id: str, files: Mapping[str, bytes], manifest: Manifest, check: bool) -> bool:
    """Whether a close under this label was interrupted, which closing again completes.

    Raises:
        EvidenceError: the chain is broken in a way that no interruption leaves, or the close
            was begun with other evidence.
    """
    problem = broken(study_id, files, closed=False)
    if problem is None:
        return False
    in_order = [path in files for path in FILES]
    if in_order != sorted(in_order, reverse=True):
        raise EvidenceError(f"{problem}; no interruption leaves that: look at the files first")
    if check:
        raise EvidenceError(f"{problem}; close it again with the same label and evidence")
    begun = read_record(Manifest, files[MANIFEST], MANIFEST)
    if begun.run_label != manifest.run_label:
        return False
    refuse(
        differences(begun, manifest),
        f"a close under {shown(begun.run_label)} was interrupted and stands on other evidence "
        "than there is now; close under another --label",
    )
    return True


def _refuse_unfit(main: StudyRuns, links: Links) -> None:
    from trainperf_mlflow.tracking import names

    kind = main.tags.get(names.KIND)
    if kind != "study":
        raise PlanError(f"run {main.study_id} is a {kind}, and only a study can be closed")
    if main.run.info.status in ("RUNNING", "SCHEDULED"):
        raise EvidenceError(
            f"study {main.study_id} is {main.run.info.status}; wait until it has ended, or end "
            f"what a killed command has left with 'trainperf recover {main.study_id}'"
        )
    for option, linked in (("--scope-study", links.scope), ("--pressure-study", links.pressure)):
        if linked == main.study_id:
            raise PlanError(f"{option} is the study itself; give another one")


def _refuse_disagreement(material: Closable) -> None:
    """What was decided must be about the values that the store holds now."""
    exported = material.exported
    comparison = exported.comparison
    if comparison.baseline is None:
        raise PlanError(
            f"study {exported.study.study_id} is a probe without a baseline, so there is nothing "
            "to close; measure it with a baseline"
        )
    decided = {comparison.baseline.name: comparison.baseline.metrics}
    decided |= {c.variant: c.metrics for c in comparison.candidates}
    refuse(
        [
            f"{key} of {variant.name} is {variant.metrics.get(key)} in the store, but "
            f"{decided.get(variant.name, {}).get(key)} in comparison.json"
            for variant in exported.variants
            for key in variant.metrics
            if not _same(variant.metrics[key], decided.get(variant.name, {}).get(key))
        ],
        "the comparison is not about what the store holds; 'trainperf compare' decides again",
    )


def _same(one: float, other: float | None) -> bool:
    if other is None:
        return False
    return math.isclose(one, other, rel_tol=1e-9) or (math.isnan(one) and math.isnan(other))


# --- a study that is closed --------------------------------------------------------------------


def _closed_before(
    found: Gathered,
    files: Mapping[str, bytes],
    label: str | None,
    links: Links,
    check: bool,
    warn: Callable[[str], None],
) -> Closure:
    chain = verified(found, files)
    manifest, report = chain.manifest, chain.report
    study_id = found.main.study_id
    if label is not None and label != report.run_label:
        raise EvidenceError(
            f"study {study_id} is closed as {shown(report.run_label)}, and its evidence is final; "
            "measure a new study for another close"
        )
    given = {"activation_scope": links.scope, "pressure": links.pressure}
    for part, linked in given.items():
        ids = manifest.linked.get(part, ())  # type: ignore[call-overload]
        # A check may leave out what it does not ask for.
        if (linked or not check) and ids != ((linked,) if linked else ()):
            raise EvidenceError(
                f"study {study_id} was closed as {shown(report.run_label)} with other evidence "
                f"({part}: {', '.join(ids) or 'none'}, not {linked or 'none'}); "
                "close with the same studies, or measure a new one"
            )
    from trainperf_mlflow.tracking.claims import claims_on, drop_claims

    comparison = found.closable().exported.comparison
    closed = closed_as(report, comparison)
    status: Literal["repaired", "already_complete"] = "already_complete"
    left = claims_on(found.main.tags)
    if left and not check:
        # The close came as far as its tags: what shows it was not drawn anew.
        _tell(found, as_closed(comparison, closed), warn)
        drop_claims(found.main.store, study_id, left)
        status = "repaired"
    name = str(found.main.run.info.run_name)
    return _closure(status, report, manifest, closed, name, closed.best_candidate)


# --- words -------------------------------------------------------------------------------------


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _closure(
    status: Literal["completed", "repaired", "already_complete", "ready"],
    report: ClosingReport,
    manifest: Manifest,
    decision: Decision,
    study: str,
    best: str | None,
) -> Closure:
    dumped: dict[str, Any] = json.loads(report.to_json())
    return Closure(
        status=status,
        study_id=report.study_id,
        study=study,
        label=report.run_label,
        **decision.model_dump(include=set(Decision.model_fields) - {"numbers"}),
        best_candidate=best,
        candidates=tuple(dumped["candidates"]),
        decision_scopes=dumped["decision_scopes"],
        missing_evidence=report.missing_evidence,
        limitations=report.limitations,
        artifacts=len(manifest.artifacts),
        bytes=manifest.size,
        measured_repeats=sum(m.repeat is not None for m in manifest.measurements),
    )
