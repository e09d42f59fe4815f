"""Whether a change still learns as well, in lines."""

from __future__ import annotations

from trainperf_mlflow.results.comparison import Comparison


def loss_lines(comparison: Comparison) -> list[str]:
    """What training losses and longer training show of each candidate, as far as it is known."""
    return [
        f"{item.variant}: {known.text}"
        for item in comparison.candidates
        for known in (item.loss_curve, item.convergence)
        if known is not None
    ]


def how_to_ask(comparison: Comparison) -> list[str]:
    """How to learn what longer training leads to, where nobody has asked and one could."""
    baseline = comparison.baseline
    measured_here = any(item.time is not None for item in comparison.candidates)
    asked = any(item.convergence is not None for item in comparison.candidates)
    if asked or not measured_here or baseline is None or not baseline.quality_checked:
        return []
    return [
        "Whether longer training ends as well was not asked; measure with --convergence-steps N "
        "to know."
    ]
