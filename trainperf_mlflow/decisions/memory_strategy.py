"""The rule of course project 76: is a memory strategy the best variant, and worth its cost?"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from trainperf_mlflow.decisions import memory, memory_study

# The budget of the published measurement, on a device of 12 GB.
THRESHOLDS = memory_study.thresholds(memory_cap_mb=11200.0, min_samples_per_s=1.0)

RULES = memory.RuleSet(
    policy="memory-strategy",
    accepted="strategy_is_best_feasible_option",
    quality="strategy_needs_quality_recovery",
    next_actions=MappingProxyType(
        {
            "no_strategy_meets_budget_and_quality": "rework_checkpoint_or_offload_scope",
            "memory_saving_below_meaningful_threshold": "test_pressure_or_offload_scope",
            "throughput_loss_exceeds_budget": "reduce_checkpoint_or_offload_scope",
            "baseline_still_best_under_current_budget": "revisit_strategy_mix",
        }
    ),
)


def decide_memory_strategy(summary: Mapping[str, Any]) -> dict[str, str]:
    """``decision``, ``reason`` and ``next_action`` for a summary of memory strategies.

    Nothing feasible: reject. The best is checkpoint, offload or hybrid, saves at
    least ``min_memory_saving_mb`` and keeps ``min_throughput_ratio``: accept.
    Else tune, with the first of: a variant over the loss limit, too little
    saved, too little throughput, no strategy is best.

    Raises:
        ValueError: a field is missing or of the wrong kind.
    """
    return memory.decide_summary(summary, RULES)
