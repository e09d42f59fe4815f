"""What holds whatever a rule would say: a candidate that did not run is not judged by its speed."""

from __future__ import annotations

from trainperf_mlflow.analysis.compare import Difference, measured
from trainperf_mlflow.analysis.convergence import diverged_alone, judged
from trainperf_mlflow.decisions.outcomes import failed_repeats, first_error, has_ok_repeat
from trainperf_mlflow.decisions.reasons import REASONS, conclude
from trainperf_mlflow.results.decision import Decision
from trainperf_mlflow.results.record import Status
from trainperf_mlflow.results.repeats import Convergence
from trainperf_mlflow.results.values import VariantValues

_WORDS = {
    Status.OOM: "ran out of memory",
    Status.FAILED: "failed",
    Status.TIMEOUT: "did not finish in time",
    Status.DIVERGED: "diverged (its loss is NaN or infinite)",
    Status.UNSUPPORTED: "is not supported by this device",
}


def before_rule(
    baseline: VariantValues,
    candidate: VariantValues,
    difference: Difference,
    policy: str,
    *,
    reads_time: bool = True,
) -> Decision | None:
    """The decision on a candidate that no rule can judge, or None.

    Args:
        reads_time: the rule cannot judge a candidate without a step time.
    """
    if not has_ok_repeat(candidate):
        status = candidate.status if candidate.status is not Status.OK else Status.FAILED
        error = first_error(candidate) or (None if candidate.repeats else "no repeat of it ran")
        text = f"the candidate {_WORDS[status]}" + (f": {error}" if error else "")
        return conclude(f"candidate_{status.value}", text, policy)
    bad = [
        f"{key} = {candidate.metrics[key]:g}"
        for key in ("loss", "eval_loss")
        if key in candidate.metrics and measured(candidate.metrics, key) is None
    ]
    if bad:
        text = f"the candidate {_WORDS[Status.DIVERGED]}: {', '.join(bad)}"
        return conclude("candidate_diverged", text, policy)
    diverged = diverged_alone(baseline, candidate)
    if diverged:
        return conclude("candidate_diverged", _diverged_text(diverged), policy)
    if candidate.effect_verified is False:
        # No verdict on the change itself: it was never in effect, so nothing was tried.
        detail = f" ({candidate.effect_detail})" if candidate.effect_detail else ""
        text = f"the change was not in effect{detail}, so what was measured says nothing about it"
        return conclude("change_without_effect", text, policy)
    if reads_time and difference.step_time_ms is None:
        text = "step_time_ms is missing on one side, so nothing can be compared"
        return conclude("step_time_not_measured", text, policy)
    return None


def _diverged_text(runs: list[Convergence]) -> str:
    seeds = ", ".join(str(run.seed) for run in runs)
    return (
        f"the candidate {_WORDS[Status.DIVERGED]} within {runs[0].steps} steps of training with "
        f"seed {seeds}, with which the baseline did not: {runs[0].error}"
    )


def after_rule(
    decision: Decision, candidate: VariantValues, difference: Difference, margin: float
) -> Decision:
    """A rule's decision, except that a candidate of which repeats failed, or which longer
    training shows to be worse by more than the margin, is never accepted.

    The evidence guard, which reads the intervals, follows this one.
    """
    if decision.decision != "accept":
        return decision
    check = None if difference.final is None else judged(difference.final, margin)
    if check is not None and check.verdict == "worse":
        text = f"{REASONS['eval_loss_worse'].en}: {check.text}; without it: {decision.text}"
        return conclude("eval_loss_worse", text, decision.policy, numbers=decision.numbers)
    failed = failed_repeats(candidate)
    if not failed:
        return decision
    error = first_error(candidate)
    text = (
        f"{failed} of {len(candidate.repeats)} repeats did not succeed"
        + (f" ({error})" if error else "")
        + f"; what succeeded: {decision.text}"
    )
    return conclude("repeats_failed", text, decision.policy)
