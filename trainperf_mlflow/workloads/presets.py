"""The workload presets of the built-in causal-LM task: sizes, steps and data by name."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any, NamedTuple


class Preset(NamedTuple):
    """Steps to warm up and to measure, and the configuration they go with.

    Where they are not ``fixed``, a study warms up until steps have settled, and its blocks
    last long enough to be told apart; what only looks at steps takes these numbers.
    """

    warmup: int
    iters: int
    config: dict[str, Any]
    fixed: bool = False


def _published(seq_len: int) -> Preset:
    # The source's workloads: one fixed random batch, AdamW at 1e-5, two warmup
    # steps, five measured ones. They are defined by these numbers: do not tune them.
    return Preset(
        fixed=True,
        warmup=2,
        iters=5,
        config={
            "model": "qwen25_small",
            "data": "random",
            "batch_size": 1,
            "seq_len": seq_len,
            "learning_rate": 1e-5,
        },
    )


PRESETS: MappingProxyType[str, Preset] = MappingProxyType(
    {
        # Real text and a model of some million parameters: some ten milliseconds a step on one
        # core, with more activations than weights, so that every strategy has something to show.
        "quick": Preset(
            warmup=3,
            iters=10,
            config={
                "model": "tiny",
                "data": "stdlib",
                "batch_size": 4,
                "seq_len": 96,
                "learning_rate": 1e-3,
            },
        ),
        "smoke": _published(256),
        "pressure": _published(768),
        "pressure_1024": _published(1024),
    }
)

# A task of the user's own has no preset; these are the source's defaults for any step.
CUSTOM_TASK = Preset(warmup=2, iters=8, config={})
