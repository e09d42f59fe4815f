"""What a verdict rests on: why, what changed, noise and the rule."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from trainperf_mlflow.reporting.report.texts.text import Text

GROUNDS: Mapping[str, Text] = MappingProxyType(
    {
        # why
        "bottleneck": Text("What holds it back", "瓶颈"),
        "bottleneck.how": Text(
            "What phases and traces show, each with the numbers, the threshold that they crossed "
            "and the file that has them. None of it changes the decision.",
            "阶段与追踪所显示的内容，附数值、越过的阈值及所在文件。均不影响结论。",
        ),
        "bottleneck.none": Text(
            "Nothing crossed a threshold, or nobody has looked yet.",
            "没有越过任何阈值，或尚未分析。",
        ),
        "bottleneck.most": Text(
            "In the baseline, {phase} takes the most time.", "基线中最耗时的阶段是{phase}。"
        ),
        "bottleneck.peak": Text(
            "In the baseline, {phase} holds the memory's peak.", "基线的内存峰值出现在{phase}阶段。"
        ),
        "bottleneck.try": Text(
            "Try next: {text} (up to {percent} % of the {what}).",
            "可以尝试：{text}（最多可省{what}的 {percent} %）。",
        ),
        "win.time": Text("step's time", "单步时间"),
        "win.memory": Text("memory's peak", "内存峰值"),
        "moved": Text("{variant}: where the cost moved: {text}", "{variant}：开销的转移：{text}"),
        "hypothesis.title": Text("The hypothesis and what became of it", "假设及其检验"),
        "hypothesis.unstated": Text(
            "No hypothesis was named, so none was tested.", "没有提出假设，因此没有检验。"
        ),
        "hypothesis.stated": Text(
            "The change was meant to relieve: {phase}.", "该改动旨在减轻：{phase}。"
        ),
        "hypothesis.untested": Text(
            "It was not tested: nothing was compared by phase.", "尚未检验：没有按阶段比较。"
        ),
        "verdict.supported": Text("supported", "得到支持"),
        "verdict.refuted": Text("refuted", "被推翻"),
        "verdict.not_shown": Text("not shown", "未能证明"),
        "hypothesis.verdict": Text("{variant}: {verdict}. {text}", "{variant}：{verdict}。{text}"),
        # what changed
        "change": Text("What exactly changed, and proof that it took effect", "具体改动及生效证明"),
        "change.none": Text("Nothing was changed: a probe.", "没有改动：仅测量。"),
        "change.unknown": Text("as its name says", "见变体名称"),
        "change.equal": Text(
            "All else is equal: model, data, sizes, seed and device have the digest {digest}.",
            "其余完全相同：模型、数据、规模、种子与设备的摘要为 {digest}。",
        ),
        "change.equal.imported": Text(
            "Whether all else was equal is what the published file claims; nobody here has seen "
            "it.",
            "其余是否相同仅由原文件声明，这里无法核实。",
        ),
        "effect.true": Text("yes, seen on the live training", "是，已在训练中观察到"),
        "effect.false": Text("NO: it was seen not to be in effect", "否：观察到没有生效"),
        "effect.none": Text("could not be checked", "无法检查"),
        # noise
        "noise": Text("Environment and noise", "环境与噪声"),
        "environment.none": Text("The environment was not recorded.", "没有记录环境。"),
        "env.cpu": Text("CPU", "CPU"),
        "env.device_name": Text("Device", "设备"),
        "env.device": Text("Placed on", "运行于"),
        "env.platform": Text("System", "系统"),
        "env.cores": Text("Cores (physical, logical)", "核心数（物理，逻辑）"),
        "env.threads": Text("Threads", "线程数"),
        "env.memory_total_mb": Text("Host memory, MiB", "主机内存，MiB"),
        "env.device_memory_mb": Text("Device memory, MiB", "设备显存，MiB"),
        "env.load_average": Text("Load before (1, 5, 15 min)", "测前负载（1、5、15 分钟）"),
        "env.matmul_precision": Text("Matmul precision", "矩阵乘精度"),
        "env.packages": Text("Versions", "版本"),
        "env.variables": Text("Variables", "环境变量"),
        "noise.quiet": Text("The machine was quiet.", "机器是安静的。"),
        "noise.noisy": Text("The machine was noisy.", "机器有噪声。"),
        "noise.unfit": Text(
            "The machine was too noisy for a verdict.", "机器噪声过大，不足以得出结论。"
        ),
        "noise.blocks": Text(
            "{disturbed} of {blocks} blocks were disturbed; {again} sets were measured again.",
            "{blocks} 个测量块中有 {disturbed} 个受到干扰；{again} 组重新测量过。",
        ),
        "noise.floor": Text(
            "Calibrated with identical code ({workload}): its interval reaches {floor} %, and the "
            "smallest difference that is found is {smallest} %.",
            "以相同代码校准（{workload}）：区间可达 {floor} %，可发现的最小差异为 {smallest} %。",
        ),
        "noise.floor.none": Text(
            "The machine was not calibrated: how far apart identical code may look is assumed.",
            "机器没有校准：相同代码可能相差多少为假定值。",
        ),
        "noise.pairs": Text(
            "{variant}: pairs of neighbouring blocks: {pairs}, of processes: {processes}; "
            "something outside disturbed {disturbed}, and {aside} were set aside for it.",
            "{variant}：相邻测量块 {pairs} 对，进程 {processes} 对；"
            "其中 {disturbed} 对受到外部干扰，{aside} 对因此不计入。",
        ),
        "noise.level": Text(
            "{variant}: its interval is at {level} %, so that {looks} look(s) and all candidates "
            "together keep 95 %; differences within {margin} % count as the same.",
            "{variant}：区间水平为 {level} %，使 {looks} 次查看与所有候选合计保持 95 %；"
            "{margin} % 以内的差异视为相同。",
        ),
        "noise.signal": Text(
            "{variant}: time is read as {signal}: {reason}", "{variant}：时间取 {signal}：{reason}"
        ),
        "noise.none": Text(
            "No pairs of blocks were measured, so the noise is known only from the repeats' range.",
            "没有测量配对测量块，噪声只能从各次重复的范围了解。",
        ),
        "noise.warnings": Text("What to know before trusting it:", "采信之前应知："),
        "repeats": Text("All repeats", "全部重复"),
        # the rule
        "rule": Text("The rule of decision", "判定规则"),
        "rule.training": Text(
            "Policy training: accept when both the time gain and the memory gain reach their "
            "thresholds; else tune when either improved; else reject.",
            "规则 training：时间与内存收益均达到阈值则采纳；任一变好则继续调整；否则拒绝。",
        ),
        "rule.goal": Text(
            "Policy goal: accept when the goal's gain reaches min_gain and nothing else gets worse "
            "by more than it may; reject when there is no gain or the cost is too high; else tune.",
            "规则 goal：目标收益达到 min_gain 且其他指标变差不超过允许范围则采纳；"
            "没有收益或代价过大则拒绝；否则继续调整。",
        ),
        "rule.optimization": Text(
            "Policy optimization: accept when the time gain and one of memory and throughput reach "
            "their thresholds; tune when the time gain does and a resource improved; else reject.",
            "规则 optimization：时间收益以及内存、吞吐之一达到阈值则采纳；"
            "时间达标且有资源变好则继续调整；否则拒绝。",
        ),
        "rule.memory-strategy": Text(
            "Policy memory-strategy: of the variants that keep the budget the one with the least "
            "memory is best; accept when it is a memory strategy that saves enough and keeps "
            "enough throughput; reject when none keeps the budget; else tune.",
            "规则 memory-strategy：在满足预算的方案中内存最少者最优；若为显存策略且节省足够、"
            "吞吐保留足够则采纳；无方案满足预算则拒绝；否则继续调整。",
        ),
        "rule.memory-budget": Text(
            "Policy memory-budget: of the variants that keep the budget the one with the least "
            "memory is best; accept when it is a memory strategy that saves enough and keeps "
            "enough throughput; reject when none keeps the budget; else tune.",
            "规则 memory-budget：在满足预算的方案中内存最少者最优；若为显存策略且节省足够、"
            "吞吐保留足够则采纳；无方案满足预算则拒绝；否则继续调整。",
        ),
        "rule.unknown": Text("Policy {policy}.", "规则 {policy}。"),
        "rule.guard": Text(
            "Above it stands the evidence guard: the rule is asked again at both ends of the "
            "intervals; an accept that does not hold at the worse end, and a reject that does not "
            "hold at the better one, become tune.",
            "其上另有证据把关：在区间两端各再问一次规则；在较差一端不成立的采纳、"
            "在较好一端不成立的拒绝，都改为继续调整。",
        ),
        "rule.bare": Text(
            "The bare rule decided, on point values: the imported runs were not measured in pairs, "
            "so no interval stands above it.",
            "由规则本身按点值判定：导入的运行没有配对测量，因此没有区间把关。",
        ),
        "rule.source.training": Text("default of course project 73", "课程项目 73 的默认值"),
        "rule.source.optimization": Text("default of course project 74", "课程项目 74 的默认值"),
        "rule.source.memory-strategy": Text("default of course project 76", "课程项目 76 的默认值"),
        "rule.source.memory-budget": Text("default of course project 75", "课程项目 75 的默认值"),
        "rule.source.goal": Text("default of this toolkit", "本工具的默认值"),
        "rule.source.own": Text("set for this study", "本次研究指定"),
        "rule.source.imported": Text("stated by the imported report", "由导入的报告给出"),
        "rule.source.toolkit": Text("added by this toolkit", "本工具增加"),
        "rule.numbers": Text("The numbers that decided", "起决定作用的数值"),
        "rule.closed": Text(
            "The study was closed by the gates of its qualification; the rule below gave the "
            "measured decision.",
            "本研究已按结项条件定论；下述规则给出的是测量结论。",
        ),
        "rule.code": Text(
            "Reason code {reason}, next action {next}.", "理由代码 {reason}，下一步代码 {next}。"
        ),
        "threshold.min_time_delta_ms": Text("least time gain, ms", "最小时间收益，ms"),
        "threshold.min_memory_delta_mb": Text("least memory gain, MiB", "最小内存收益，MiB"),
        "threshold.min_throughput_delta": Text(
            "least throughput gain, samples/s", "最小吞吐收益，样本/秒"
        ),
        "threshold.max_eval_loss_delta": Text(
            "most that the eval loss may rise", "验证损失的最大升幅"
        ),
        "threshold.min_gain": Text("least gain of the goal, %", "目标的最小收益，%"),
        "threshold.max_cost": Text(
            "most that time or memory may cost, %", "时间或内存的最大代价，%"
        ),
        "threshold.memory_cap_mb": Text("most memory, MiB", "内存上限，MiB"),
        "threshold.min_samples_per_s": Text("least throughput, samples/s", "吞吐下限，样本/秒"),
        "threshold.max_val_loss": Text("highest eval loss", "验证损失上限"),
        "threshold.max_val_loss_ratio": Text(
            "highest eval loss, times the baseline's", "验证损失上限，为基线的倍数"
        ),
        "threshold.min_memory_saving_mb": Text("least memory saved, MiB", "最小内存节省，MiB"),
        "threshold.min_throughput_ratio": Text(
            "least of the throughput kept", "吞吐保留的最小比例"
        ),
    }
)
