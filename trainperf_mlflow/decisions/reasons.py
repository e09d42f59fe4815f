"""The reason codes: each stands for one decision and what to do next."""

from __future__ import annotations

from types import MappingProxyType
from typing import Literal, NamedTuple

from trainperf_mlflow.results import Decision


class Reason(NamedTuple):
    decision: Literal["accept", "tune", "reject", "measure"]
    next_action: str


# Codes are stable: they are searched for in MLflow and read by other programs.
REASONS: MappingProxyType[str, Reason] = MappingProxyType(
    {
        # training
        "time_and_memory_gains_met": Reason("accept", "keep_change"),
        "gain_below_thresholds": Reason("tune", "tune_change_and_measure_again"),
        "no_meaningful_gain": Reason("reject", "restore_baseline"),
        "eval_loss_worse": Reason("tune", "recover_quality_or_train_longer"),
        # goal
        "goal_met": Reason("accept", "keep_change"),
        "goal_gain_below_threshold": Reason("tune", "tune_change_and_measure_again"),
        "no_goal_gain": Reason("reject", "restore_baseline"),
        "cost_constraint_broken": Reason("reject", "restore_baseline"),
        "eval_loss_constraint_broken": Reason("reject", "restore_baseline"),
        "goal_not_measured": Reason("tune", "measure_goal_metric"),
        # what holds before and above any rule
        "candidate_oom": Reason("reject", "reduce_memory_of_candidate"),
        "candidate_failed": Reason("reject", "fix_candidate_error"),
        "candidate_timeout": Reason("reject", "raise_max_time_or_shrink_workload"),
        "candidate_diverged": Reason("reject", "fix_divergence"),
        "candidate_unsupported": Reason("reject", "use_setting_that_device_supports"),
        "step_time_not_measured": Reason("tune", "measure_again"),
        "change_without_effect": Reason("tune", "check_that_the_setting_takes_effect"),
        "repeats_failed": Reason("tune", "fix_failed_repeats_and_measure_again"),
        # a probe
        "nothing_to_compare": Reason("measure", "measure_baseline_and_compare"),
    }
)


def conclude(reason: str, text: str, policy: str) -> Decision:
    """The decision that a reason code stands for; a reject asks to roll the change back."""
    decision, next_action = REASONS[reason]
    return Decision(
        decision=decision,
        reason=reason,
        text=text,
        next_action=next_action,
        rollback=decision == "reject",
        policy=policy,
    )
