"""The candidates against the baseline, each with its decision, and the study's."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from trainperf_mlflow.results.assessment import Assessment
from trainperf_mlflow.results.decision import Closed, Decision, Evaluation
from trainperf_mlflow.results.estimates import ConvergenceCheck, LossCurve, Noise, PairedEstimate
from trainperf_mlflow.results.record import Record, Status
from trainperf_mlflow.results.study import Calibration
from trainperf_mlflow.results.values import VariantValues


class CandidateComparison(Record):
    """One candidate against the baseline."""

    variant: str
    status: Status
    changed_variable: str | None
    delta: dict[str, float]  # names of the MLflow metrics without "delta/"
    metrics: dict[str, float]
    effect_verified: bool | None
    decision: Decision
    # What the other rule sets say about the same numbers, by policy.
    other_decisions: dict[str, Decision] = Field(default_factory=dict)
    note: str  # gain and cost in words
    pairs: int  # rounds in which both baseline and candidate succeeded
    time: PairedEstimate | None = None  # None where no blocks were measured in pairs
    run_id: str | None = None
    evaluation: Evaluation | None = None  # under a budget
    loss_curve: LossCurve | None = None  # None where no losses are known
    convergence: ConvergenceCheck | None = None  # None where it was not asked for


class Comparison(Record):
    """A study's comparison and decision: ``comparison.json``."""

    schema_version: Literal["trainperf-comparison/v1"] = "trainperf-comparison/v1"
    study_id: str
    study: str
    workload: str
    workload_digest: str
    goal: str | None
    hypothesis: str | None
    policy: str
    thresholds: dict[str, float]
    baseline: VariantValues | None  # None for a probe
    baseline_evaluation: Evaluation | None = None  # the baseline competes under a budget
    candidates: tuple[CandidateComparison, ...]
    best_candidate: str | None  # under a budget also the baseline, or None: no variant keeps it
    decision: Decision
    warnings: tuple[str, ...] = ()
    assessment: Assessment | None = None
    noise: Noise | None = None  # None where no blocks are known
    calibration: Calibration | None = None  # what a study cites, or what a calibration found
    closed: Closed | None = None  # only where it is read back: a closed study's own decision

    @property
    def standing(self) -> Decision:
        """The decision that holds: that of the close, where the study is closed."""
        return self.closed or self.decision

    @property
    def standing_best(self) -> str | None:
        """The candidate that it is about."""
        return self.best_candidate if self.closed is None else self.closed.best_candidate

    def standing_on(self, candidate: CandidateComparison) -> Decision:
        """The decision that holds about one candidate."""
        known = {} if self.closed is None else self.closed.candidates
        return known.get(candidate.variant, candidate.decision)

    def summary(self) -> dict[str, Any]:
        """The object that ``--format json`` prints: at the top level the fields of the decision
        that holds, with the measured one beside it where the study is closed.
        """
        return {
            "schema_version": self.schema_version,
            "study_id": self.study_id,
            "study": self.study,
            "workload": self.workload,
            "workload_digest": self.workload_digest,
            **self.standing.headline(),
            "goal": self.goal,
            "hypothesis": self.hypothesis,
            "thresholds": self.thresholds,
            "best_candidate": self.standing_best,
            "baseline_evaluation": _dumped(self.baseline_evaluation),
            "baseline": _dumped(self.baseline),
            "candidates": [
                {
                    "variant": candidate.variant,
                    "status": candidate.status.value,
                    **self.standing_on(candidate).headline(),
                    "other_decisions": {
                        name: other.model_dump(mode="json")
                        for name, other in candidate.other_decisions.items()
                    },
                    "changed_variable": candidate.changed_variable,
                    "effect_verified": candidate.effect_verified,
                    "delta": candidate.delta,
                    "metrics": candidate.metrics,
                    "note": candidate.note,
                    "direction": candidate.time.direction if candidate.time else None,
                    "time": _dumped(candidate.time),
                    "pairs": candidate.pairs,
                    "run_id": candidate.run_id,
                    "evaluation": _dumped(candidate.evaluation),
                    "loss_curve": _dumped(candidate.loss_curve),
                    "convergence": _dumped(candidate.convergence),
                }
                for candidate in self.candidates
            ],
            "warnings": list(self.warnings),
            "assessment": _dumped(self.assessment),
            "noise": _dumped(self.noise),
            "calibration": _dumped(self.calibration),
            **self._closed_and_measured(),
        }

    def whole(self) -> dict[str, Any]:
        """All of the record, by the decisions that hold, with the measured ones beside them."""
        candidates = tuple(
            candidate.model_copy(update={"decision": self.standing_on(candidate)})
            for candidate in self.candidates
        )
        standing = self.model_copy(
            update={
                "decision": self.standing,
                "best_candidate": self.standing_best,
                "candidates": candidates,
            }
        )
        return {**standing.model_dump(mode="json"), **self._closed_and_measured()}

    def _closed_and_measured(self) -> dict[str, Any]:
        """The label of the close, and what was decided before it."""
        if self.closed is None:
            return {"closed": None, "measured": None}
        measured = {
            **self.decision.model_dump(mode="json"),
            "best_candidate": self.best_candidate,
            "candidates": {c.variant: _dumped(c.decision) for c in self.candidates},
        }
        return {"closed": self.closed.label, "measured": measured}


def _dumped(record: Record | None) -> dict[str, Any] | None:
    return None if record is None else record.model_dump(mode="json")
