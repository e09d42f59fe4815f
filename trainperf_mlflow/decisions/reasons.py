"""The reason codes: each stands for one decision, what to do next, and a sentence."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple

from trainperf_mlflow.results.decision import Decision

Language = Literal["en", "zh"]


class Reason(NamedTuple):
    decision: Literal["accept", "tune", "reject", "measure"]
    next_action: str
    en: str
    zh: str


# Codes are stable: they are searched for in MLflow and read by other programs.
REASONS: MappingProxyType[str, Reason] = MappingProxyType(
    {
        # training
        "time_and_memory_gains_met": Reason(
            "accept", "keep_change", "both gains reach their thresholds", "时间与显存收益均达到阈值"
        ),
        "gain_below_thresholds": Reason(
            "tune",
            "tune_change_and_measure_again",
            "something improved, but not both gains reach their thresholds",
            "有指标变好，但两项收益未能同时达到阈值",
        ),
        "no_meaningful_gain": Reason(
            "reject", "restore_baseline", "neither time nor memory improved", "时间与显存都没有变好"
        ),
        "eval_loss_worse": Reason(
            "tune",
            "recover_quality_or_train_longer",
            "the gains reach their thresholds, but the eval loss got worse",
            "收益达到阈值，但验证损失变差",
        ),
        # goal
        "goal_met": Reason(
            "accept",
            "keep_change",
            "the goal is met and no constraint is broken",
            "目标达成，且没有违反任何约束",
        ),
        "goal_gain_below_threshold": Reason(
            "tune", "tune_change_and_measure_again", "a gain, but a small one", "有收益，但幅度不足"
        ),
        "no_goal_gain": Reason(
            "reject", "restore_baseline", "no gain where one was wanted", "目标指标没有收益"
        ),
        "cost_constraint_broken": Reason(
            "reject", "restore_baseline", "the gain costs too much", "为收益付出的代价过大"
        ),
        "eval_loss_constraint_broken": Reason(
            "reject",
            "restore_baseline",
            "the eval loss got worse by too much",
            "验证损失变差的幅度超出允许范围",
        ),
        "goal_not_measured": Reason(
            "tune",
            "measure_goal_metric",
            "whether the goal is met is not known",
            "目标指标没有可比的测量值，无法判断",
        ),
        # optimization
        "time_and_resource_gains_met": Reason(
            "accept",
            "keep_change",
            "the time gain and a gain in memory or throughput reach their thresholds",
            "时间收益达到阈值，显存与吞吐中也有一项达到阈值",
        ),
        "resource_gain_below_thresholds": Reason(
            "tune",
            "tune_change_and_measure_again",
            "the time gain reaches its threshold, but those in memory and throughput are too small",
            "时间收益达到阈值，但显存和吞吐的收益偏小",
        ),
        "no_stable_end_to_end_gain": Reason(
            "reject",
            "restore_baseline_or_locate_bottleneck_again",
            "no gain end to end that could be kept",
            "端到端没有值得保留的收益",
        ),
        # memory-strategy, memory-budget
        "strategy_is_best_feasible_option": Reason(
            "accept",
            "promote_to_training_run",
            "a memory strategy is the best variant within the budget, and worth its cost",
            "在预算之内，该显存策略最优，且代价可以接受",
        ),
        "compression_strategy_is_best_feasible_option": Reason(
            "accept",
            "promote_to_training_run",
            "a memory strategy is the best variant within the budget, and worth its cost",
            "在预算之内，该压缩策略最优，且代价可以接受",
        ),
        "no_strategy_meets_budget_and_quality": Reason(
            "reject",
            "tighten_batch_or_rework_memory_plan",
            "no variant keeps the budget and the quality limit",
            "没有任何方案同时满足预算与质量要求",
        ),
        "strategy_needs_quality_recovery": Reason(
            "tune",
            "adjust_checkpoint_granularity_or_offload_scope",
            "a variant exceeds the limit of the eval loss",
            "有方案的验证损失超限，需先恢复质量",
        ),
        "compression_needs_quality_recovery": Reason(
            "tune",
            "adjust_checkpoint_scope_or_batch_plan",
            "a variant exceeds the limit of the eval loss",
            "有压缩方案的验证损失超限，需先恢复质量",
        ),
        "memory_saving_below_meaningful_threshold": Reason(
            "tune",
            "test_larger_pressure_or_optimizer_compression",
            "too little memory is saved",
            "节省的显存不足",
        ),
        "throughput_loss_exceeds_budget": Reason(
            "tune",
            "reduce_compression_scope",
            "too little of the baseline's throughput is kept",
            "保留的吞吐不足",
        ),
        "baseline_still_best_under_current_budget": Reason(
            "tune",
            "revisit_memory_strategy_mix",
            "what is best within the budget is no memory strategy",
            "预算之内的最优方案不是显存策略",
        ),
        "candidate_over_budget": Reason(
            "reject",
            "restore_baseline",
            "the candidate breaks the budget",
            "该方案不满足预算要求",
        ),
        "budget_not_measured": Reason(
            "tune",
            "measure_what_the_budget_reads",
            "what the budget reads was not measured, so whether it is kept is not known",
            "缺少预算所需的测量值，无法判断",
        ),
        # regression
        "hard_failure_or_primary_missing": Reason(
            "reject",
            "restore_baseline",
            "a workload failed, or the primary one is missing",
            "有负载运行失败，或缺少主要负载",
        ),
        "quality_guardrail_failed": Reason(
            "reject",
            "restore_baseline",
            "quality got worse by more than is allowed",
            "质量变差的幅度超出允许范围",
        ),
        "benefit_or_bottleneck_evidence_incomplete": Reason(
            "tune",
            "adjust_and_rerun_regression",
            "the gain, an adjacent workload or the bottleneck does not pass yet",
            "收益、相邻负载或瓶颈证据尚未全部通过",
        ),
        "benefit_and_guardrails_passed": Reason(
            "accept",
            "freeze_candidate_and_thresholds",
            "the gain and all guardrails pass",
            "收益与全部护栏均通过",
        ),
        # qualification
        "at_least_one_candidate_passed_profiling_qualification": Reason(
            "accept",
            "write_part05_handoff",
            "at least one candidate passes every gate, with all evidence",
            "至少有一个方案证据齐全并通过全部门槛",
        ),
        "global_peak_memory_saving_below_threshold": Reason(
            "tune",
            "collect_phase_memory_evidence",
            "only the saving in peak memory is below its gate",
            "仅全局峰值显存的节省未达门槛",
        ),
        "candidate_requires_more_evidence_or_threshold_tuning": Reason(
            "tune",
            "collect_phase_memory_evidence",
            "a gate failed or evidence is missing",
            "有门槛未通过，或证据不全",
        ),
        "all_candidates_failed_hard_gates": Reason(
            "reject",
            "restore_baseline",
            "every candidate fails a hard gate",
            "所有方案都未通过硬性门槛",
        ),
        # activation scope
        "checkpoint_passed_activation_memory_and_throughput_gates": Reason(
            "accept",
            "keep_for_activation_memory_scope",
            "the strategy passes the gates within the scope of activation memory",
            "该策略在激活显存范围内通过全部门槛",
        ),
        "checkpoint_failed_activation_scope_gates": Reason(
            "tune",
            "tune_change_and_measure_again",
            "the strategy fails a gate within the scope of activation memory",
            "该策略在激活显存范围内有门槛未通过",
        ),
        # what holds before and above any rule
        "candidate_oom": Reason(
            "reject",
            "reduce_memory_of_candidate",
            "the candidate ran out of memory",
            "方案显存不足",
        ),
        "candidate_failed": Reason(
            "reject", "fix_candidate_error", "the candidate failed", "方案运行失败"
        ),
        "candidate_timeout": Reason(
            "reject",
            "raise_max_time_or_shrink_workload",
            "the candidate did not finish in time",
            "方案未在限定时间内完成",
        ),
        "candidate_diverged": Reason(
            "reject", "fix_divergence", "the candidate diverged", "方案的损失发散"
        ),
        "candidate_unsupported": Reason(
            "reject",
            "use_setting_that_device_supports",
            "this device does not support the candidate",
            "当前设备不支持该方案",
        ),
        "step_time_not_measured": Reason(
            "tune",
            "measure_again",
            "step_time_ms is missing on one side, so nothing can be compared",
            "有一侧缺少 step_time_ms，无法比较",
        ),
        "change_without_effect": Reason(
            "tune",
            "check_that_the_setting_takes_effect",
            "the change was not in effect, so what was measured says nothing about it",
            "改动没有生效，测量值不能说明问题",
        ),
        "repeats_failed": Reason(
            "tune",
            "fix_failed_repeats_and_measure_again",
            "some repeats did not succeed",
            "部分重复运行没有成功",
        ),
        # what the intervals say
        "gain_not_confirmed": Reason(
            "tune",
            "measure_more_pairs",
            "the gain is not confirmed by its interval",
            "收益尚未被区间证实",
        ),
        "more_pairs_needed": Reason(
            "tune",
            "measure_more_pairs",
            "the interval still allows a gain that would pass",
            "区间仍允许足够的收益，需要更多配对测量",
        ),
        "measurement_unfit": Reason(
            "tune",
            "measure_on_a_quiet_machine",
            "the measurement is too disturbed for a verdict",
            "测量受干扰过大，无法下结论",
        ),
        # a calibration
        "calibrated": Reason(
            "measure",
            "measure_candidates",
            "how much identical code differs on this machine is known",
            "已测得相同代码在本机上的差异范围",
        ),
        "calibration_unfit": Reason(
            "measure",
            "measure_on_a_quiet_machine",
            "this machine was not fit for verdicts",
            "本机当时不适合得出结论",
        ),
        # a probe
        "nothing_to_compare": Reason(
            "measure",
            "measure_baseline_and_compare",
            "measured without a baseline; there is nothing to compare",
            "没有基线，只测量不比较",
        ),
    }
)


def conclude(
    reason: str,
    text: str,
    policy: str,
    *,
    next_action: str | None = None,
    numbers: Mapping[str, float] | None = None,
) -> Decision:
    """The decision that a reason code stands for; a reject asks to roll the change back.

    Args:
        reason: the code.
        text: the reason in English, with the numbers that decided.
        policy: the rule set.
        next_action: where the policy asks for another one than the code's own.
        numbers: the same numbers by their names, for a text in another language.
    """
    known = REASONS[reason]
    return Decision(
        decision=known.decision,
        reason=reason,
        text=text,
        next_action=next_action or known.next_action,
        rollback=known.decision == "reject",
        policy=policy,
        numbers=dict(numbers or {}),
    )


def reason_text(decision: Decision, lang: Language = "en") -> str:
    """The reason in words, with its numbers; an unknown code (imported) keeps its own text."""
    known = REASONS.get(decision.reason)
    if lang == "en" or known is None:
        return decision.text
    numbers = "，".join(f"{name} = {value:.6g}" for name, value in decision.numbers.items())
    return known.zh + (f"（{numbers}）" if numbers else "")
