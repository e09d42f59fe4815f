"""The head of a report, its question and its answer."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from trainperf_mlflow.reporting.report.texts.text import Text

VERDICT: Mapping[str, Text] = MappingProxyType(
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
        # what was trained
        "sizes": Text(
            "{workload}: {sizes}, on {device}", "负载 {workload}：{sizes}，设备 {device}"
        ),
        "sizes.none": Text("{workload}, on {device}", "负载 {workload}，设备 {device}"),
        "comma": Text(", ", "，"),
        "size.model": Text("model {value}", "模型 {value}"),
        "size.parameters": Text("{value} parameters", "参数量 {value}"),
        "size.batch_size": Text("batch size {value}", "批量 {value}"),
        "size.seq_len": Text("sequence length {value}", "序列长度 {value}"),
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
        "measured.decision": Text("{decision}, {sure}: {reason}", "{decision}，{sure}。{reason}"),
        "headline.measure": Text("Measured; nothing was compared.", "已测量，没有比较对象。"),
        "headline.calibration": Text(
            "The machine was measured against itself.", "已用相同代码测量本机。"
        ),
        "sure.confirmed": Text(
            "confirmed: the same at both ends of the intervals", "已证实：在区间两端结论都相同"
        ),
        "sure.confirmed.noisy": Text(
            "confirmed, though something outside disturbed {disturbed} of {blocks} blocks; "
            "{aside} of {pairs} pairs set aside",
            "已证实，但 {blocks} 个测量块中有 {disturbed} 个受到外部干扰；"
            "{pairs} 对中有 {aside} 对不计入",
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
        "next_and_rollback": Text("{step}; roll the change back", "{step}；回退该改动"),
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
        "interval.beside": Text("{interval}; {from_to}", "{interval}；{from_to}"),
        "interval.saved": Text("interval [{low}, {high}] % saved", "节省区间 [{low}, {high}] %"),
        "interval.row": Text("{value} % [{low}, {high}]", "{value} % [{low}, {high}]"),
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
    }
)
