"""How far it is to be trusted: noise, the signal, conditions, repeats, proofs of effect."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

_IN = "| in {count:n}| of {blocks:n} blocks"
_NOISE = {
    f"the training waited for a core for more than {{gate:n}} of the time{_IN}": (
        "{blocks} 个测量块中有 {count} 个，训练等待核心的时间超过 {gate}"
    ),
    f"the host gave more than {{gate:n}} of the cores' time to other guests{_IN}": (
        "{blocks} 个测量块中有 {count} 个，宿主机把超过 {gate} 的核心时间分给了其他虚拟机"
    ),
    f"processes waited for memory for more than {{gate:n}} of the time{_IN}": (
        "{blocks} 个测量块中有 {count} 个，进程等待内存的时间超过 {gate}"
    ),
    f"the core was slow (a fixed computation took {{longer:n}} longer){_IN}": (
        "{blocks} 个测量块中有 {count} 个，核心变慢（固定计算的耗时增加 {longer}）"
    ),
    f"the accelerator lowered its clock (heat){_IN}": (
        "{blocks} 个测量块中有 {count} 个，加速器因发热降频"
    ),
    "other processes took {cores:t} during {count:n}| of {blocks:n} blocks": (
        "{blocks} 个测量块中有 {count} 个，其他进程占用了{cores}"
    ),
    "{share:n} of a core": "一个核心的 {share}",
    "{count:n} cores": " {count} 个核心",
}

_SIGNAL = {
    "the work is done on {device:any}, not by a thread": "计算在 {device} 上完成，而不是由线程完成",
    "other processes prepare the data": "由其他进程准备数据",
    "this system does not tell how long a thread waits for a core": (
        "本系统无法得知线程等待核心的时长"
    ),
    "several threads do the work ({cores:n} cores were busy)": (
        "由多个线程计算（有 {cores} 个核心繁忙）"
    ),
    "disturbed pairs count as well, because nearly all disturbances met the {who:role}, which "
    "chance does not do": "受干扰的配对也计入：干扰几乎都落在{who}一侧，不像是偶然",
    "disturbed pairs count as well, because too few others are left": (
        "受干扰的配对也计入：其余配对太少"
    ),
    "one thread does the work, so its waits for a core are subtracted": (
        "由单个线程计算，因此扣除其等待核心的时间"
    ),
}

_CONDITIONS = {
    "{variant} had other seeds than the baseline in {rounds:t}": (
        "{variant} 的种子与基线不同（{rounds}）"
    ),
    "{variant} trained on other data than the baseline: the first batch differs in {rounds:t}; a "
    "difference in loss or time may come from the data": (
        "{variant} 的训练数据与基线不同：首个批次不同（{rounds}）；损失或时间的差异可能来自数据"
    ),
    "{some:n} of {all:n} rounds": "{all} 轮中的 {some} 轮",
    "{variant} compiled inside {some:n} of {all:n} measured blocks, so its times hold compilation; "
    "give more --warmup steps, or keep shapes the same": (
        "{variant} 在 {all} 个测量块中的 {some} 个之内发生编译，其时间包含编译；"
        "请增加 --warmup 步数，或保持形状不变"
    ),
    "{variant} collected garbage inside {some:n} of {all:n} measured blocks by itself; take "
    "gc.collect() out of its step": (
        "{variant} 在 {all} 个测量块中的 {some} 个之内自行回收垃圾；请从单步中去掉 gc.collect()"
    ),
    "the baseline has {one:n} ok repeats, {variant} has {other:n}": (
        "基线有 {one} 次成功的重复，{variant} 有 {other} 次"
    ),
    "{variant} has other samples per step: its time is compared per sample": (
        "{variant} 的每步样本数不同：时间按单样本比较"
    ),
    "{variant}: whether the change is in effect could not be checked": (
        "{variant}：无法检查改动是否生效"
    ),
    "one repeat says nothing about how much repeats differ; measure at least three": (
        "一次重复无法说明重复之间的差异；请至少测量三次"
    ),
    "the allocator reserved more than memory_cap_mb ({variants:any}), although what was allocated "
    "fits: a device of that size may run out of memory": (
        "分配器的预留超过 memory_cap_mb（{variants}），尽管已分配的内存未超限："
        "该容量的设备可能内存不足"
    ),
    "{variant}: something outside disturbed {some:n} of {all:n} pairs; set aside: {aside:n}": (
        "{variant}：{all} 对测量块中有 {some} 对受到外部干扰，其中 {aside} 对不计入"
    ),
    "repeats of the same code differ ({spreads:t}), so differences in time of that size prove "
    "nothing; measure again on a quiet machine, with more repeats": (
        "相同代码的各次重复相差较大（{spreads}），同等大小的时间差异不能说明问题；"
        "请在空闲的机器上以更多重复重新测量"
    ),
    "{variant} {low:n} to {high:n} ms a step": "{variant} 单步 {low} 至 {high} ms",
    "{count:n} {status:status}": "{count} 次{status}",
}

_EFFECTS = {
    "as the task itself says": "由任务自身声明",
    "this task gives no proof": "该任务没有提供证明",
    "no matrix multiplication was seen": "没有观察到矩阵乘",
    "{share:n} of the matmul FLOPs ran in {dtype:code}": "{share} 的矩阵乘 FLOPs 以 {dtype} 运行",
    "float32 matmul precision is {precision:code}": "float32 矩阵乘精度为 {precision}",
    "no matmul ran in float32, so the setting had nothing to act on": (
        "没有以 float32 运行的矩阵乘，该设置无从作用"
    ),
    "a float32 product has a relative error of {error:n}": "float32 乘积的相对误差为 {error}",
    "{count:n} module calls were recomputed in backward": "反向中重新计算了 {count} 次模块调用",
    "{size:n} MiB of saved tensors went to the host": "有 {size} MiB 的保存张量卸载到主机",
    "{size:n} MiB went to the host": "有 {size} MiB 卸载到主机",
    "compiled regions were not observed": "没有观察编译区域",
    "{count:n} compiled regions ran": "运行了 {count} 个编译区域",
    "the fused kernel {ran:fused}": "融合内核{ran}",
    "the optimizer's fused kernel ran": "优化器的融合内核已运行",
    "the optimizer has fused={value:any}": "优化器的设置为 fused={value}",
    "the optimizer has {option:code}={value:any}": "优化器的设置为 {option}={value}",
    "the optimizer is {name:code}": "优化器为 {name}",
    "a batch is {shape:any}": "一个批次的形状为 {shape}",
    "{count:n} micro-batches per step": "每步 {count} 个微批次",
    "attention ran as {kernel:code}": "注意力以 {kernel} 运行",
    "the model's attention is {kernel:code}": "模型的注意力为 {kernel}",
    "batches come from {data:any}": "批次来自 {data}",
    "{count:n} workers load the data": "由 {count} 个进程加载数据",
    "the model is {name:any}": "模型为 {name}",
    "the model came from {name:any}": "模型来自 {name}",
}

_DATA = {
    "the task's own": "任务自带",
    "one fixed batch of {rows:n} x {columns:n} random tokens": (
        "固定的一个 {rows} x {columns} 随机词元批次"
    ),
    "{count:n} {unit:unit} of {data:s}": "{data}的 {count} {unit}",
    "the Python standard library": "Python 标准库源码",
}

TRUSTED: Mapping[str, str] = MappingProxyType(
    {**_NOISE, **_SIGNAL, **_CONDITIONS, **_EFFECTS, **_DATA}
)
