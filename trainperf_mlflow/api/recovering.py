"""After a killed command or a lost server: send what waits on disk, and decide."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from trainperf_mlflow.api.closed import with_close
from trainperf_mlflow.api.explaining import assess_again
from trainperf_mlflow.api.pages import attach_report
from trainperf_mlflow.api.reading import decide_again
from trainperf_mlflow.errors import EvidenceError, MeasurementError, PlanError, StoreError
from trainperf_mlflow.messages import shown

if TYPE_CHECKING:
    from trainperf_mlflow.tracking.spool import Spool
    from trainperf_mlflow.tracking.store import Store
    from trainperf_mlflow.tracking.waiting import WaitingFolder

Warn = Callable[[str], None]


def recover(
    study: str | None = None,
    *,
    tracking_uri: str | None = None,
    warn: Warn | None = None,
) -> list[dict[str, Any]]:
    """Send to MLflow what a killed command or a lost server left on disk.

    A study that was measured but never came to its decision is decided now, where
    what was measured allows it. Results of ``phase`` and ``profile`` refresh the assessment.

    Args:
        study: the id of a study that waits, a unique prefix of it, or its name; or the whole id
            of any other, whose runs are ended; by default all that wait.

    Returns:
        One mapping per study: ``study_id``, ``sent``, ``explained`` (the commands whose
        results were sent: phase, profile), ``ended``, ``decision``, ``complete``.

    Raises:
        StoreError: nothing at all could be recovered.
        EvidenceError: nothing could be, since a study was closed meanwhile.
        PlanError: nothing is known about such a study, or several are meant.
    """
    from trainperf_mlflow.tracking.spool import Spool
    from trainperf_mlflow.tracking.waiting import waiting_folders

    spool = Spool()
    tell = warn or (lambda message: None)
    explanations: dict[str, list[WaitingFolder]] = {}
    names: dict[str, str | None] = {}
    failed: StoreError | EvidenceError | None = None
    for folder in waiting_folders(spool):
        try:
            waiting = folder.read()
        except StoreError as error:
            tell(str(error))
            failed = failed or error
        else:
            explanations.setdefault(waiting.study_id, []).append(folder)
            names[waiting.study_id] = waiting.study
    measured = set(spool.studies())
    names |= {study_id: _name(spool, study_id) for study_id in measured}
    recovered = []
    for study_id in sorted(names) if study is None else [_meant(study, names)]:
        found: dict[str, Any] = {"study_id": study_id, "sent": 0, "explained": [], "ended": 0}
        found |= {"decision": None, "complete": True}
        try:
            # Of a study that is named, what still runs is ended, though nothing waits.
            if study_id in measured or study_id not in explanations:
                _measured(found, tracking_uri, tell)
            if found["complete"] and study_id in explanations:
                _explained(found, explanations[study_id], tracking_uri, tell)
        except (StoreError, EvidenceError) as error:
            # One study that is damaged, or still being measured, holds up no other.
            tell(str(error))
            failed = failed or error
            found["complete"] = False
            if not (found["sent"] or found["explained"] or found["ended"]):
                continue
        recovered.append(found)
    if failed is not None and not recovered:
        raise failed
    return recovered


def _name(spool: Spool, study_id: str) -> str | None:
    """The name of a study that was measured; None where it cannot be read."""
    with suppress(StoreError):
        return spool.folder(study_id).study().name
    return None


def _meant(ref: str, names: Mapping[str, str | None]) -> str:
    """The id of the study that is meant: of one that waits, or a whole one.

    Args:
        names: those of the studies that wait, by their ids.

    Raises:
        PlanError: there is none, or several.
    """
    from trainperf_mlflow.tracking.queries import MIN_PREFIX

    found = [each for each in names if len(ref) >= MIN_PREFIX and each.startswith(ref)]
    found = sorted(found or [each for each, name in names.items() if name == ref])
    if len(found) > 1:
        raise PlanError(
            f"{shown(ref)} means {len(found)} studies that wait ({', '.join(found[:5])}); "
            "give the id of one"
        )
    if not found and not re.fullmatch(r"[0-9a-f]{32}", ref):
        waiting = ", ".join(sorted(names)[:5])
        raise PlanError(
            f"no results of a study {shown(ref)} wait on disk"
            f"{f' (but of {waiting})' if waiting else ''}; correct it, set TRAINPERF_HOME, or give "
            "the whole id of a study whose runs are to be ended"
        )
    return found[0] if found else ref


def _measured(found: dict[str, Any], tracking_uri: str | None, tell: Warn) -> None:
    """Send a study's repeats, and decide where it never came to that."""
    from trainperf_mlflow.tracking.recovery import recover as recover_study

    study_id = found["study_id"]
    known = recover_study(study_id, tracking_uri=tracking_uri, warn=tell)
    found |= {"sent": known.sent, "ended": known.ended}
    found |= {"decision": known.decision, "complete": known.complete}
    if known.complete and known.decision is not None and (known.sent or known.ended):
        _report(known.store, study_id, tell)
    if known.complete and known.decision is None:
        try:
            found["decision"] = decide_again(known.store, study_id, tell).decision.decision
        except (MeasurementError, PlanError) as error:
            tell(f"study {study_id} stays undecided: {error}")


def _explained(
    found: dict[str, Any], folders: list[WaitingFolder], tracking_uri: str | None, tell: Warn
) -> None:
    """Send what phase and profile measured, the oldest first; then assess the study anew, also
    where only some of it could be sent.
    """
    from trainperf_mlflow.tracking.queries import load_variants
    from trainperf_mlflow.tracking.recovery import recover_explanation

    last = None
    try:
        for folder in folders:
            last = recover_explanation(folder, tracking_uri=tracking_uri)
            found["explained"].append(last.kind)
    finally:
        if last is not None:
            variants = load_variants(last.store, last.study_id)
            assess_again(last.store, last.study_id, variants, tell)


def _report(store: Store, study_id: str, warn: Warn) -> None:
    """A study that had come to its decision lacks nothing but its report."""
    from trainperf_mlflow.tracking import queries

    try:
        comparison = with_close(store, queries.load_comparison(store, study_id))
    except StoreError as error:
        warn(str(error))
        return
    attach_report(store, comparison, warn)
