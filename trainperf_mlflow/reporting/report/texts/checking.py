"""What was not checked, and how to check it."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from trainperf_mlflow.reporting.report.texts.text import Text

CHECKING: Mapping[str, Text] = MappingProxyType(
    {
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
        "unchecked.phases.open": Text(
            "Where in a step time and memory go: no phases were measured (trainperf phase "
            "{study}).",
            "单步之内的时间与内存去向：没有测量阶段（trainperf phase {study}）。",
        ),
        "unchecked.phases.closed": Text(
            "Where in a step time and memory go: no phases were measured before the close.",
            "单步之内的时间与内存去向：结项前没有测量阶段。",
        ),
        "unchecked.phases.imported": Text(
            "Where in a step time and memory go: the file holds no phases.",
            "单步之内的时间与内存去向：文件中没有阶段数据。",
        ),
        "unchecked.traces.open": Text(
            "Which kernels and operators run: nothing was traced (trainperf profile {study}).",
            "运行了哪些内核与算子：没有追踪（trainperf profile {study}）。",
        ),
        "unchecked.traces.closed": Text(
            "Which kernels and operators run: nothing was traced before the close.",
            "运行了哪些内核与算子：结项前没有追踪。",
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
    }
)
