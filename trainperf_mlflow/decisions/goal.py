"""The rule for a change with a goal: enough of a gain there, and nothing else paid too much.

Accept when the goal's relative gain is at least ``min_gain`` percent; reject
when there is no gain, when time or peak memory got worse by more than
``max_cost`` percent, or the eval loss by more than ``max_eval_loss_delta``;
else tune. A value that equals its threshold passes.
"""

from __future__ import annotations

from types import MappingProxyType

from trainperf_mlflow.analysis.compare import measured, relative_gain
from trainperf_mlflow.decisions.case import Case, GoalMetric
from trainperf_mlflow.decisions.quality import eval_loss_excess, quality_text, settled
from trainperf_mlflow.decisions.reasons import conclude
from trainperf_mlflow.errors import MeasurementError
from trainperf_mlflow.results.decision import Decision

GOALS: MappingProxyType[str, GoalMetric] = MappingProxyType(
    {
        "step_time": GoalMetric("step_time_ms", "lower"),
        "samples_per_s": GoalMetric("samples_per_s", "higher"),
        "tokens_per_s": GoalMetric("tokens_per_s", "higher"),
        "peak_mem": GoalMetric("peak_mem_mb", "lower"),
        "peak_reserved": GoalMetric("peak_reserved_mb", "lower"),
        "host_peak_rss": GoalMetric("host_peak_rss_mb", "lower"),
        "eval_loss": GoalMetric("eval_loss", "lower"),
    }
)

# What else must not get worse, and for which goals it would only say the same again.
_CONSTRAINTS = {
    "step_time_pct": ("time", {"step_time_ms", "samples_per_s", "tokens_per_s"}),
    "peak_mem_pct": ("peak memory", {"peak_mem_mb"}),
}
# A gain that is further from that of the means is the pairs'.
_BY_PAIRS_PCT = 1e-6
_FROM_ALLOCATOR = {"peak_mem_mb", "peak_reserved_mb"}


def refuse_unmeasurable(goal: str | None, device: str) -> None:
    """Tell before the first step that a goal has no number on this device.

    Raises:
        MeasurementError: only an accelerator's allocator reserves memory.
    """
    if goal == "peak_reserved" and device.split(":")[0] == "cpu":
        raise MeasurementError(
            "the goal peak_reserved has no number on cpu, where no allocator reserves memory; "
            "take the goal peak_mem or host_peak_rss, or measure on an accelerator"
        )


def goal_gain(case: Case) -> float | None:
    """The relative gain in the goal's metric, in percent of the baseline.

    None where it was not measured on both sides, in different ways, or where
    the eval loss says nothing about quality.
    """
    if case.goal is None:
        return None
    metric, better = case.goal
    if metric == "step_time_ms":  # for the same number of samples
        return case.difference.delta.get("step_time_pct")
    if metric in _FROM_ALLOCATOR and (
        case.baseline.peak_mem_source != case.candidate.peak_mem_source
    ):
        return None
    if metric == "eval_loss" and case.difference.quality_gap is not None:
        return None
    before = measured(case.baseline.metrics, metric)
    after = measured(case.candidate.metrics, metric)
    return None if before is None or after is None else relative_gain(before, after, better)


def decide(case: Case) -> Decision:
    """The rule on a study's candidate.

    Raises:
        ValueError: the case has no goal.
    """
    if case.goal is None:
        raise ValueError(f"the policy 'goal' needs a goal; known: {', '.join(GOALS)}")
    gain = goal_gain(case)
    if gain is None:
        text = (
            f"{case.goal.metric} was not measured in the same way on both sides, so whether the "
            f"goal is met is not known; {_other_text(case)}"
        )
        return conclude("goal_not_measured", text, "goal", numbers=case.thresholds)
    gain = settled(gain)
    wanted = case.thresholds["min_gain"]
    broken = _broken_costs(case)
    if gain <= 0:
        reason, verdict = "no_goal_gain", "no gain where one was wanted"
    elif _broken_quality(case):
        reason, verdict = "eval_loss_constraint_broken", "the eval loss got worse by too much"
    elif broken:
        reason = "cost_constraint_broken"
        verdict = f"the gain costs too much {' and '.join(broken)}"
    elif gain >= wanted:
        reason, verdict = "goal_met", "the goal is met and no constraint is broken"
    else:
        reason, verdict = "goal_gain_below_threshold", "a gain, but a small one"
    text = f"{verdict}: {_gain_text(case, gain)}; {_other_text(case)}"
    numbers = {"gain_pct": gain, **case.thresholds}
    return conclude(reason, text, "goal", numbers=numbers)


def _broken_quality(case: Case) -> bool:
    is_goal = case.goal is not None and case.goal.metric == "eval_loss"
    limit = case.thresholds["max_eval_loss_delta"]
    return not is_goal and eval_loss_excess(case.difference, limit) is not None


def _constraints(case: Case) -> dict[str, tuple[str, float | None]]:
    """Key -> words and relative gain (percent; None: not measured) of what must not get worse."""
    metric = case.goal.metric if case.goal else ""
    return {
        key: (words, case.difference.delta.get(key))
        for key, (words, twins) in _CONSTRAINTS.items()
        if metric not in twins
    }


def _broken_costs(case: Case) -> list[str]:
    limit = case.thresholds["max_cost"]
    return [
        words
        for words, gain in _constraints(case).values()
        if gain is not None and settled(-gain) > limit
    ]


def _gain_text(case: Case, gain: float) -> str:
    metric = case.goal.metric if case.goal else ""
    if metric == "step_time_ms" and case.difference.step_time_ms is not None:
        before, after = case.difference.step_time_ms
    else:
        before, after = case.baseline.metrics[metric], case.candidate.metrics[metric]
    same_work = " for the same samples" if metric == "step_time_ms" else ""
    work = same_work if case.difference.per_sample else ""
    by_means = relative_gain(before, after, case.goal.better) if case.goal else None
    if metric == "step_time_ms" and by_means is not None and abs(by_means - gain) > _BY_PAIRS_PCT:
        work += " (plain means); by the pairs measured side by side it"
    better = f"{gain:.4g} % better" if gain > 0 else f"{-gain:.4g} % worse" if gain else "the same"
    return (
        f"{metric} {before:.6g} -> {after:.6g}{work} is {better} "
        f"(at least {case.thresholds['min_gain']:g} % wanted)"
    )


def _other_text(case: Case) -> str:
    limit = case.thresholds["max_cost"]
    parts = []
    for words, gain in _constraints(case).values():
        if gain is None:
            parts.append(f"{words} could not be compared")
        elif settled(gain) < 0:
            parts.append(f"costs {-gain:.4g} % in {words} (at most {limit:g} % allowed)")
        else:
            parts.append(f"saves {gain:.4g} % of {words}")
    if case.goal is None or case.goal.metric != "eval_loss":
        parts.append(quality_text(case.difference, case.thresholds["max_eval_loss_delta"]))
    return "; ".join(parts)
