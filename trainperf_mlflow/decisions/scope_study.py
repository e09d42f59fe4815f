"""A ladder of lengths as it was measured, and its verdict within the scope of activation memory."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from trainperf_mlflow.decisions.activation_scope import ActivationScope
from trainperf_mlflow.decisions.reasons import conclude
from trainperf_mlflow.results.decision import Decision
from trainperf_mlflow.results.record import Record

POLICY = "activation-scope"


class Rung(Record):
    """One length: predicted, measured, or where the ladder stopped."""

    seq_len: int
    study_id: str | None = None  # None: not measured, the prediction stopped before it
    predicted_mb: dict[str, float] = Field(default_factory=dict)  # by variant
    status: dict[str, str] = Field(default_factory=dict)  # by variant
    successful_runs: dict[str, int] = Field(default_factory=dict)
    peak_mem_mb: dict[str, float] = Field(default_factory=dict)
    delta: dict[str, float] = Field(default_factory=dict)
    pairs: int = 0


class Scope(Record):
    """The answer of a ladder; never one about full training."""

    schema_version: Literal["trainperf-scope/v1"] = "trainperf-scope/v1"
    study_id: str  # the run of the ladder
    name: str
    rungs: tuple[Rung, ...]
    stopped: str | None  # at the safety boundary: where and why; None: it was not reached
    verdict: ActivationScope
    decision: Decision

    def summary(self) -> dict[str, Any]:
        """The object that ``--format json`` prints: the decision's fields at the top level."""
        length = self.verdict.comparison_seq_len
        rung = next(rung for rung in self.rungs if rung.seq_len == length)
        return {
            "schema_version": self.schema_version,
            "study_id": self.study_id,
            "study": self.name,
            **self.decision.headline(),
            "best_candidate": "checkpoint",
            "candidates": [
                {
                    "variant": "checkpoint",
                    "status": rung.status["checkpoint"],
                    **self.decision.headline(),
                    "delta": rung.delta,
                    "pairs": rung.pairs,
                }
            ],
            "verdict": self.verdict.model_dump(mode="json"),
            "rungs": [item.model_dump(mode="json") for item in self.rungs],
            "stopped": self.stopped,
        }


def scope_decision(verdict: ActivationScope) -> Decision:
    """The verdict as a decision: accept stands for ``accept_for_activation_memory_scope``."""
    numbers = {
        "memory_saving_mb": verdict.metrics.memory_saving_mb,
        "throughput_ratio": verdict.metrics.throughput_ratio,
        "loss_delta": verdict.metrics.loss_delta,
    }
    text = (
        f"at seq_len {verdict.comparison_seq_len} checkpoint saves "
        f"{verdict.metrics.memory_saving_mb:.2f} MiB "
        f"(at least {verdict.gates['minimum_memory_saving_mb']:g} wanted), keeps "
        f"{verdict.metrics.throughput_ratio:.1%} of the throughput "
        f"(at least {verdict.gates['minimum_throughput_ratio']:.0%} wanted), and the loss differs "
        f"by {verdict.metrics.loss_delta:.4g} "
        f"(at most {verdict.gates['maximum_loss_delta']:g} allowed); "
        "this holds within the scope of activation memory only"
    )
    return conclude(verdict.reason, text, POLICY, numbers={**numbers, **verdict.gates})
