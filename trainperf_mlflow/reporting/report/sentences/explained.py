"""What phases and traces show: bottlenecks, suggestions, the hypothesis, where the cost moved."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

_BOTTLENECKS = {
    "{share:n} of a step waits for data": "单步有 {share} 在等待数据",
    "{share:n} of a profiled step {what:t}": "追踪步有 {share} 的时间只在{what}",
    "communicates while nothing computes": "通信，没有计算",
    "copies while nothing computes": "拷贝，没有计算",
    "{who:who} in {busy:n} of a profiled step; most of the rest ({share:n}) is {cause:idle}": (
        "追踪步中{who}的时间占 {busy}；其余大部分（{share}）为{cause}"
    ),
    "matrix products take at least {share:n} of a step in fp32, and {best:code} is up to "
    "{factor:n} times as fast on {device:any}": (
        "fp32 矩阵乘至少占单步的 {share}，而 {best} 在 {device} 上最快可达其 {factor} 倍"
    ),
    "a step achieves {share:n} of what its {bound:bound} bound allows ({real:n} of {most:n} "
    "TFLOP/s)": "单步达到其{bound}上限的 {share}（{real} / {most} TFLOP/s）",
    "repeats of the same code took {low:n} to {high:n} ms a step": (
        "相同代码的各次重复为单步 {low} 至 {high} ms"
    ),
    "the optimizer phase holds the memory's peak ({top:n} MiB, the next phase {second:n}): fewer "
    "activations cannot lower it": (
        "内存峰值出现在优化器阶段（{top} MiB，次高阶段 {second}）：减少激活无法降低该峰值"
    ),
    "activations are {part:n} of the {top:n} MiB at the peak, in {phase:phase}": (
        "峰值 {top} MiB 中激活占 {part}，出现在{phase}阶段"
    ),
    "{reserved:n} of the device's {capacity:n} MiB are reserved: a little more fails": (
        "设备的 {capacity} MiB 中已预留 {reserved}：再多一点就会失败"
    ),
    "backward repeats {share:n} of the baseline's products": ("反向重复了基线 {share} 的矩阵乘"),
    "backward repeats {share:n} of the baseline's products|, {time:n} of a step": (
        "反向重复了基线 {share} 的矩阵乘，占单步的 {time}"
    ),
    "the memory's peak moved from {before:phase} ({old:n} MiB) to {after:phase} ({new:n} MiB): "
    "what {again:phase} needs is no longer the limit": (
        "内存峰值从{before}（{old} MiB）移到{after}（{new} MiB）：{again}所需不再是上限"
    ),
}

_SUGGESTIONS = {
    "prepare batches in other processes, or beforehand": "由其他进程准备批次，或提前准备",
    "overlap communication with backward, in larger buckets": "用更大的桶把通信与反向重叠",
    "copy less, or from pinned memory and without blocking": (
        "减少拷贝，或使用锁页内存并以非阻塞方式拷贝"
    ),
    "give each launch more work: a larger batch, or compile": (
        "让每次内核启动承担更多计算：增大批量，或使用 compile"
    ),
    "give each operator more work: a larger batch, or compile": (
        "让每个算子承担更多计算：增大批量，或使用 compile"
    ),
    "do not wait for the device inside a step (.item(), prints, copies)": (
        "单步之内不要等待设备（.item()、打印、拷贝）"
    ),
    "look into the trace: trainperf trace shows when the device idles": (
        "查看追踪：trainperf trace 会显示设备何时空闲"
    ),
    "compute matrix products in {precision:code}": "以 {precision} 计算矩阵乘",
    "take the optimizer's fused kernel, or one with a smaller state": (
        "使用优化器的融合内核，或换用状态更小的优化器"
    ),
    "recompute activations (checkpoint), or keep them in bf16": (
        "重计算激活（checkpoint），或以 bf16 保存激活"
    ),
    "reserve less: PYTORCH_ALLOC_CONF=expandable_segments:True, or a smaller batch": (
        "减少预留：设置 PYTORCH_ALLOC_CONF=expandable_segments:True，或减小批量"
    ),
    "recompute fewer layers, those with the most activations": "只重计算激活最多的少数层",
}

_SOURCES = {
    "the advice of Kineto's TensorBoard plugin": "Kineto 的 TensorBoard 插件的建议",
    "our own choice": "本工具自定",
    "the lowest utilisation among the large trainings that the PaLM report lists (21 %)": (
        "PaLM 报告所列大规模训练中的最低利用率（21 %）"
    ),
    "a peak is that of the highest phase": "峰值即最高阶段的峰值",
    "the largest category at the peak": "峰值时刻最大的类别",
}

_HYPOTHESIS = {
    "the study has no hypothesis": "本研究没有提出假设",
    "{phase:phase} was not measured on both sides": "{phase}阶段没有在两侧都测量",
    "{phase:phase} {before:n} -> {after:n}": "{phase} {before} -> {after}",
    "{seen:t}: it {grew:grew}": "{seen}：{grew}",
    "{seen:t}: it grew": "{seen}：变大了",
    "{seen:t}: it did not shrink": "{seen}：没有变小",
    "{seen:t}: fewer than {least:n} repeats show no change": (
        "{seen}：重复不足 {least} 次，无法看出变化"
    ),
    "{seen:t}: that is within the repeats' spread": "{seen}：在各次重复的波动范围之内",
    "{seen:t}: it shrank, but the whole step did not ({before:n} -> {after:n})": (
        "{seen}：该阶段变小了，但整步没有（{before} -> {after}）"
    ),
    "{seen:t}: it shrank, but that is only {share:n} of the step's gain": (
        "{seen}：该阶段变小了，但只占整步收益的 {share}"
    ),
    "{seen:t}: {share:n} of the step's gain of {gain:n}": "{seen}：占整步收益 {gain} 的 {share}",
    "the peaks were counted in different ways": "两侧峰值的统计方式不同",
    "peak memory was not measured on both sides": "峰值内存没有在两侧都测量",
    "peak memory {before:n} -> {after:n}": "峰值内存 {before} -> {after}",
    "{seen:t}: {less:n} less": "{seen}：减少 {less}",
    "the {phase:phase} phase holds the peak": "峰值出现在{phase}阶段",
}

_MOVED = {
    "not known: there are no phases of both": "未知：没有两侧的阶段数据",
    "{phase:phase} grew by {ms:n}": "{phase}阶段增加了 {ms}",
    "not known with {count:n} repeat{s:plural}": "只有 {count} 次重复，无法得知",
    "{after:phase} instead of {before:phase} takes the most time": (
        "最耗时的阶段由{before}变为{after}"
    ),
    "{after:phase} instead of {before:phase} holds the memory's peak": (
        "内存峰值所在阶段由{before}变为{after}"
    ),
    "not shown: {phases:t} changed within the repeats' spread": (
        "未能证明：{phases}的变化在各次重复的波动范围之内"
    ),
    "nowhere: no phase grew": "没有转移：没有阶段变大",
}

_MISSING = {
    "fewer than {least:n} repeats of the phases of {variants:any}, so their times show no trend": (
        "{variants} 的阶段重复不足 {least} 次，其时间无法显示趋势"
    ),
    "fewer than {least:n} repeats of the phases of {variants:any}, so their times show no trend: "
    "trainperf phase {study:code}": (
        "{variants} 的阶段重复不足 {least} 次，其时间无法显示趋势：trainperf phase {study}"
    ),
    "no {seen:seen} of {variant}: {why:t}": "没有 {variant} 的{seen}：{why}",
    "{status:status}, {error:s}": "{status}，{error}",
    "not there": "不存在",
    "memory by category, FLOPs and recomputed modules are unknown: compiled code would run "
    "eagerly while it is watched": (
        "分类内存、FLOPs 与重计算的模块未知：观察时编译代码会以 eager 方式运行"
    ),
}

EXPLAINED: Mapping[str, str] = MappingProxyType(
    {**_BOTTLENECKS, **_SUGGESTIONS, **_SOURCES, **_HYPOTHESIS, **_MOVED, **_MISSING}
)
