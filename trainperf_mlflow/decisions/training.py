"""The rule of course project 73: keep what saves both time and memory.

Accept when the time gain is at least 10 ms and the memory gain at least 512
MiB; otherwise tune when either improved at all; otherwise reject.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict

from trainperf_mlflow.decisions.case import Case
from trainperf_mlflow.decisions.numbers import flag, number
from trainperf_mlflow.decisions.quality import eval_loss_excess, quality_text
from trainperf_mlflow.decisions.reasons import REASONS, conclude
from trainperf_mlflow.results.decision import Decision

MIN_TIME_DELTA_MS = 10.0
MIN_MEMORY_DELTA_MB = 512.0


class TrainingSummary(TypedDict):
    """Baseline - tuned: a positive delta means faster, or less memory."""

    step_time_delta_ms: float
    peak_mem_delta_mb: float
    time_improved: bool
    memory_improved: bool


class PairedTrainingSummary(TrainingSummary):
    """What the report of a paired measurement adds."""

    time_improvement_pct: float
    memory_improvement_pct: float
    meaningful_memory_improved: bool


def summarize_training_result(
    base_metrics: Mapping[str, Any], tuned_metrics: Mapping[str, Any]
) -> TrainingSummary:
    """Differences in ``step_time_ms`` and ``peak_mem_mb`` between baseline and tuned.

    Deltas are rounded to 2 decimals, the improved flags read the unrounded ones.

    Raises:
        ValueError: a field is missing or no finite number.

    >>> summarize_training_result(
    ...     {"step_time_ms": 50.0, "peak_mem_mb": 900.0},
    ...     {"step_time_ms": 41.5, "peak_mem_mb": 950.0})["step_time_delta_ms"]
    8.5
    """
    time_delta, memory_delta = _deltas(base_metrics, tuned_metrics)
    return TrainingSummary(
        step_time_delta_ms=round(time_delta, 2),
        peak_mem_delta_mb=round(memory_delta, 2),
        time_improved=time_delta > 0,
        memory_improved=memory_delta > 0,
    )


def summarize_paired_training_result(
    base_metrics: Mapping[str, Any],
    tuned_metrics: Mapping[str, Any],
    min_memory_delta_mb: float = MIN_MEMORY_DELTA_MB,
) -> PairedTrainingSummary:
    """The summary with percentages of the baseline and whether the memory gain is meaningful.

    Percentages are rounded to 2 decimals; ``meaningful_memory_improved`` reads
    the unrounded memory delta.

    Raises:
        ValueError: a field is missing or no finite number, or a baseline value is not positive.
    """
    summary = summarize_training_result(base_metrics, tuned_metrics)
    time_delta, memory_delta = _deltas(base_metrics, tuned_metrics)
    threshold = number({"min_memory_delta_mb": min_memory_delta_mb}, "min_memory_delta_mb")
    return PairedTrainingSummary(
        **summary,
        time_improvement_pct=_percent_of(base_metrics, "step_time_ms", time_delta),
        memory_improvement_pct=_percent_of(base_metrics, "peak_mem_mb", memory_delta),
        meaningful_memory_improved=memory_delta >= threshold,
    )


def recommend_training_decision(
    summary: Mapping[str, Any],
    min_time_delta_ms: float = MIN_TIME_DELTA_MS,
    min_memory_delta_mb: float = MIN_MEMORY_DELTA_MB,
) -> dict[str, str]:
    """``decision`` (accept, tune or reject) and ``reason`` (a code) for a summary.

    Both gains reach their threshold: accept. One of them is positive: tune.
    Else: reject. A gain that equals its threshold reaches it.

    Raises:
        ValueError: a field is missing or of the wrong kind.

    >>> recommend_training_decision({"step_time_delta_ms": 3.0, "peak_mem_delta_mb": -80.0,
    ...                              "time_improved": True, "memory_improved": False})
    {'decision': 'tune', 'reason': 'gain_below_thresholds'}
    """
    thresholds = {
        "min_time_delta_ms": min_time_delta_ms,
        "min_memory_delta_mb": min_memory_delta_mb,
    }
    time_gain = number(summary, "step_time_delta_ms", "summary")
    memory_gain = number(summary, "peak_mem_delta_mb", "summary")
    improved = [flag(summary, key, "summary") for key in ("time_improved", "memory_improved")]
    enough_time = time_gain >= number(thresholds, "min_time_delta_ms")
    enough_memory = memory_gain >= number(thresholds, "min_memory_delta_mb")
    if enough_time and enough_memory:
        reason = "time_and_memory_gains_met"
    elif any(improved):
        reason = "gain_below_thresholds"
    else:
        reason = "no_meaningful_gain"
    return {"decision": REASONS[reason].decision, "reason": reason}


def decide(case: Case) -> Decision:
    """The rule on a study's candidate; means are rounded to 3 decimals first, as in the source.

    Memory that was not measured, or in different ways, counts as no gain. An
    eval loss that is worse by more than ``max_eval_loss_delta`` turns an accept
    into tune.
    """
    difference, limits = case.difference, case.thresholds
    base_time, tuned_time = difference.step_time_ms or (0.0, 0.0)
    base_memory = tuned_memory = 0.0
    if difference.memory_gap is None:
        base_memory = case.baseline.metrics["peak_mem_mb"]
        tuned_memory = case.candidate.metrics["peak_mem_mb"]
    summary = summarize_training_result(
        {"step_time_ms": round(base_time, 3), "peak_mem_mb": round(base_memory, 3)},
        {"step_time_ms": round(tuned_time, 3), "peak_mem_mb": round(tuned_memory, 3)},
    )
    reason = recommend_training_decision(
        summary, limits["min_time_delta_ms"], limits["min_memory_delta_mb"]
    )["reason"]
    excess = eval_loss_excess(difference, limits["max_eval_loss_delta"])
    if reason == "time_and_memory_gains_met" and excess is not None:
        reason = "eval_loss_worse"
    numbers = {
        "step_time_delta_ms": summary["step_time_delta_ms"],
        "peak_mem_delta_mb": summary["peak_mem_delta_mb"],
        **limits,
    }
    return conclude(reason, _text(reason, summary, case), "training", numbers=numbers)


def _text(reason: str, summary: TrainingSummary, case: Case) -> str:
    difference, limits = case.difference, case.thresholds
    work = " for the baseline's samples" if difference.per_sample else ""
    memory = (
        f"memory gain {summary['peak_mem_delta_mb']:.2f} MiB "
        f"(at least {limits['min_memory_delta_mb']:g} wanted)"
        if difference.memory_gap is None
        else f"{difference.memory_gap}, which counts as no gain"
    )
    return (
        f"{REASONS[reason].en}: time gain {summary['step_time_delta_ms']:.2f} ms{work} "
        f"(at least {limits['min_time_delta_ms']:g} wanted), {memory}; "
        f"{quality_text(difference, limits['max_eval_loss_delta'])}"
    )


def _deltas(base: Mapping[str, Any], tuned: Mapping[str, Any]) -> tuple[float, float]:
    time_delta, memory_delta = (
        number(base, key, "base_metrics") - number(tuned, key, "tuned_metrics")
        for key in ("step_time_ms", "peak_mem_mb")
    )
    return time_delta, memory_delta


def _percent_of(base: Mapping[str, Any], key: str, delta: float) -> float:
    before = number(base, key, "base_metrics")
    if before <= 0:
        raise ValueError(
            f"base_metrics: {key} is {before:g}, of which no percentage can be taken; "
            "give a measured, positive value"
        )
    return round(delta / before * 100, 2)
