"""What to do next, by the code of the action."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from trainperf_mlflow.reporting.report.texts.text import Text

STEPS: Mapping[str, Text] = MappingProxyType(
    {
        "next.keep_change": Text("keep the change", "保留该改动"),
        "next.tune_change_and_measure_again": Text(
            "change the candidate and measure again", "调整方案后重新测量"
        ),
        "next.restore_baseline": Text("go back to the baseline", "恢复基线"),
        "next.restore_baseline_or_locate_bottleneck_again": Text(
            "go back to the baseline, or look for the bottleneck again", "恢复基线，或重新定位瓶颈"
        ),
        "next.recover_quality_or_train_longer": Text(
            "recover the quality, or train longer", "恢复质量，或延长训练"
        ),
        "next.measure_goal_metric": Text("measure the goal's metric", "测量目标指标"),
        "next.promote_to_training_run": Text("take it into the training run", "用于正式训练"),
        "next.tighten_batch_or_rework_memory_plan": Text(
            "use a smaller batch, or rework the memory plan", "减小批量，或重新规划内存"
        ),
        "next.rework_checkpoint_or_offload_scope": Text(
            "rework what is checkpointed or offloaded", "重新规划重计算或卸载的范围"
        ),
        "next.adjust_checkpoint_granularity_or_offload_scope": Text(
            "adjust what is checkpointed or offloaded", "调整重计算粒度或卸载范围"
        ),
        "next.adjust_checkpoint_scope_or_batch_plan": Text(
            "adjust what is checkpointed, or the batch", "调整重计算范围或批量"
        ),
        "next.test_pressure_or_offload_scope": Text(
            "test under more memory pressure, or another scope of offload",
            "在更大的显存压力下测试，或改变卸载范围",
        ),
        "next.test_larger_pressure_or_optimizer_compression": Text(
            "test under more memory pressure, or compress the optimizer's state",
            "在更大的显存压力下测试，或压缩优化器状态",
        ),
        "next.reduce_checkpoint_or_offload_scope": Text(
            "checkpoint or offload less", "缩小重计算或卸载的范围"
        ),
        "next.reduce_compression_scope": Text("compress less", "缩小压缩范围"),
        "next.revisit_strategy_mix": Text("think again about which strategies", "重新考虑策略组合"),
        "next.revisit_memory_strategy_mix": Text(
            "think again about which memory strategies", "重新考虑显存策略组合"
        ),
        "next.measure_what_the_budget_reads": Text(
            "measure what the budget reads", "补测预算所需的指标"
        ),
        "next.adjust_and_rerun_regression": Text(
            "adjust, and run the regression again", "调整后重新运行回归"
        ),
        "next.freeze_candidate_and_thresholds": Text(
            "freeze the candidate and the thresholds", "冻结方案与阈值"
        ),
        "next.write_part05_handoff": Text("write the handoff", "编写交接文件"),
        "next.collect_phase_memory_evidence": Text(
            "collect evidence of memory by phase", "收集各阶段的内存证据"
        ),
        "next.retain_phase_evidence_and_do_not_adopt_at_fixed_workload": Text(
            "keep the evidence by phase, and do not adopt the change at this workload",
            "保留各阶段的证据，不在该固定负载上采用此改动",
        ),
        "next.keep_for_activation_memory_scope": Text(
            "keep it within the scope of activation memory", "仅在激活显存范围内保留"
        ),
        "next.reduce_memory_of_candidate": Text("reduce the candidate's memory", "降低候选的内存"),
        "next.fix_candidate_error": Text("mend the candidate's error", "修复候选的错误"),
        "next.fix_divergence": Text("mend the divergence", "解决损失发散"),
        "next.raise_max_time_or_shrink_workload": Text(
            "allow more time, or a smaller workload", "放宽时限，或缩小负载"
        ),
        "next.use_setting_that_device_supports": Text(
            "use a setting that this device supports", "改用设备支持的设置"
        ),
        "next.measure_again": Text("measure again", "重新测量"),
        "next.check_that_the_setting_takes_effect": Text(
            "check that the setting takes effect", "检查设置是否生效"
        ),
        "next.fix_failed_repeats_and_measure_again": Text(
            "mend the failed repeats and measure again", "修复失败的重复后重新测量"
        ),
        "next.measure_more_pairs": Text("measure more pairs", "增加配对测量"),
        "next.measure_on_a_quiet_machine": Text("measure on a quiet machine", "在空闲的机器上测量"),
        "next.measure_candidates": Text("measure candidates", "测量候选"),
        "next.measure_baseline_and_compare": Text(
            "measure a baseline to compare with", "测量基线以便比较"
        ),
    }
)
