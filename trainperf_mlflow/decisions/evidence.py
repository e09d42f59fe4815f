"""The evidence guard: a rule reads point values, and this reads how sure they are.

The rule is asked again at both ends of what the intervals allow. What it says at either end is
confirmed; what it says at one of them only is not, and the reason says what would settle it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Literal

from trainperf_mlflow.analysis.compare import compare
from trainperf_mlflow.analysis.paired import advice, more_for
from trainperf_mlflow.analysis.rounds import saved_by_round
from trainperf_mlflow.analysis.sequential import LADDER, PAIRS_PER_PROCESS_PAIR
from trainperf_mlflow.decisions.case import Case
from trainperf_mlflow.decisions.reasons import conclude
from trainperf_mlflow.results.decision import Confidence, Decision
from trainperf_mlflow.results.estimates import PairedEstimate
from trainperf_mlflow.results.values import VariantValues

# Rejects and tunes that rest on gains and costs. All others, as a failure, quality or a budget,
# are not touched.
_NO_GAIN = ("no_meaningful_gain", "no_goal_gain", "no_stable_end_to_end_gain")
_SMALL_GAIN = ("gain_below_thresholds", "goal_gain_below_threshold")
RESTS_ON_GAINS = (
    *_NO_GAIN,
    *_SMALL_GAIN,
    "cost_constraint_broken",
    "resource_gain_below_thresholds",
)
# What more pairs could still change.
OPEN_REASONS = ("gain_not_confirmed", "more_pairs_needed", "measurement_unfit")
# Without an interval the candidate may take half the time or twice as much.
_UNKNOWN_PCT = (-100.0, 50.0)
# An interval that would still be wider than this to either side after the whole ladder makes the
# machine unfit for a verdict, in percent.
_UNFIT_PCT = 5.0
# A count of bytes that was the same twice is taken to be the same again; once says nothing.
_REPEATS_THAT_CONFIRM = 2
_MEMORY = ("peak_mem_mb", "peak_reserved_mb", "host_peak_rss_mb")
_TIME_GOALS = ("step_time_ms", "samples_per_s", "tokens_per_s")

End = Literal["low", "high"]


def with_evidence(
    decision: Decision, decide: Callable[[Case], Decision], case: Case, time: PairedEstimate | None
) -> Decision:
    """A rule's decision in the light of the intervals, with its confidence.

    Args:
        decision: what the rule says on the point values.
        decide: the rule.
        time: what the pairs say; None where no pair was complete.
    """
    if decision.decision != "accept" and decision.reason not in RESTS_ON_GAINS:
        return decision
    worst, best = (decide(_at(case, time, end)) for end in ("low", "high"))
    verdict = _verdict(decision, worst, best, case, time)
    if verdict in OPEN_REASONS and _unfit(time):
        return _concluded("measurement_unfit", decision, "unfit", _unfit_text(time))
    if verdict in OPEN_REASONS:
        more = _more_pairs(case, time)
        known = {} if more is None else {"more_pairs": float(more)}
        decision = decision.model_copy(update={"numbers": decision.numbers | known})
        return _concluded(verdict, decision, "unconfirmed", _open_text(case, time))
    agreed = decision.decision == worst.decision == best.decision
    if case.difference.pairs >= _REPEATS_THAT_CONFIRM:
        certain = agreed or _has_interval(time)
    else:
        certain = _has_interval(time) and _stands_without_memory(decision, decide, case, time)
    if verdict != decision.reason:
        confidence: Confidence = "confirmed" if certain else "unconfirmed"
        return _concluded(verdict, decision, confidence, shown(time))
    sure = certain and (decision.decision != "tune" or agreed)
    return decision.model_copy(
        update={
            "confidence": "confirmed" if sure else "unconfirmed",
            "text": f"{decision.text}; {shown(time) if sure else _open_text(case, time)}",
        }
    )


def _verdict(
    decision: Decision, worst: Decision, best: Decision, case: Case, time: PairedEstimate | None
) -> str:
    """The reason that stands: the rule's own, or one of this guard's."""
    if decision.decision == "accept":
        return decision.reason if worst.decision == "accept" else "gain_not_confirmed"
    if decision.reason == "cost_constraint_broken":
        # A cost is confirmed where also the best end is too dear.
        return decision.reason if best.reason == decision.reason else "more_pairs_needed"
    small_gain_only_by_chance = decision.reason in _SMALL_GAIN and worst.reason in _NO_GAIN
    if decision.reason not in _NO_GAIN and not small_gain_only_by_chance:
        return decision.reason
    if best.decision == "accept" or _passes_in_time(case, time):
        return "more_pairs_needed"
    same = time is not None and time.direction == "same"
    return "no_meaningful_gain" if same or decision.reason in _SMALL_GAIN else decision.reason


def _stands_without_memory(
    decision: Decision, decide: Callable[[Case], Decision], case: Case, time: PairedEstimate | None
) -> bool:
    """Whether the rule would say the same whatever the memory is."""
    ends: tuple[End, ...] = ("low", "high")
    blind = [decide(_at(case, time, end, memory_known=False)) for end in ends]
    return all(made.decision == decision.decision for made in blind)


def _has_interval(time: PairedEstimate | None) -> bool:
    known = time is not None and time.low_pct is not None and time.high_pct is not None
    return known and not (time is not None and time.stalls)


def _passes_in_time(case: Case, time: PairedEstimate | None) -> bool:
    """Whether the interval allows a time gain that the rule calls large enough, whatever else
    it asks for."""
    wanted = case.thresholds.get("min_time_delta_ms")
    times = case.difference.step_time_ms
    return wanted is not None and times is not None and times[0] * _ends(time)[1] / 100 >= wanted


def _at(case: Case, time: PairedEstimate | None, end: End, *, memory_known: bool = True) -> Case:
    """The case as it would be at one end of the intervals; low is the worse one."""
    worse = end == "low"
    metrics = dict(case.candidate.metrics)
    times = case.difference.step_time_ms
    if times is not None and times[1] <= 0:
        # No step takes no time: nothing is known of it at either end.
        for name in _TIME_GOALS:
            metrics.pop(name, None)
    elif times is not None:
        factor = times[0] * (1 - _ends(time)[0 if worse else 1] / 100) / times[1]
        for name, power in (("step_time_ms", 1), ("samples_per_s", -1), ("tokens_per_s", -1)):
            if name in metrics and factor > 0:
                metrics[name] *= factor**power
    for name in _MEMORY:
        before = case.baseline.metrics.get(name)
        if name in metrics and before is not None:
            saved = saved_by_round(case.baseline, case.candidate, name) if memory_known else None
            low, high = saved[1:] if saved else tuple(before * pct / 100 for pct in _UNKNOWN_PCT)
            metrics[name] = max(0.0, before - (low if worse else high))
    candidate = case.candidate.model_copy(update={"metrics": metrics})
    final = case.difference.final
    difference = compare(case.baseline, candidate, 1 if final is None else final.candidates)
    return replace(case, candidate=candidate, difference=difference)


def _ends(time: PairedEstimate | None) -> tuple[float, float]:
    if time is None or time.stalls or time.low_pct is None or time.high_pct is None:
        return _UNKNOWN_PCT
    return time.low_pct, time.high_pct


def _unfit(time: PairedEstimate | None) -> bool:
    if time is None or time.low_pct is None or time.high_pct is None:
        return False
    half = (time.high_pct - time.low_pct) / 2
    measured, most = time.pairs + time.set_aside, LADDER[-1] * PAIRS_PER_PROCESS_PAIR
    return bool(time.stalls) or half * (min(1.0, measured / most)) ** 0.5 > _UNFIT_PCT


# --- in words ----------------------------------------------------------------------------------


def shown(time: PairedEstimate | None) -> str:
    """What the pairs show about time, in words with the interval."""
    if time is None:
        return "no pair of blocks was complete"
    if time.stalls:
        return time.stalls
    processes = (
        "1 process pair" if time.process_pairs == 1 else f"{time.process_pairs} process pairs"
    )
    pairs = f"{time.pairs} pairs of {processes}"
    if time.low_pct is None or time.high_pct is None:
        return f"{pairs} are too few for an interval of time"
    words = {
        "faster": "faster",
        "slower": "slower",
        "same": f"the same within {time.margin_pct:g} %",
        "undecided": "undecided",
    }
    return (
        f"time is {words[time.direction]}: {time.estimate_pct:+.1f} % saved "
        f"[{time.low_pct:+.1f}, {time.high_pct:+.1f}] by {pairs}"
    )


def _open_text(case: Case, time: PairedEstimate | None) -> str:
    if time is None:
        return f"{shown(time)}; measure again"
    nearest = _nearest(case, time)
    if nearest is None:
        return f"{shown(time)}; {time.what_would_settle or 'more repeats would settle it'}"
    return f"{shown(time)}; {advice(more_for(time, nearest), time.pair_s)}"


def _more_pairs(case: Case, time: PairedEstimate | None) -> int | None:
    """How many pairs would settle it; None where that is not known, or none would."""
    nearest = None if time is None else _nearest(case, time)
    if time is None or nearest is None:
        return None if time is None else time.more_pairs
    return more_for(time, nearest)


def _nearest(case: Case, time: PairedEstimate) -> float | None:
    """Of the gains within the interval at which the rule changes its mind the one that stands
    between the estimate and a verdict."""
    low, high = _ends(time)
    crossed = [target for target in _targets(case, time) if low < target < high]
    if time.low_pct is None or not crossed:
        return None
    return min(crossed, key=lambda target: abs(time.estimate_pct - target))


def _targets(case: Case, time: PairedEstimate) -> Iterator[float]:
    """Gains in time, percent, at which the rule changes its mind."""
    limits, times = case.thresholds, case.difference.step_time_ms
    yield 0.0
    if "min_time_delta_ms" in limits and times is not None and times[0] > 0:
        yield limits["min_time_delta_ms"] / times[0] * 100
    if case.goal is not None and case.goal.metric in _TIME_GOALS and "min_gain" in limits:
        yield limits["min_gain"]
    elif "max_cost" in limits:
        yield -limits["max_cost"]


def _unfit_text(time: PairedEstimate | None) -> str:
    if time is not None and time.stalls:
        return f"{time.stalls}; find what stalls, or measure when the machine is quiet"
    return f"this machine is too noisy for a verdict: {shown(time)}; measure when it is quiet"


def _concluded(
    reason: str,
    decision: Decision,
    confidence: Confidence,
    text: str,
) -> Decision:
    made = conclude(
        reason,
        f"{text}; by its point values: {decision.text}",
        decision.policy,
        numbers=decision.numbers,
    )
    return made.model_copy(update={"confidence": confidence})


def measured_in_blocks(variant: VariantValues) -> bool:
    """Whether its repeats hold blocks: an imported study's, or an older one's, do not."""
    return any(repeat.blocks for repeat in variant.repeats)
