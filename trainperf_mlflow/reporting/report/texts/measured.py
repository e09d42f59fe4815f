"""What was measured: results, pictures, phases, memory and quality."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from trainperf_mlflow.reporting.report.texts.text import Text

MEASURED: Mapping[str, Text] = MappingProxyType(
    {
        # results
        "results": Text("Results", "结果"),
        "results.how": Text(
            "Means over the repeats; below them what the candidate saves against the baseline. "
            "Time is wall time, mean; where pairs were measured side by side, what step time and "
            "samples/s gain is theirs. "
            "Brackets are intervals; where there is none, the range of the repeats is given.",
            "数值为各次重复的均值，其下为相对基线的节省量。时间为墙钟均值；若有并排测量的成对数据，"
            "单步时间与样本/秒的变化取自这些成对数据。方括号为区间；没有区间时给出各次重复的范围。",
        ),
        "column.variant": Text("variant", "变体"),
        "column.step_time_ms": Text("time per step, ms", "单步时间，ms"),
        "column.samples_per_s": Text("samples/s", "样本/秒"),
        "column.peak_mem_mb": Text("peak memory, MiB", "峰值内存，MiB"),
        "column.loss": Text("training loss", "训练损失"),
        "column.eval_loss": Text("eval loss", "验证损失"),
        "column.decision": Text("decision", "结论"),
        "column.repeat": Text("repeat", "重复"),
        "column.status": Text("status", "状态"),
        "column.phase": Text("phase", "阶段"),
        "column.setting": Text("setting", "设置项"),
        "column.before": Text("baseline", "基线"),
        "column.after": Text("candidate", "候选"),
        "column.proof": Text("in effect?", "是否生效"),
        "column.statement": Text("statement", "陈述"),
        "column.numbers": Text("numbers", "数值"),
        "column.threshold": Text("threshold and its source", "阈值及其来源"),
        "column.evidence": Text("evidence", "证据"),
        "column.name": Text("name", "名称"),
        "column.value": Text("value", "数值"),
        "column.source": Text("source", "来源"),
        "column.file": Text("file", "文件"),
        "column.of": Text("of", "所属"),
        "column.sha256": Text("SHA-256", "SHA-256"),
        "column.category": Text("at the peak", "峰值时刻的组成"),
        "baseline": Text("baseline", "基线"),
        "best": Text("best", "最优"),
        "direction.faster": Text("faster", "更快"),
        "direction.slower": Text("slower", "更慢"),
        "direction.same": Text("same speed", "速度相同"),
        "direction.undecided": Text("speed undecided", "速度未定"),
        "status.ok": Text("ok", "正常"),
        "status.oom": Text("out of memory", "内存不足"),
        "status.failed": Text("failed", "失败"),
        "status.unsupported": Text("unsupported", "不支持"),
        "status.diverged": Text("diverged", "发散"),
        "status.timeout": Text("timed out", "超时"),
        "of_each": Text("{variant}: {decision}. {reason}", "{variant}：{decision}。{reason}"),
        "other_policy": Text(
            "{variant}: by the fixed thresholds of the policy {policy} instead of this study's: "
            "{decision} ({reason})",
            "{variant}：若改用规则 {policy} 的固定阈值，则为“{decision}”（{reason}）",
        ),
        "variant": Text("{variant}: {text}", "{variant}：{text}"),
        "budget": Text("Budget: {text}", "预算：{text}"),
        # pictures
        "picture.ratios": Text("Speed of each pair against the baseline", "各配对相对基线的速度"),
        "picture.time_memory": Text("Time against peak memory", "时间与峰值内存"),
        "picture.steps": Text("Step times in the order of measurement", "按测量顺序排列的单步时间"),
        "picture.loss": Text("Training losses", "训练损失"),
        "picture.phases": Text("A step by phase", "单步的各阶段"),
        "picture.memory": Text("Memory while a step runs", "单步之内的内存"),
        "picture.roofline": Text("Roofline", "屋顶线"),
        "picture.trace_timeline": Text("One traced step of each variant", "各变体的一个追踪步"),
        # phases
        "phases": Text("Time by phase", "各阶段用时"),
        "phases.how": Text(
            "ms per step from runs of their own with marks at the phases' borders: they explain, "
            "and decide nothing.",
            "每步毫秒数，取自在阶段边界做了标记的单独运行：只用于解释，不参与判定。",
        ),
        "phase.data": Text("data", "数据"),
        "phase.forward": Text("forward", "前向"),
        "phase.backward": Text("backward", "反向"),
        "phase.optimizer": Text("optimizer", "优化器"),
        "phase.other": Text("other", "其余"),
        "phase.memory": Text("memory", "内存"),
        "phase.step": Text("step", "整步"),
        "mfu": Text("FLOPs used of the peak (MFU)", "峰值算力利用率（MFU）"),
        "trend.shrank": Text("shrank", "减少"),
        "trend.grew": Text("grew", "增加"),
        "trend.same": Text("same", "不变"),
        "trend.unclear": Text("within the spread", "在波动范围内"),
        "trend.unknown": Text("not known: too few repeats", "未知：重复次数太少"),
        "trace": Text("Where a traced step's time goes, ms", "追踪步的时间去向，ms"),
        "part.compute": Text("compute", "计算"),
        "part.exposed_communication": Text("communication alone", "未被掩盖的通信"),
        "part.exposed_copy": Text("copies alone", "未被掩盖的拷贝"),
        "part.data_wait": Text("waiting for data", "等待数据"),
        "part.synchronisation": Text("synchronisation", "同步"),
        "part.launch_bound": Text("late launches", "内核启动过慢"),
        "part.other_idle": Text("other idle time", "其他空闲"),
        "part.outside_operators": Text("outside of operators", "算子之外"),
        "slowdown": Text("times as slow as without the profiler", "相对未开分析器的减速倍数"),
        # memory
        "memory": Text("Memory by phase", "各阶段内存"),
        "memory.how": Text(
            "Peak MiB of each phase, and what filled the memory at the highest peak.",
            "各阶段的峰值 MiB，以及最高峰时刻内存的组成。",
        ),
        "category.parameters": Text("parameters", "参数"),
        "category.gradients": Text("gradients", "梯度"),
        "category.optimizer_state": Text("optimizer state", "优化器状态"),
        "category.activations": Text("activations", "激活"),
        "category.temporaries": Text("temporaries", "临时张量"),
        "category.other": Text("other", "其他"),
        "category.untracked": Text("untracked", "未跟踪"),
        # quality
        "quality": Text("Loss and quality", "损失与质量"),
        "quality.checked": Text(
            "The eval losses of all variants were taken on held-out real text.",
            "所有变体的验证损失都取自留出的真实文本。",
        ),
        "quality.imported": Text(
            "As the file says, quality was judged by these eval losses; on which text they were "
            "taken nobody has seen here.",
            "按文件所述，质量依据这些验证损失判断；它们取自哪些文本，这里无从核实。",
        ),
        "quality.not": Text(
            "Quality was not checked: no eval loss on held-out real text for {variants}. A loss on "
            "training batches says nothing about it.",
            "质量未检验：{variants} 没有在留出的真实文本上的验证损失。"
            "训练批次上的损失不能说明质量。",
        ),
    }
)
