"""After a killed command or a lost server: send what waits on disk, and decide."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from trainperf_mlflow.api.explaining import assess_again
from trainperf_mlflow.api.pages import attach_report
from trainperf_mlflow.api.reading import decide_again
from trainperf_mlflow.errors import EvidenceError, MeasurementError, PlanError, StoreError

if TYPE_CHECKING:
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
        study: a study's id; by default all that wait.

    Returns:
        One mapping per study: ``study_id``, ``sent``, ``explained`` (the commands whose
        results were sent: phase, profile), ``ended``, ``decision``, ``complete``.

    Raises:
        StoreError: nothing at all could be recovered.
        PlanError: nothing is known about such a study.
    """
    from trainperf_mlflow.tracking.spool import Spool
    from trainperf_mlflow.tracking.waiting import waiting_folders

    spool = Spool()
    tell = warn or (lambda message: None)
    explanations: dict[str, list[WaitingFolder]] = {}
    failed: StoreError | EvidenceError | None = None
    for folder in waiting_folders(spool):
        try:
            explanations.setdefault(folder.read().study_id, []).append(folder)
        except StoreError as error:
            tell(str(error))
            failed = failed or error
    measured = set(spool.studies())
    recovered = []
    for study_id in sorted({*measured, *explanations}) if study is None else [study]:
        found: dict[str, Any] = {"study_id": study_id, "sent": 0, "explained": [], "ended": 0}
        found |= {"decision": None, "complete": True}
        try:
            # Of a study that is named, what still runs is ended, though nothing waits.
            if study_id in measured or study_id not in explanations:
                found |= _measured(study_id, tracking_uri, tell)
            if found["complete"] and study_id in explanations:
                found["explained"] = _explained(explanations[study_id], tracking_uri, tell)
        except (StoreError, EvidenceError) as error:
            # One study that is damaged, or still being measured, holds up no other.
            tell(str(error))
            failed = failed or error
            continue
        recovered.append(found)
    if failed is not None and not recovered:
        raise failed
    return recovered


def _measured(study_id: str, tracking_uri: str | None, tell: Warn) -> dict[str, Any]:
    """Send a study's repeats, and decide where it never came to that."""
    from trainperf_mlflow.tracking.recovery import recover as recover_study

    found = recover_study(study_id, tracking_uri=tracking_uri, warn=tell)
    decision = found.decision
    if found.complete and decision is not None and (found.sent or found.ended):
        _report(found.store, study_id, tell)
    if found.complete and decision is None:
        try:
            decision = decide_again(found.store, study_id, tell).decision.decision
        except (MeasurementError, PlanError) as error:
            tell(f"study {study_id} stays undecided: {error}")
    return {
        "sent": found.sent,
        "ended": found.ended,
        "decision": decision,
        "complete": found.complete,
    }


def _explained(folders: list[WaitingFolder], tracking_uri: str | None, tell: Warn) -> list[str]:
    """Send what phase and profile measured, the oldest first; then assess the study anew."""
    from trainperf_mlflow.tracking.queries import load_variants
    from trainperf_mlflow.tracking.recovery import recover_explanation

    found = [recover_explanation(folder, tracking_uri=tracking_uri) for folder in folders]
    last = found[-1]
    variants = load_variants(last.store, last.study_id)
    assess_again(last.store, last.study_id, variants, tell)
    return [one.kind for one in found]


def _report(store: Store, study_id: str, warn: Warn) -> None:
    """A study that had come to its decision lacks nothing but its report."""
    from trainperf_mlflow.tracking import queries

    try:
        comparison = queries.load_comparison(store, study_id)
    except StoreError as error:
        warn(str(error))
        return
    attach_report(store, comparison, warn)
