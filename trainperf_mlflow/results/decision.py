"""What was decided, of a candidate, under a budget, and at a study's close."""

from __future__ import annotations

from typing import Any, Final, Literal, get_args

from pydantic import Field

from trainperf_mlflow.results.record import Record

Confidence = Literal["confirmed", "unconfirmed", "unfit"]
# The least sure first.
SURENESS: Final[tuple[Confidence, ...]] = get_args(Confidence)[::-1]
_HEADLINE: Final = {
    "decision",
    "reason",
    "text",
    "next_action",
    "rollback",
    "policy",
    "confidence",
}


class Decision(Record):
    """accept, tune, reject, or measure (a probe), with what follows from it."""

    decision: Literal["accept", "tune", "reject", "measure"]
    reason: str  # a stable snake_case code
    text: str  # the reason in words, with the numbers that decided
    next_action: str
    rollback: bool
    policy: str
    # The numbers that decided, thresholds included, by their names.
    numbers: dict[str, float] = Field(default_factory=dict)
    # Only intervals can confirm; a rule on point values alone stays unconfirmed.
    confidence: Confidence = "unconfirmed"

    def headline(self) -> dict[str, Any]:
        """Its fields as every summary tells them, without the numbers."""
        return self.model_dump(mode="json", include=_HEADLINE)


class Evaluation(Record):
    """One variant under a budget.

    ``reasons`` are the limits that it breaks (``memory_over_budget``,
    ``throughput_below_floor``, ``quality_over_floor``), or why it cannot be judged.
    """

    name: str
    status: Literal["feasible", "rejected", "oom", "invalid"]
    reasons: tuple[str, ...] = ()
    detail: str  # the same in words, with the numbers
    reserved_over_cap: bool = False  # what the allocator reserved does not fit the cap


class Closed(Decision):
    """How a study was closed: the decision that stands, beside the one that was measured."""

    label: str
    best_candidate: str | None = None
    candidates: dict[str, Decision] = Field(default_factory=dict)  # by variant
