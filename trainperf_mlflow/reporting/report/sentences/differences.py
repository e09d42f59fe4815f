"""What separates a candidate from its baseline: notes, training losses, longer training."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

_NOTES = {
    "nothing to compare: no metric was measured on both sides": (
        "没有可比较的内容：没有两侧都测量的指标"
    ),
    "neither time nor peak memory could be compared": "时间与峰值内存都无法比较",
    "{what:both} {verb:differ} by less than {pct:n}": "{what}相差不到 {pct}",
    "{gains:t}|, but |{losses:t}": "{gains}，但{losses}",
    "saves |{one:n} of {what:what}| and |{two:n} of {other:what}": (
        "{what}节省 {one}，{other}节省 {two}"
    ),
    "saves |{one:n} of {what:what}": "{what}节省 {one}",
    "costs |{one:n} in {what:what}| and |{two:n} in {other:what}": (
        "{what}增加 {one}，{other}增加 {two}"
    ),
    "costs |{one:n} in {what:what}": "{what}增加 {one}",
    "{loss:loss} is higher by {change:n}": "{loss}升高 {change}",
    "{loss:loss} is lower by {change:n}": "{loss}降低 {change}",
    "{rest:t}| and |{loss:loss} is higher by {change:n}": "{rest}，{loss}升高 {change}",
    "{rest:t}| and |{loss:loss} is lower by {change:n}": "{rest}，{loss}降低 {change}",
    "compiling takes {seconds:n} s and |never pays": "编译耗时 {seconds} 秒，永远无法回本",
    "compiling takes {seconds:n} s and |pays after {steps:n} steps": (
        "编译耗时 {seconds} 秒，{steps} 步之后回本"
    ),
    "training losses equal the baseline's": "训练损失与基线相同",
    "training losses within what seeds cause": "训练损失的差异在种子造成的范围之内",
    "training losses differ by more than seeds cause": "训练损失的差异超出种子造成的范围",
    "eval loss after {steps:n} steps: {verdict:worth}": "{steps} 步之后的验证损失：{verdict}",
    "eval loss after {steps:n} steps: |not_shown": "{steps} 步之后的验证损失：未能证明",
}

_LOSSES = {
    "training losses cannot be compared: {gap:t}": "训练损失无法比较：{gap}",
    "the seeds differ": "种子不同",
    "the batches differ": "批次不同",
    "the samples per step differ": "每步样本数不同",
    "the blocks have other numbers of steps": "测量块的步数不同",
    "training losses equal the baseline's in every step ({seeds:t})": (
        "每一步的训练损失都与基线相同（{seeds}）"
    ),
    "one seed": "一个种子",
    "{count:n} seeds": "{count} 个种子",
    "{most:n} at measured step {step:n}, {mean:n} on average": (
        "第 {step} 个测量步相差 {most}，平均相差 {mean}"
    ),
    "training losses differ ({apart:t}), and one seed does not tell what seeds alone cause; give "
    "more --repeats": (
        "训练损失不同（{apart}），仅凭一个种子无法得知种子本身造成的差异；请增加 --repeats"
    ),
    "training losses {words:t} what seeds alone cause: {apart:t}, where {seeds:t} of the baseline "
    "have a standard deviation of {spread:n}": (
        "训练损失{words}种子本身造成的范围：{apart}；基线 {seeds}的标准差为 {spread}"
    ),
    "are the baseline's within": "与基线之差未超出",
    "differ from the baseline's by more than": "与基线之差超出了",
}

_LONGER = {
    "{trained:t} the eval loss is {words:t}: {mean:n} [{low:n}, {high:n}] (95 %"
    "|, {method:method})": ("{trained}，验证损失{words}：{mean} [{low}, {high}]（95 %，{method}）"),
    "{trained:t} the eval loss is {words:t}: {mean:n} [{low:n}, {high:n}] (95 %"
    "| over {count:n} candidates|, {method:method})": (
        "{trained}，验证损失{words}：{mean} [{low}, {high}]（{count} 个候选合计 95 %，{method}）"
    ),
    "within {steps:n} steps of training the loss became NaN or infinite with seed {seeds:any}, "
    "with which the baseline's did not: {error:s}": (
        "种子 {seeds} 的损失在 {steps} 步训练之内变为 NaN 或无穷大，基线用同样的种子则没有：{error}"
    ),
    "after {steps:n} steps with {seeds:n} seeds": "用 {seeds} 个种子各训练 {steps} 步之后",
    "not worse by more than {margin:n}, but whether it is the same is not shown": (
        "变差不超过 {margin}，但未能证明相同"
    ),
    "not shown to be the same within {margin:n} (more --repeats, more seeds)": (
        "未能证明在 {margin} 以内相同（增加 --repeats 即增加种子）"
    ),
    "{verdict:worth} by over {margin:n}": "{verdict}，幅度超过 {margin}",
    "what longer training leads to is not shown: {gap:s}": "未能证明更长训练的结果：{gap}",
    "the eval loss of {variant} is not taken on real text": (
        "{variant} 的验证损失不是在真实文本上测得的"
    ),
    "{variant} has no eval loss": "{variant} 没有验证损失",
    "{seeds:n} seeds succeeded on both sides|, and {least:n} are needed": (
        "两侧都成功的种子有 {seeds} 个，至少需要 {least} 个"
    ),
    "{seeds:n} seeds succeeded on both sides| ({errors:any})|, and {least:n} are needed": (
        "两侧都成功的种子有 {seeds} 个（{errors}），至少需要 {least} 个"
    ),
}

DIFFERENCES: Mapping[str, str] = MappingProxyType({**_NOTES, **_LOSSES, **_LONGER})
