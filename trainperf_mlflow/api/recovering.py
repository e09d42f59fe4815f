"""After a killed command or a lost server: send what waits on disk, and decide."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from trainperf_mlflow.api.pages import attach_report
from trainperf_mlflow.api.reading import decide_again
from trainperf_mlflow.errors import MeasurementError, PlanError, StoreError

if TYPE_CHECKING:
    from trainperf_mlflow.tracking.store import Store


def recover(
    study: str | None = None,
    *,
    tracking_uri: str | None = None,
    warn: Callable[[str], None] | None = None,
) -> list[dict[str, Any]]:
    """Send to MLflow what a killed command or a lost server left on disk.

    A study that was measured but never came to its decision is decided now, where
    what was measured allows it.

    Args:
        study: a study's id; by default all that wait.

    Returns:
        One mapping per study: ``study_id``, ``sent``, ``ended``, ``decision``, ``complete``.
    """
    from trainperf_mlflow.tracking.recovery import recover as recover_study
    from trainperf_mlflow.tracking.spool import Spool

    spool = Spool()
    tell = warn or (lambda message: None)
    recovered = []
    failed: StoreError | None = None
    for study_id in spool.studies() if study is None else [study]:
        try:
            found = recover_study(study_id, tracking_uri=tracking_uri, spool=spool, warn=tell)
        except StoreError as error:
            # One study that is damaged, or still being measured, holds up no other.
            tell(str(error))
            failed = failed or error
            continue
        decision = found.decision
        if found.complete and decision is not None and (found.sent or found.ended):
            _report(found.store, study_id, tell)
        if found.complete and decision is None:
            try:
                decision = decide_again(found.store, study_id, tell).decision.decision
            except (MeasurementError, PlanError) as error:
                tell(f"study {study_id} stays undecided: {error}")
        recovered.append(
            {
                "study_id": study_id,
                "sent": found.sent,
                "ended": found.ended,
                "decision": decision,
                "complete": found.complete,
            }
        )
    if failed is not None and not recovered:
        raise failed
    return recovered


def _report(store: Store, study_id: str, warn: Callable[[str], None]) -> None:
    """A study that had come to its decision lacks nothing but its report."""
    from trainperf_mlflow.tracking import queries

    try:
        comparison = queries.load_comparison(store, study_id)
    except StoreError as error:
        warn(str(error))
        return
    attach_report(store, comparison, warn)
