"""The built-in task: a causal language model of transformers under a real training step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import chain
from typing import Any

import torch
from pydantic import ValidationError
from torch import Tensor, nn
from transformers import AutoTokenizer, PreTrainedModel

from trainperf_mlflow.errors import PlanError
from trainperf_mlflow.results.record import Setting
from trainperf_mlflow.workloads import data
from trainperf_mlflow.workloads.config import CausalLMConfig
from trainperf_mlflow.workloads.device import autocast_dtype
from trainperf_mlflow.workloads.models import ResolvedModel, build_model, resolve_model
from trainperf_mlflow.workloads.task import Task

NAME = "causal_lm"


class CausalLM(Task):
    """One configuration of the built-in task, live on the device.

    A batch is int64 token ids [batch_size, seq_len], at once inputs and labels.
    """

    def __init__(
        self,
        config: CausalLMConfig,
        resolved: ResolvedModel,
        model: PreTrainedModel,
        batches: data.Batches,
        validation: Tensor,
        device: torch.device,
    ) -> None:
        self.config = config
        self.resolved = resolved
        self.device = device
        self.model = model
        self.batches = batches
        self.validation = validation
        self.microsteps = config.grad_accumulation
        self.samples_per_step = float(config.batch_size * config.grad_accumulation)
        self.tokens_per_step = self.samples_per_step * config.seq_len
        self.quality_checked = config.data != data.RANDOM
        self.dtype = autocast_dtype(config.precision, device)

        torch.set_float32_matmul_precision(config.matmul_precision)
        if config.checkpoint:
            _checkpoint_layers(model)
        self.optimizer = make_optimizer(config, model.parameters())
        # Without fp16 the scaler passes everything through.
        self.scaler = torch.amp.GradScaler(device.type, enabled=self.dtype is torch.float16)
        self._model: Any = (
            model if config.compile == "off" else torch.compile(model, mode=config.compile)
        )

    def zero_grad(self) -> None:
        self.optimizer.zero_grad(set_to_none=True)

    def next_batch(self) -> Tensor:
        return self.batches.next()

    def forward(self, batch: Tensor) -> Tensor:
        with self._autocast(), self._offload():
            loss: Tensor = self._model(input_ids=batch, labels=batch).loss
        return loss

    def backward(self, loss: Tensor) -> None:
        if self.microsteps > 1:
            loss = loss / self.microsteps
        self.scaler.scale(loss).backward()

    def optimizer_step(self) -> None:
        self.scaler.step(self.optimizer)
        self.scaler.update()

    def evaluate(self) -> float:
        """Mean loss on the fixed validation batch, in micro-batches, under the same autocast.

        Always run eagerly: other shapes would be compiled anew for one pass.
        """
        self.model.eval()
        try:
            with torch.no_grad(), self._autocast():
                losses = [
                    self.model(input_ids=rows, labels=rows).loss.float() * len(rows)
                    for rows in torch.split(self.validation, self.config.batch_size)
                ]
            return float(torch.stack(losses).sum()) / len(self.validation)
        finally:
            self.model.train()

    def state_tensors(self) -> Iterable[Tensor]:
        yield from chain(self.model.parameters(), self.model.buffers(), self.batches.resident)
        yield self.validation
        for state in self.optimizer.state.values():
            yield from (value for value in state.values() if isinstance(value, Tensor))

    def modules(self) -> Iterable[nn.Module]:
        return (self.model,)

    def close(self) -> None:
        self.batches.close()

    def _autocast(self) -> AbstractContextManager[Any]:
        if self.dtype is None:
            return nullcontext()
        return torch.autocast(self.device.type, dtype=self.dtype)

    def _offload(self) -> AbstractContextManager[Any]:
        return torch.autograd.graph.save_on_cpu() if self.config.offload else nullcontext()


def build_causal_lm(
    task: str, config: Mapping[str, Setting], seed: int, device: torch.device, data_seed: int
) -> CausalLM:
    """Build the built-in task; see ``build_task``."""
    settings = parse_config(task, config)
    resolved = resolve_model(settings.model, settings.model_source)
    check_sizes(settings, resolved)
    model = build_model(resolved, seed, settings.attention).to(device)
    batches, validation = make_batches(settings, resolved, device, data_seed)
    return CausalLM(settings, resolved, model, batches, validation, device)


def parse_config(task: str, config: Mapping[str, Setting]) -> CausalLMConfig:
    """The checked configuration of the built-in task.

    Raises:
        PlanError: the task is another one, or a setting is invalid.
    """
    if task != NAME:
        raise PlanError(f"unknown task {task!r}; known: {NAME}, or your own as MODULE:FACTORY")
    try:
        return CausalLMConfig.model_validate(dict(config))
    except ValidationError as error:
        problems = [
            f"{'.'.join(map(str, item['loc']))} = {str(item['input'])[:80]!r}: {item['msg']}"
            for item in error.errors(include_url=False)
        ]
        raise PlanError("; ".join(problems)) from None


def check_sizes(config: CausalLMConfig, resolved: ResolvedModel) -> None:
    """Refuse sequences that are longer than the model's positions reach.

    Raises:
        PlanError: ``seq_len`` is too large.
    """
    longest = resolved.max_positions
    if longest is not None and config.seq_len > longest:
        raise PlanError(
            f"seq_len {config.seq_len} is more than the {longest} positions of the model "
            f"{config.model!r}; lower it to at most {longest}"
        )


@dataclass(frozen=True)
class Content:
    """The tokens of a text and how they came about."""

    tokens: Tensor  # [tokens] on the CPU
    unit: str  # what a token is, for people


def read_content(config: CausalLMConfig, resolved: ResolvedModel) -> Content:
    """Read and tokenise the text that ``config.data`` names.

    Raises:
        PlanError: it cannot be read, or the model's vocabulary is too small for it.
    """
    text = data.read_text(config.data)
    tokenizer = _tokenizer(resolved)
    tokens = data.tokenize(text, vocab_size(resolved), tokenizer, config.data)
    return Content(tokens, "bytes" if tokenizer is None else "tokens of the model's tokenizer")


def make_batches(
    config: CausalLMConfig, resolved: ResolvedModel, device: torch.device, data_seed: int
) -> tuple[data.Batches, Tensor]:
    """Training batches and the validation batch [rows, seq_len] on the device."""
    if config.data == data.RANDOM:
        vocab = vocab_size(resolved)
        batch = data.random_batch(vocab, config.batch_size, config.seq_len, data_seed)
        validation = data.random_validation(vocab, config.seq_len, data_seed)
        return data.FixedBatch(batch.to(device)), validation.to(device)
    tokens = read_content(config, resolved).tokens
    text = data.split(tokens, config.batch_size, config.seq_len, config.data)
    batches = data.TextBatches(
        text.windows, config.batch_size, data_seed, device, config.num_workers
    )
    return batches, text.validation.to(device)


def make_optimizer(
    config: CausalLMConfig, parameters: Iterable[nn.Parameter]
) -> torch.optim.Optimizer:
    """The optimizer of the settings, with torch's defaults for all that they do not name.

    Raises:
        RuntimeError: it has no fused kernel for the parameters' device.
    """
    classes: dict[str, Any] = {
        "adamw": torch.optim.AdamW,
        "adam": torch.optim.Adam,
        "sgd": torch.optim.SGD,
        "adafactor": torch.optim.Adafactor,
    }
    options: dict[str, Any] = {"lr": config.learning_rate}
    if config.optimizer == "sgd":
        options["momentum"] = config.momentum
    if config.fused:
        options["fused"] = True
    optimizer: torch.optim.Optimizer = classes[config.optimizer](parameters, **options)
    return optimizer


def _checkpoint_layers(model: PreTrainedModel) -> None:
    # The name changed within transformers 5, and the old one warns.
    enable = getattr(model, "activation_checkpointing_enable", None)
    (enable or model.gradient_checkpointing_enable)({"use_reentrant": False})


def vocab_size(resolved: ResolvedModel) -> int:
    """How many token ids the model knows."""
    size: int = resolved.config.get_text_config().vocab_size
    return size


def _tokenizer(resolved: ResolvedModel) -> data.Tokenizer | None:
    """The tokenizer of a real model; None where it has none, or where weights are random."""
    folder = resolved.path
    if folder is None or not any(folder.glob("tokenizer*")):
        return None
    try:
        tokenizer: data.Tokenizer = AutoTokenizer.from_pretrained(
            folder, trust_remote_code=False, local_files_only=True
        )
    except Exception as error:
        raise PlanError(
            f"the tokenizer in {str(folder)!r} cannot be loaded ({type(error).__name__}: {error}); "
            "repair or remove its files, or take data=random"
        ) from None
    return tokenizer
