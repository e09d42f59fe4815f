"""The eval losses after a longer training, candidate against baseline, paired by seed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from trainperf_mlflow.analysis.sequential import level_per_look
from trainperf_mlflow.analysis.signed_rank import Interval, signed_rank_interval
from trainperf_mlflow.analysis.student import mean_interval
from trainperf_mlflow.results.estimates import ConvergenceCheck
from trainperf_mlflow.results.record import Status
from trainperf_mlflow.results.repeats import Convergence
from trainperf_mlflow.results.values import VariantValues

# Two seeds have an interval that holds nearly everything.
MIN_SEEDS = 3


@dataclass(frozen=True)
class FinalLosses:
    """Candidate - baseline after ``steps`` steps.

    Attributes:
        seeds: for which both have an eval loss.
        interval: None where ``gap`` says why nothing can be told.
        method: of the interval.
        candidates: that share the error of 5 %.
    """

    steps: int
    seeds: int
    interval: Interval | None = None
    method: str | None = None
    candidates: int = 1
    gap: str | None = None


def final_losses(
    baseline: VariantValues,
    candidate: VariantValues,
    other_data: str | None = None,
    candidates: int = 1,
) -> FinalLosses | None:
    """The paired difference; None where no longer training was asked for.

    Args:
        other_data: why the two were evaluated on different data, where they were.
        candidates: of the study: with each more, chance finds one worse or better more often.
    """
    if not baseline.convergence and not candidate.convergence:
        return None
    before, after = _by_seed(baseline), _by_seed(candidate)
    both = sorted(before.keys() & after.keys())
    steps = max(run.steps for run in (*baseline.convergence, *candidate.convergence))
    gap = other_data or _gap(baseline, candidate, len(both))
    if gap is not None:
        return FinalLosses(steps, len(both), gap=gap)
    level = level_per_look(1, candidates)
    interval, method = _interval([after[index] - before[index] for index in both], level)
    return FinalLosses(steps, len(both), interval, method, candidates)


def diverged_alone(baseline: VariantValues, candidate: VariantValues) -> list[Convergence]:
    """The candidate's trainings that diverged with a seed with which the baseline's did not."""
    shared = {run.index for run in baseline.convergence if run.status is Status.DIVERGED}
    return [
        run
        for run in candidate.convergence
        if run.status is Status.DIVERGED and run.index not in shared
    ]


def judged(final: FinalLosses, margin: float) -> ConvergenceCheck:
    """Worse or better by more than the margin, the same within it, or none of these is shown.

    The whole interval must lie there; a bound that equals the margin is within it.
    """
    trained = f"after {final.steps} steps with {final.seeds} seeds"
    if final.interval is None:
        return ConvergenceCheck(
            verdict="not_shown",
            text=f"what longer training leads to is not shown: {final.gap}",
            steps=final.steps,
            seeds=final.seeds,
            margin=margin,
        )
    # Thresholds act exactly, without the last bits that subtraction leaves behind.
    mean, low, high = (round(value, 9) for value in final.interval)
    verdict = _verdict(low, high, margin)
    return ConvergenceCheck(
        verdict=verdict,
        text=(
            f"{trained} the eval loss is {_words(verdict, high, margin)}: {mean:+.4g} "
            f"[{low:+.4g}, {high:+.4g}] (95 %{_shared(final.candidates)}, {final.method})"
        ),
        steps=final.steps,
        seeds=final.seeds,
        margin=margin,
        difference=mean,
        low=low,
        high=high,
        method=final.method,
    )


def with_divergence(
    check: ConvergenceCheck, baseline: VariantValues, candidate: VariantValues
) -> ConvergenceCheck:
    """The check, except that a candidate that diverged alone has diverged, whatever else it did."""
    runs = diverged_alone(baseline, candidate)
    if not runs:
        return check
    seeds = ", ".join(str(run.seed) for run in runs)
    text = (
        f"within {runs[0].steps} steps of training the loss became NaN or infinite with seed "
        f"{seeds}, with which the baseline's did not: {runs[0].error}"
    )
    return check.model_copy(update={"verdict": "diverged", "text": text})


def _verdict(
    low: float, high: float, margin: float
) -> Literal["better", "same", "worse", "not_shown"]:
    if low > margin:
        return "worse"
    if high < -margin:
        return "better"
    return "same" if -margin <= low and high <= margin else "not_shown"


def _words(verdict: str, high: float, margin: float) -> str:
    if verdict == "not_shown":
        if high <= margin:
            return f"not worse by more than {margin:g}, but whether it is the same is not shown"
        return f"not shown to be the same within {margin:g} (more --repeats, more seeds)"
    return f"the same within {margin:g}" if verdict == "same" else f"{verdict} by over {margin:g}"


def _interval(differences: list[float], level: float) -> tuple[Interval, str]:
    ranked = signed_rank_interval(differences, level)
    if math.isfinite(ranked.low):
        return ranked, "signed ranks"
    # So few seeds have no interval of that level by their ranks.
    return mean_interval(differences, level), "Student's t"


def _shared(candidates: int) -> str:
    return f" over {candidates} candidates" if candidates > 1 else ""


def _by_seed(variant: VariantValues) -> Mapping[int, float]:
    return {
        run.index: run.eval_loss
        for run in variant.convergence
        if run.status is Status.OK and run.eval_loss is not None and math.isfinite(run.eval_loss)
    }


def _gap(baseline: VariantValues, candidate: VariantValues, both: int) -> str | None:
    for variant in (baseline, candidate):
        if any(run.status is Status.OK and run.eval_loss is None for run in variant.convergence):
            return f"{variant.name} has no eval loss"
        if any(run.status is Status.OK and not run.quality_checked for run in variant.convergence):
            return f"the eval loss of {variant.name} is not taken on real text"
    if both >= MIN_SEEDS:
        return None
    errors = [
        f"{variant.name}, seed {run.seed}: {run.error or run.status.value}"
        for variant in (baseline, candidate)
        for run in variant.convergence
        if run.status is not Status.OK
    ]
    why = f" ({'; '.join(errors[:2])})" if errors else ""
    return f"{both} seeds succeeded on both sides{why}, and {MIN_SEEDS} are needed"
