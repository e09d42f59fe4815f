"""Tasks of a user's own for the tests of estimates: a convolution net, LoRA, and hard cases."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import Qwen2ForCausalLM

from trainperf_mlflow.workloads.models import resolve_model
from trainperf_mlflow.workloads.task import Task


class Supervised(Task):
    """A module with AdamW on one fixed batch."""

    def __init__(self, model: nn.Module, batch: Tensor) -> None:
        self.model, self.batch = model, batch
        trained = [p for p in model.parameters() if p.requires_grad]
        self.optimizer = torch.optim.AdamW(trained)

    def zero_grad(self) -> None:
        self.optimizer.zero_grad()

    def next_batch(self) -> Tensor:
        return self.batch

    def forward(self, batch: Tensor) -> Tensor:
        return self.model(batch).square().mean()

    def optimizer_step(self) -> None:
        self.optimizer.step()

    def state_tensors(self) -> Iterable[Tensor]:
        yield self.batch
        yield from chain(self.model.parameters(), self.model.buffers())
        for state in self.optimizer.state.values():
            yield from state.values()

    def modules(self) -> Iterable[nn.Module]:
        return (self.model,)


def convolutions(config: dict[str, Any]) -> Task:
    channels = config.get("channels", 64)
    layers: list[nn.Module] = [nn.Conv2d(3, channels, 3, padding=1), nn.BatchNorm2d(channels)]
    for _ in range(3):
        layers += [nn.ReLU(), nn.Conv2d(channels, channels, 3, padding=1)]
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 10))
    return Supervised(model, torch.randn(config.get("batch_size", 8), 3, 64, 64))


class LowRank(nn.Module):
    """A frozen linear layer and a trained update of low rank."""

    def __init__(self, base: nn.Linear, rank: int) -> None:
        super().__init__()
        self.base = base
        self.down = nn.Linear(base.in_features, rank, bias=False)
        self.up = nn.Linear(rank, base.out_features, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + self.up(self.down(x))


class LowRankTask(Supervised):
    def forward(self, batch: Tensor) -> Tensor:
        return self.model(input_ids=batch, labels=batch).loss


def lora(config: dict[str, Any]) -> Task:
    model = Qwen2ForCausalLM(resolve_model("tiny", "config").config).requires_grad_(False)
    for layer in model.model.layers:
        attention = layer.self_attn
        attention.q_proj = LowRank(attention.q_proj, rank=4)
        attention.v_proj = LowRank(attention.v_proj, rank=4)
    return LowRankTask(model, torch.zeros(2, 64, dtype=torch.int64))


class Chooses(Supervised):
    """Its shapes depend on values."""

    def forward(self, batch: Tensor) -> Tensor:
        out = functional.relu(self.model(batch))
        return out[out > 0].mean()


def chooses(config: dict[str, Any]) -> Task:
    return Chooses(nn.Linear(4, 4), torch.randn(8, 4))


class Autocasts(Supervised):
    def forward(self, batch: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.model(batch).square().mean()


def autocasts(config: dict[str, Any]) -> Task:
    return Autocasts(nn.Linear(4, 4), torch.randn(8, 4))


def compiles(config: dict[str, Any]) -> Task:
    return Supervised(torch.compile(nn.Linear(4, 4)), torch.randn(8, 4))


def compiles_in_place(config: dict[str, Any]) -> Task:
    model = nn.Linear(4, 4)
    model.compile()
    return Supervised(model, torch.randn(8, 4))


def converted(config: dict[str, Any]) -> Task:
    """Moved and converted as most tasks are, with somebody else holding a parameter."""
    model = nn.Sequential(nn.Linear(256, 256), nn.Tanh(), nn.Linear(256, 1))
    held = model[0].weight
    return Holding(
        model.to("cpu").to(torch.float64), torch.randn(8, 256, dtype=torch.float64), held
    )


class Holding(Supervised):
    def __init__(self, model: nn.Module, batch: Tensor, held: Tensor) -> None:
        super().__init__(model, batch)
        self.held = held


def plain_step(config: dict[str, Any]) -> Any:
    return lambda: None


def broken(config: dict[str, Any]) -> Task:
    raise ValueError("no such thing")


def ends(config: dict[str, Any]) -> Task:
    raise SystemExit("this is the end")


class Recurrent(Supervised):
    """Its model gives outputs and a state."""

    def forward(self, batch: Tensor) -> Tensor:
        loss: Tensor = self.model(batch)[0].square().mean()
        return loss


def recurrent(config: dict[str, Any]) -> Task:
    return Recurrent(nn.LSTM(8, 8), torch.randn(3, 2, 8))
