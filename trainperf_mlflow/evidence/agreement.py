"""A published decision beside our own: the same, or both with the reason why not."""

from __future__ import annotations

import re
from collections.abc import Sequence

from trainperf_mlflow.results.comparison import Comparison
from trainperf_mlflow.results.record import Record
from trainperf_mlflow.results.study import PublishedDecision, Study

SCHEMA = "trainperf-import/v1"


class ImportOutcome(Record):
    """One imported report: the study that it became, and both decisions."""

    file: str
    study_id: str
    study: str
    format: str
    already: bool  # the same file was imported before: this is its study
    published_decision: str | None  # None: the format decides nothing
    published_reason: str | None
    decision: str
    reason: str
    next_action: str
    agrees: bool | None  # None: nothing was published to agree with
    differences: tuple[str, ...] = ()  # why not
    warnings: tuple[str, ...] = ()


def outcome(
    study: Study,
    comparison: Comparison,
    file: str,
    *,
    already: bool,
    warnings: Sequence[str] = (),
) -> ImportOutcome:
    """What became of a report. The study is an imported one."""
    source = study.source
    assert source is not None
    stated, ours = source.published, comparison.decision
    found = differences(stated, comparison) if stated is not None else ()
    return ImportOutcome(
        file=file,
        study_id=comparison.study_id,
        study=study.name,
        format=source.format,
        already=already,
        published_decision=stated.decision if stated else None,
        published_reason=stated.reason if stated else None,
        decision=ours.decision,
        reason=ours.reason,
        next_action=ours.next_action,
        agrees=None if stated is None else not found,
        differences=(*found, *(warnings if found else ())),
        warnings=tuple(warnings),
    )


def beside_published(study: Study, comparison: Comparison) -> Comparison:
    """Our comparison of an imported study, with a warning where its report decided otherwise."""
    stated = study.source.published if study.source else None
    found = differences(stated, comparison) if stated is not None else ()
    told = tuple(text for text in found if text not in comparison.warnings)
    return comparison.model_copy(update={"warnings": (*comparison.warnings, *told)})


def differences(stated: PublishedDecision, comparison: Comparison) -> tuple[str, ...]:
    """In what our decision is another one than the published; empty where they agree.

    Reasons are compared where the published one is a code, next actions and best
    candidates where they were published. What the report says of its point values is
    held against ours, since its runs' evidence is not at hand.
    """
    ours, theirs = comparison.decision, stated.by_point_values or stated
    pairs: list[tuple[str, str, str]] = [("decision", theirs.decision, ours.decision)]
    if theirs.reason is not None and re.fullmatch(r"[a-z0-9]+(_[a-z0-9]+)+", theirs.reason):
        pairs.append(("reason", theirs.reason, ours.reason))
    if theirs.next_action is not None:
        pairs.append(("next_action", theirs.next_action, ours.next_action))
    if stated.best_candidate is not None:
        pairs.append(("best_candidate", stated.best_candidate, comparison.best_candidate or "none"))
    found = [f"{name}: published {a}, here {b}" for name, a, b in pairs if a != b]
    return (*found, f"here because: {ours.text}") if found else ()
