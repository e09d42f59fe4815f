"""Which variants keep the budget, and what the others break, for a terminal and a page."""

from __future__ import annotations

from trainperf_mlflow.results.comparison import Comparison


def budget_lines(comparison: Comparison) -> list[str]:
    """One line a variant, the baseline first; nothing where no budget was judged."""
    evaluations = [comparison.baseline_evaluation, *(c.evaluation for c in comparison.candidates)]
    return [f"{item.name} {item.detail}" for item in evaluations if item is not None]
