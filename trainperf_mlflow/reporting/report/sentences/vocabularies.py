"""Words that fill the gaps of sentences: each as the product writes it, and in Chinese."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

VOCABULARIES: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "role": {"baseline": "基线", "candidate": "候选"},
        "phase": {
            "data": "数据",
            "forward": "前向",
            "backward": "反向",
            "optimizer": "优化器",
            "other": "其余",
        },
        "what": {"time per sample": "单样本时间", "time": "时间", "peak memory": "峰值内存"},
        "both": {
            "time| and |peak memory": "时间与峰值内存",
            "time per sample| and |peak memory": "单样本时间与峰值内存",
            "time": "时间",
            "time per sample": "单样本时间",
            "peak memory": "峰值内存",
        },
        "loss": {"eval loss": "验证损失", "loss": "损失"},
        "differ": {"differs": "相差", "differ": "相差"},
        "way": {"faster": "更快", "slower": "更慢"},
        "worth": {"better": "更好", "same": "相同", "worse": "更差", "diverged": "发散"},
        "gates": {"fails": "未通过", "lacks": "缺少"},
        "seen": {"phases": "阶段数据", "trace": "追踪"},
        "plural": {"s": "", "": ""},
        "status": {
            "ok": "正常",
            "oom": "内存不足",
            "failed": "失败",
            "unsupported": "不支持",
            "diverged": "发散",
            "timeout": "超时",
        },
        "failure": {
            "ran out of memory": "内存不足",
            "failed": "运行失败",
            "did not finish in time": "未在限定时间内完成",
            "diverged (its loss is NaN or infinite)": "发散（损失为 NaN 或无穷大）",
            "is not supported by this device": "不受当前设备支持",
        },
        "work": {
            "": "",
            " for the baseline's samples": "（按基线的样本数折算）",
            " for the same samples": "（按相同样本数折算）",
            " (plain means); by the pairs measured side by side it": "（均值）；按并排测量的配对",
            " for the same samples| (plain means); by the pairs measured side by side it": (
                "（按相同样本数折算的均值）；按并排测量的配对"
            ),
        },
        "counted": {
            "exceed the limit of the eval loss": "验证损失超限",
            "ran out of memory": "内存不足",
            "cannot be judged": "无法判断",
        },
        "method": {"Student's t": "Student t", "signed ranks": "符号秩"},
        "grew": {"grew": "变大了", "did not shrink": "没有变小"},
        "bound": {"compute": "计算", "memory": "访存"},
        "idle": {
            "launch bound": "内核启动过慢",
            "synchronisation": "同步",
            "outside operators": "算子之外",
            "data wait": "等待数据",
            "other idle": "其他空闲",
        },
        "who": {"the device works": "设备工作", "operators run": "算子运行"},
        "unit": {"tokens": "个词元", "bytes": "个字节"},
        "fused": {"ran": "已运行", "did not run": "没有运行"},
    }
)
