"""The rule of course project 75: which variant does a memory budget leave, and is it worth it?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainperf_mlflow.decisions import memory, memory_study

THRESHOLDS = memory_study.thresholds(memory_cap_mb=9600.0, min_samples_per_s=1.0)  # as published

RULES = memory.RuleSet(
    policy="memory-budget",
    accepted="compression_strategy_is_best_feasible_option",
    quality="compression_needs_quality_recovery",
    next_actions={},  # those of the codes
)


def decide_memory_budget(summary: Mapping[str, Any]) -> dict[str, str]:
    """``decision``, ``reason`` and ``next_action`` for a summary of memory strategies.

    The rule of ``decide_memory_strategy``, with the codes and next actions of
    course project 75.

    Raises:
        ValueError: a field is missing or of the wrong kind.
    """
    return memory.decide_summary(summary, RULES)
