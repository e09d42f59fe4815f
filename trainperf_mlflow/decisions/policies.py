"""The names that a plan can choose from: goals and rule sets."""

from __future__ import annotations

from functools import partial
from types import MappingProxyType

from trainperf_mlflow.decisions import (
    goal,
    memory_budget,
    memory_strategy,
    memory_study,
    optimization,
    training,
)
from trainperf_mlflow.decisions.case import Policy
from trainperf_mlflow.decisions.goal import GOALS
from trainperf_mlflow.decisions.quality import MAX_EVAL_LOSS_DELTA

__all__ = ["GOALS", "POLICIES"]

POLICIES: MappingProxyType[str, Policy] = MappingProxyType(
    {
        "training": Policy(
            name="training",
            thresholds=MappingProxyType(
                {
                    "min_time_delta_ms": training.MIN_TIME_DELTA_MS,
                    "min_memory_delta_mb": training.MIN_MEMORY_DELTA_MB,
                    "max_eval_loss_delta": MAX_EVAL_LOSS_DELTA,
                }
            ),
            decide=training.decide,
        ),
        "goal": Policy(
            name="goal",
            thresholds=MappingProxyType(
                {"min_gain": 5.0, "max_cost": 5.0, "max_eval_loss_delta": MAX_EVAL_LOSS_DELTA}
            ),
            decide=goal.decide,
            needs_goal=True,
        ),
        "optimization": Policy(
            name="optimization",
            thresholds=MappingProxyType(
                {
                    "min_time_delta_ms": optimization.MIN_TIME_DELTA_MS,
                    "min_memory_delta_mb": optimization.MIN_MEMORY_DELTA_MB,
                    "min_throughput_delta": optimization.MIN_THROUGHPUT_DELTA,
                    "max_eval_loss_delta": MAX_EVAL_LOSS_DELTA,
                }
            ),
            decide=optimization.decide,
        ),
        # Without the user's own budget, a verdict on it would only confuse.
        "memory-strategy": Policy(
            name="memory-strategy",
            thresholds=memory_strategy.THRESHOLDS,
            optional=memory_study.OPTIONAL_THRESHOLDS,
            decide=partial(memory_study.decide_candidate, rules=memory_strategy.RULES),
            choose=partial(memory_study.choose, rules=memory_strategy.RULES),
            reads_time=False,
            aside=False,
        ),
        "memory-budget": Policy(
            name="memory-budget",
            thresholds=memory_budget.THRESHOLDS,
            optional=memory_study.OPTIONAL_THRESHOLDS,
            decide=partial(memory_study.decide_candidate, rules=memory_budget.RULES),
            choose=partial(memory_study.choose, rules=memory_budget.RULES),
            reads_time=False,
            aside=False,
        ),
    }
)
