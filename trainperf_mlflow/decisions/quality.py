"""What every rule set reads from the eval loss, and how it says so."""

from __future__ import annotations

from trainperf_mlflow.analysis.compare import Difference
from trainperf_mlflow.analysis.convergence import judged

# Worse by more than this on real text is a loss of quality, in every rule set.
MAX_EVAL_LOSS_DELTA = 0.05


def settled(value: float) -> float:
    """A difference without the last bits that subtraction leaves behind.

    Thresholds act exactly at the boundary: 1.05 - 1.0 is 0.05000000000000004 in
    binary, and a loss that is worse by 0.05 is not worse by more than 0.05.
    Nine decimals are far below what any metric resolves.

    >>> settled(1.05 - 1.0) > 0.05
    False
    """
    return round(value, 9)


def eval_loss_excess(difference: Difference, limit: float) -> float | None:
    """By how much the eval loss is worse, where that is more than ``limit``; else None.

    Only eval losses on real text are read: one fixed random batch says nothing about quality.
    What a longer training shows stands above the eval loss after the measured steps.
    """
    if difference.final is not None:
        check = judged(difference.final, limit)
        if check.verdict != "not_shown":
            return check.difference if check.verdict == "worse" else None
    if difference.quality_gap is not None:
        return None
    worse = settled(difference.delta["eval_loss"])
    return worse if worse > limit else None


def quality_text(difference: Difference, limit: float) -> str:
    """What the eval losses say, or that quality was not checked."""
    short = _short_text(difference, limit)
    if difference.final is None:
        return short
    check = judged(difference.final, limit)
    return f"{short}; {check.text}" if check.verdict == "not_shown" else check.text


def _short_text(difference: Difference, limit: float) -> str:
    """Of the eval loss after the measured steps."""
    if difference.quality_gap is not None:
        return f"quality was not checked, because {difference.quality_gap}"
    change = settled(difference.delta["eval_loss"])
    if change == 0:
        return "the eval loss is the same"
    if change < 0:
        return f"the eval loss is lower by {-change:.4g}"
    return f"the eval loss is higher by {change:.4g} (at most {limit:g} allowed)"
