"""The names that a plan can choose from: goals and rule sets."""

from __future__ import annotations

from types import MappingProxyType

from trainperf_mlflow.decisions import goal, training
from trainperf_mlflow.decisions.case import GoalMetric, Policy

GOALS: MappingProxyType[str, GoalMetric] = MappingProxyType(
    {
        "step_time": GoalMetric("step_time_ms", "lower"),
        "samples_per_s": GoalMetric("samples_per_s", "higher"),
        "tokens_per_s": GoalMetric("tokens_per_s", "higher"),
        "peak_mem": GoalMetric("peak_mem_mb", "lower"),
        "peak_reserved": GoalMetric("peak_reserved_mb", "lower"),
        "host_peak_rss": GoalMetric("host_peak_rss_mb", "lower"),
        "eval_loss": GoalMetric("eval_loss", "lower"),
    }
)

POLICIES: MappingProxyType[str, Policy] = MappingProxyType(
    {
        "training": Policy(
            "training",
            MappingProxyType(
                {
                    "min_time_delta_ms": 10.0,
                    "min_memory_delta_mb": 512.0,
                    "max_eval_loss_delta": 0.05,
                }
            ),
            training.decide,
        ),
        "goal": Policy(
            "goal",
            MappingProxyType({"min_gain": 5.0, "max_cost": 5.0, "max_eval_loss_delta": 0.05}),
            goal.decide,
        ),
    }
)
