"""What every rule set reads from the eval loss, and how it says so."""

from __future__ import annotations

from trainperf_mlflow.analysis.compare import Difference


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
    """
    if difference.quality_gap is not None:
        return None
    worse = settled(difference.delta["eval_loss"])
    return worse if worse > limit else None


def quality_text(difference: Difference, limit: float) -> str:
    """What the eval losses say, or that quality was not checked."""
    if difference.quality_gap is not None:
        return f"quality was not checked, because {difference.quality_gap}"
    change = settled(difference.delta["eval_loss"])
    if change == 0:
        return "the eval loss is the same"
    if change < 0:
        return f"the eval loss is lower by {-change:.4g}"
    return f"the eval loss is higher by {change:.4g} (at most {limit:g} allowed)"
