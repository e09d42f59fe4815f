"""How sure a close is: no surer than the least sure of the decisions that it rests on."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from trainperf_mlflow.evidence.closing_report import Basis, ClosingReport, Confidence
from trainperf_mlflow.evidence.gates import Closable
from trainperf_mlflow.results.decision import Decision

_ORDER: tuple[Confidence, ...] = ("unfit", "unconfirmed", "confirmed")


def rests_on(found: Closable, accepted: Collection[str]) -> tuple[Basis, ...]:
    """The measured decision, those on the accepted candidates, the regressions, the ladder."""
    comparison = found.exported.comparison
    study_id = found.exported.study.study_id
    decisions: list[tuple[str | None, Decision]] = [(None, comparison.decision)]
    decisions += [(c.variant, c.decision) for c in comparison.candidates if c.variant in accepted]
    measured = [
        Basis(
            what="measured",
            study_id=study_id,
            candidate=name,
            decision=decision.decision,
            confidence=decision.confidence,
        )
        for name, decision in decisions
    ]
    regressions = [
        Basis(
            what="regression",
            study_id=one.study_id or "",
            candidate=one.candidate,
            decision=one.decision or "",
            confidence=one.confidence or "unconfirmed",
        )
        for one in found.regressions
    ]
    scope = () if found.scope_basis is None else (found.scope_basis,)
    return (*measured, *regressions, *scope)


def weakest(bases: Sequence[Basis]) -> Confidence:
    """The least of what the adoption rests on.

    A ladder answers within its own scope, so its confidence bears no adoption.
    """
    counted = (base.confidence for base in bases if base.what != "activation_scope")
    return min(counted, key=_ORDER.index, default="unconfirmed")


def confidence_text(report: ClosingReport) -> str:
    """Why the close is as sure as it is, in words."""
    counted = [_named(base) for base in report.rests_on if base.what != "activation_scope"]
    scope = [
        f"within its scope the ladder is {base.confidence}"
        for base in report.rests_on
        if base.what == "activation_scope"
    ]
    rests = f"{report.confidence}, as the least sure of what this rests on: {', '.join(counted)}"
    return "; ".join([rests, *scope])


def _named(base: Basis) -> str:
    about = f" of {base.candidate}" if base.candidate else ""
    what = f"the regression{about}" if base.what == "regression" else f"what was measured{about}"
    return f"{what} ({base.decision}, {base.confidence})"
