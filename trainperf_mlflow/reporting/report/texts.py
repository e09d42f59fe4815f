"""Every sentence of the report in both languages, by name."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from trainperf_mlflow.decisions.reasons import Language


class Words:
    """The report's sentences in one language."""

    def __init__(self, lang: Language) -> None:
        self.lang = lang

    def __call__(self, name: str, **values: object) -> str:
        """A sentence, its gaps filled.

        Raises:
            KeyError: there is no such sentence.
        """
        text: str = getattr(TEXTS[name], self.lang)
        return text.format(**values) if values else text

    def of(self, kind: str, code: str) -> str:
        """The words for a code, or the code itself where nobody knows it.

        >>> Words("zh").of("decision", "accept"), Words("en").of("phase", "loading")
        ('采纳', 'loading')
        """
        name = f"{kind}.{code}"
        return self(name) if name in TEXTS else code


class Text(NamedTuple):
    en: str
    zh: str


TEXTS: Mapping[str, Text] = MappingProxyType(
    {
        # the head
        "report": Text("Study report", "研究报告"),
        "subtitle": Text(
            "{workload} on {device}, {when}, study {study_id}",
            "负载 {workload}，设备 {device}，{when}，研究编号 {study_id}",
        ),
        "subtitle.imported": Text(
            "imported from {file} ({format}), {when}, study {study_id}",
            "由 {file}（{format}）导入，{when}，研究编号 {study_id}",
        ),
        "footer": Text(
            "Written by trainperf {version}. This file needs no network.",
            "由 trainperf {version} 生成。本文件无需联网即可阅读。",
        ),
        # the question
        "question": Text("The question", "问题"),
        "question.one": Text(
            "Is the training better with {changes} than without?",
            "改用 {changes} 后，训练是否更好？",
        ),
        "question.many": Text(
            "Which of {changes} makes the training better?", "{changes} 之中，哪一项能让训练更好？"
        ),
        "question.one.goal": Text(
            "Does {changes} give {goal}, at a cost that is worth it?",
            "改用 {changes} 能否以值得的代价{goal}？",
        ),
        "question.many.goal": Text(
            "Which of {changes} gives {goal}, at a cost that is worth it?",
            "{changes} 之中，哪一项能以值得的代价{goal}？",
        ),
        "question.probe": Text(
            "What does the training take? (A probe: nothing is compared.)",
            "这项训练需要多少时间和内存？（仅测量，不比较。）",
        ),
        "question.calibration": Text(
            "How much does identical code differ on this machine?", "相同代码在本机上会相差多少？"
        ),
        "goal": Text("Goal", "目标"),
        "goal.none": Text(
            "none named: the policy {policy} decides", "未指定，由规则 {policy} 判定"
        ),
        "goal.step_time": Text("less time per step", "缩短单步时间"),
        "goal.samples_per_s": Text("more samples per second", "提高每秒样本数"),
        "goal.tokens_per_s": Text("more tokens per second", "提高每秒词元数"),
        "goal.peak_mem": Text("less peak memory", "降低峰值内存"),
        "goal.peak_reserved": Text("less reserved memory", "降低预留显存峰值"),
        "goal.host_peak_rss": Text("less memory of the host", "降低主机内存峰值"),
        "goal.eval_loss": Text("lower eval loss", "降低验证损失"),
        "hypothesis": Text("Hypothesis", "假设"),
        "hypothesis.about": Text("the change relieves {phase}", "该改动能减轻：{phase}"),
        "hypothesis.none": Text("none was named", "未提出"),
        "label": Text("Label", "标签"),
        "published": Text("Published decision", "原报告的结论"),
        "published.none": Text("the report decided nothing", "原报告没有给出结论"),
        # the verdict
        "decision.accept": Text("Accept", "采纳"),
        "decision.tune": Text("Tune", "继续调整"),
        "decision.reject": Text("Reject", "拒绝"),
        "decision.measure": Text("Measured", "仅测量"),
        "headline.accept": Text("Keep {best}.", "保留 {best}。"),
        "headline.tune": Text(
            "Not yet: do not keep {best} as it is.", "暂不保留 {best}，仍需调整或补测。"
        ),
        "headline.tune.none": Text(
            "Not yet: nothing is to be kept as it is.", "暂不保留任何改动。"
        ),
        "headline.reject": Text(
            "Do not keep {best}: stay with the baseline.", "不保留 {best}，维持基线。"
        ),
        "headline.reject.many": Text(
            "Keep none of the {count} candidates: stay with the baseline.",
            "{count} 个候选都不保留，维持基线。",
        ),
        "headline.closed": Text("Closed as “{label}”. ", "已以“{label}”结项。"),
        "measured": Text("Measured before the close", "结项前的测量结论"),
        "measured.decision": Text("{decision}, {sure}. {reason}", "{decision}，{sure}。{reason}"),
        "headline.measure": Text("Measured; nothing was compared.", "已测量，没有比较对象。"),
        "headline.calibration": Text(
            "The machine was measured against itself.", "已用相同代码测量本机。"
        ),
        "sure.confirmed": Text(
            "confirmed: the same at both ends of the intervals", "已证实：在区间两端结论都相同"
        ),
        "sure.unconfirmed": Text("not confirmed", "尚未证实"),
        "sure.unfit": Text("the measurement is too disturbed", "测量受干扰过大，不足为凭"),
        "sure.measure": Text("nothing to confirm", "无需证实"),
        "confidence.confirmed": Text("confirmed", "已证实"),
        "confidence.unconfirmed": Text("not confirmed", "未证实"),
        "confidence.unfit": Text("too disturbed", "干扰过大"),
        "how_sure": Text("How sure", "可信度"),
        "why": Text("Why", "理由"),
        "settle": Text("What would settle it", "如何定论"),
        "settle.pairs": Text(
            "about {pairs} more pairs of blocks ({time}) would settle it",
            "大约再测 {pairs} 对测量块（约 {time}）即可定论",
        ),
        "settle.hopeless": Text(
            "more pairs on this machine as it is would not settle it; measure when it is quiet",
            "在这台机器的现状下再多测也无法定论，请在空闲时重新测量",
        ),
        "settle.unfit": Text(
            "measure on a quiet machine, or find what stalls the steps",
            "在空闲的机器上重新测量，或找出使步骤停顿的原因",
        ),
        "settle.imported": Text(
            "only measuring it: a published file has no pairs of blocks that could confirm it",
            "只能实际测量：已发布的文件没有可供证实的配对测量块",
        ),
        "settle.repeats": Text(
            "at least 3 repeats in pairs: fewer allow no interval",
            "至少 3 次配对重复：更少则无法给出区间",
        ),
        "settle.rule": Text(
            "nothing to measure: within the interval the rule may say either; change the candidate",
            "无需再测：区间之内规则的结论可能不同，请调整方案",
        ),
        "next": Text("Next", "下一步"),
        "rollback": Text("roll the change back", "回退该改动"),
        "seconds": Text("{count} s", "{count} 秒"),
        "minutes": Text("{count} min", "{count} 分钟"),
        "figure.time": Text("Time per step", "单步时间"),
        "figure.memory": Text("Peak memory", "峰值内存"),
        "figure.quality": Text("Eval loss", "验证损失"),
        "saves": Text("saves {value}", "节省 {value}"),
        "costs": Text("costs {value}", "增加 {value}"),
        "same": Text("the same", "相同"),
        "same.within": Text("the same within {margin} %", "相同（{margin} % 以内）"),
        "undecided": Text("undecided", "未定"),
        "higher": Text("higher by {value}", "高 {value}"),
        "lower": Text("lower by {value}", "低 {value}"),
        "unmeasured": Text("not measured", "未测量"),
        "quality.unchecked": Text("not checked", "未检验"),
        "interval": Text("interval [{low}, {high}] %", "区间 [{low}, {high}] %"),
        "interval.row": Text("{saved} % [{low}, {high}]", "{saved} % [{low}, {high}]"),
        "interval.mb": Text("[{low}, {high}] MiB", "[{low}, {high}] MiB"),
        "interval.none": Text(
            "no interval; wall, mean: {before} to {after} {unit}",
            "无区间；墙钟均值：{before} → {after} {unit}",
        ),
        "from_to.wall": Text(
            "wall, mean: {before} to {after} {unit}", "墙钟均值：{before} → {after} {unit}"
        ),
        "from_to": Text("{before} to {after} {unit}", "{before} → {after} {unit}"),
        "range": Text("{low} to {high} in {count} repeats", "{count} 次重复：{low} 至 {high}"),
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
            "{variant}: the policy {policy} would say {decision} ({reason})",
            "{variant}：按规则 {policy} 则为“{decision}”（{reason}）",
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
        # quality
        "quality": Text("Loss and quality", "损失与质量"),
        "quality.checked": Text(
            "The eval losses of all variants were taken on held-out real text.",
            "所有变体的验证损失都取自留出的真实文本。",
        ),
        "quality.not": Text(
            "Quality was not checked: no eval loss on held-out real text for {variants}. A loss on "
            "training batches says nothing about it.",
            "质量未检验：{variants} 没有在留出的真实文本上的验证损失。"
            "训练批次上的损失不能说明质量。",
        ),
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
        # what was not checked
        "unchecked": Text("What was not checked", "未检验的内容"),
        "unchecked.nothing": Text("Nothing that this report knows of.", "据本报告所知没有。"),
        "unchecked.imported": Text(
            "This study is an imported file. It cannot show: step times of single blocks and what "
            "disturbed them, so there is no interval of time and nothing is confirmed; whether the "
            "change took effect; in which order and on how busy a machine it ran.",
            "本研究由文件导入，无法显示：各测量块的单步时间及其干扰，因此没有时间区间，"
            "任何结论都未证实；改动是否生效；运行的顺序与机器的繁忙程度。",
        ),
        "unchecked.quality": Text(
            "Quality of the trained model: {variants} have no eval loss on held-out real text.",
            "模型质量：{variants} 没有在留出真实文本上的验证损失。",
        ),
        "unchecked.effect": Text(
            "Whether the change of {variants} is in effect.", "{variants} 的改动是否生效。"
        ),
        "unchecked.phases": Text(
            "Where in a step time and memory go: no phases were measured (trainperf phase "
            "{study}).",
            "单步之内的时间与内存去向：没有测量阶段（trainperf phase {study}）。",
        ),
        "unchecked.phases.imported": Text(
            "Where in a step time and memory go: the file holds no phases.",
            "单步之内的时间与内存去向：文件中没有阶段数据。",
        ),
        "unchecked.traces": Text(
            "Which kernels and operators run: nothing was traced (trainperf profile {study}).",
            "运行了哪些内核与算子：没有追踪（trainperf profile {study}）。",
        ),
        "unchecked.memory": Text("Peak memory of {variants}.", "{variants} 的峰值内存。"),
        "unchecked.convergence": Text(
            "Whether a full training ends as well: {steps} measured steps per repeat are no "
            "training (--convergence-steps N trains longer and compares).",
            "完整训练的最终效果：每次重复只测了 {steps} 步，不等于训练"
            "（--convergence-steps N 会训练更久并比较）。",
        ),
        "unchecked.elsewhere": Text(
            "Other machines, models, sizes and data than these.", "其他机器、模型、规模与数据。"
        ),
        # again
        "again": Text("How to repeat it", "如何重复"),
        "again.how": Text(
            "On the same machine, in the same folder:", "在同一台机器、同一目录下执行："
        ),
        "again.imported": Text(
            "It cannot be measured again from the file. The import is repeated by:",
            "无法由该文件重新测量。重新导入：",
        ),
        "again.decide": Text(
            "Decide again from what MLflow holds:", "按 MLflow 中的记录重新判定："
        ),
        "again.workload": Text("Workload", "负载"),
        "again.data": Text("Data", "数据"),
        "again.digest": Text("Workload digest", "负载摘要"),
        "again.seed": Text("Seed", "种子"),
        "again.when": Text("Measured", "测量时间"),
        "again.imported_at": Text("Imported", "导入时间"),
        "again.version": Text("Toolkit", "工具版本"),
        "again.sha256": Text("SHA-256 of the file", "文件的 SHA-256"),
        # evidence
        "evidence": Text("Evidence", "证据"),
        "evidence.manifest": Text(
            "As the study's manifest lists it.", "以研究的清单（manifest）为准。"
        ),
        "evidence.listed": Text(
            "The files on the study's runs in MLflow when this was written, with their hashes "
            "where "
            "they were recorded.",
            "生成本报告时 MLflow 中该研究的文件；有记录的附哈希。",
        ),
        "evidence.files": Text("Files", "文件"),
        "evidence.none": Text("No file was listed.", "没有列出任何文件。"),
        "study": Text("study", "研究"),
        # what to do next
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
