"""What the words of a report mean."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from trainperf_mlflow.reporting.report.texts.text import Text

TERMS: Mapping[str, Text] = MappingProxyType(
    {
        "words": Text("Words", "用语"),
        "term.block": Text("block", "测量块"),
        "means.block": Text(
            "a run of consecutive measured steps in one process", "同一进程中一段连续的测量步"
        ),
        "term.pair": Text("pair", "一对测量块"),
        "means.pair": Text(
            "a block of the baseline and one of the candidate, measured next to each other in time",
            "时间上相邻的一个基线测量块与一个候选测量块",
        ),
        "term.process_pair": Text("process pair", "一对进程"),
        "means.process_pair": Text(
            "a fresh process of the baseline and one of the candidate, whose blocks make the pairs",
            "基线与候选各一个新进程，成对的测量块取自其中",
        ),
        "term.set_aside": Text("set aside", "不计入"),
        "means.set_aside": Text(
            "measured, but not counted: something outside the training slowed a block of the pair",
            "已测量但不计：一对中的某个测量块被训练之外的因素拖慢",
        ),
        "term.look": Text("look", "查看"),
        "means.look": Text(
            "a moment at which the study reads its interval and may stop; the more looks are "
            "allowed, the wider the interval",
            "研究读取区间并可能就此停止的时刻；允许的查看次数越多，区间越宽",
        ),
        "term.margin": Text("margin", "余量"),
        "means.margin": Text(
            "differences in time that are smaller than this count as the same",
            "小于它的时间差异视为相同",
        ),
        "term.confirmed": Text("confirmed", "已证实"),
        "means.confirmed": Text(
            "the rule says the same at both ends of the intervals", "在区间两端规则的结论都相同"
        ),
        "term.unconfirmed": Text("not confirmed", "未证实"),
        "means.unconfirmed": Text(
            "within the intervals the rule may say something else, or there is no interval",
            "在区间之内规则的结论可能不同，或没有区间",
        ),
        "term.unfit": Text("too disturbed (unfit)", "干扰过大（unfit）"),
        "means.unfit": Text(
            "the measurement was so noisy that it allows no verdict", "测量噪声过大，不足以得出结论"
        ),
        "term.tune": Text("tune", "继续调整"),
        "means.tune": Text(
            "do not keep the change as it is, and do not give it up: alter it, or measure more",
            "暂不保留也不放弃该改动：调整它，或补测",
        ),
        "term.policy": Text("policy", "规则"),
        "means.policy": Text(
            "the set of rules that turns the numbers into a decision", "把数值变成结论的一套规则"
        ),
        "term.scope": Text("scope", "范围"),
        "means.scope": Text(
            "the only use for which a decision holds, such as saving the memory of activations",
            "结论仅适用的用途，例如节省激活显存",
        ),
        "term.net_time": Text("net time", "净时间"),
        "means.net_time": Text(
            "wall time less the time in which the training waited for a core",
            "墙钟时间减去训练等待处理器核心的时间",
        ),
    }
)
