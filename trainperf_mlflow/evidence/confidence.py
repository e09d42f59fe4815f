"""How sure a close is: no surer than the least sure of the decisions that it rests on."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from trainperf_mlflow.evidence.closing_report import Basis, ClosingReport, Regression
from trainperf_mlflow.evidence.gates import Closable
from trainperf_mlflow.results.comparison import Comparison
from trainperf_mlflow.results.decision import SURENESS, Confidence, Decision


def rests_on(found: Closable, accepted: Collection[str]) -> tuple[Basis, ...]:
    """The measured decision, those on the accepted candidates, the regressions, the ladder.

    An adoption rests on the regressions of what is adopted; where nothing is, on all of them.
    """
    comparison = found.exported.comparison
    study_id = found.exported.study.study_id
    about = [r for r in found.regressions if not accepted or r.candidate in (None, *accepted)]
    scope = () if found.scope_basis is None else (found.scope_basis,)
    return (
        _measured(study_id, None, comparison.decision),
        *_on_candidates(comparison, accepted),
        *_regressions(about),
        *scope,
    )


def candidate_confidence(name: str, report: ClosingReport, comparison: Comparison) -> Confidence:
    """How sure a close is of one candidate: as the least sure decision about that one.

    Args:
        comparison: as it was measured.
    """
    if report.confidence is None:  # from before this was weighed
        return "unconfirmed"
    known = (r for r in report.validation.regression if r.status == "collected")
    about = (r for r in known if r.candidate in (None, name))
    return weakest([*_on_candidates(comparison, (name,)), *_regressions(about)])


def weakest(bases: Sequence[Basis]) -> Confidence:
    """The least of what the adoption rests on.

    A ladder answers within its own scope, so its confidence bears no adoption.
    """
    counted = (base.confidence for base in bases if base.what != "activation_scope")
    return min(counted, key=SURENESS.index, default="unconfirmed")


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


def _on_candidates(comparison: Comparison, names: Collection[str]) -> Iterable[Basis]:
    for candidate in comparison.candidates:
        if candidate.variant in names:
            yield _measured(comparison.study_id, candidate.variant, candidate.decision)


def _measured(study_id: str, candidate: str | None, decision: Decision) -> Basis:
    return Basis(
        what="measured",
        study_id=study_id,
        candidate=candidate,
        decision=decision.decision,
        confidence=decision.confidence,
    )


def _regressions(known: Iterable[Regression]) -> Iterable[Basis]:
    for one in known:
        yield Basis(
            what="regression",
            study_id=one.study_id or "",
            candidate=one.candidate,
            decision=one.decision or "",
            confidence=one.confidence or "unconfirmed",
        )
