"""The named strategies: shorthand for settings that users would not want to spell out.

Plain data, so that a plan can be checked without importing torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

STRATEGIES: MappingProxyType[str, dict[str, Any]] = MappingProxyType(
    {
        "bf16": {"precision": "bf16"},
        "fp16": {"precision": "fp16"},
        # The source's choice: bf16 where the device supports it, else fp16.
        "amp": {"precision": "amp"},
        "tf32": {"matmul_precision": "high"},
        "fused": {"fused": True},
        "checkpoint": {"checkpoint": True},
        "offload": {"offload": True},
        "hybrid": {"checkpoint": True, "offload": True},
        "compile": {"compile": "default"},
    }
)


def strategy_of(changed: Mapping[str, Any]) -> str | None:
    """The name of the strategy that makes exactly these changes, if there is one.

    >>> strategy_of({"offload": True, "checkpoint": True})
    'hybrid'
    >>> strategy_of({"batch_size": 8}) is None
    True
    """
    return next((name for name, settings in STRATEGIES.items() if settings == changed), None)
