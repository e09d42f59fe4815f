"""Tasks without storage: the true modules, optimizers and steps on fake tensors.

Fake tensors say that they are on the CPU: those that say CUDA need a build of
torch with CUDA. What a task would do otherwise than on the device is corrected
here, one rule a function.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from transformers import masking_utils

from trainperf_mlflow.errors import UnsupportedError
from trainperf_mlflow.measurement.estimate.attention import cuda_attention
from trainperf_mlflow.measurement.estimate.ledger import Ledger
from trainperf_mlflow.measurement.estimate.target import Target
from trainperf_mlflow.workloads import data
from trainperf_mlflow.workloads.causal_lm import CausalLM, check_sizes, read_content
from trainperf_mlflow.workloads.config import CausalLMConfig
from trainperf_mlflow.workloads.models import ResolvedModel, meta_model, resolve_architecture

CPU = torch.device("cpu")
COMPILES = (
    "the step is compiled, and the compiler plans its memory itself; estimate it without "
    "torch.compile (compile=off), or measure it on the device"
)


@contextmanager
def as_on(target: Target, ledger: Ledger) -> Iterator[None]:
    """Fake tensors, and libraries that take the paths that they would take on the target."""
    with ExitStack() as stack:
        stack.enter_context(_no_mask_for_whole_sequences())
        stack.enter_context(_no_overflow())
        stack.enter_context(_autocast_noticed(ledger))
        stack.enter_context(_conversions_in_place())
        stack.enter_context(_no_compiler(ledger))
        if target.accelerator:
            stack.enter_context(_foreach_optimizers())
            stack.enter_context(_offload_to(ledger))
            stack.enter_context(cuda_attention())
        stack.enter_context(FakeTensorMode())
        yield


def _no_mask_for_whole_sequences() -> AbstractContextManager[Any]:
    # Fake tensors count as traced, and under tracing transformers always builds the mask, which
    # would keep attention from its fast kernels. Our rows are one sequence each.
    return patch.object(masking_utils, "find_packed_sequence_indices", lambda position_ids: None)


def _no_overflow() -> AbstractContextManager[Any]:
    # Whether gradients overflow is not known without their values: every step is taken.
    def step(self: Any, optimizer: Any, state: Any, *args: Any, **kwargs: Any) -> Any:
        return optimizer.step(*args, **kwargs)

    return patch.object(torch.amp.GradScaler, "_maybe_opt_step", step)


def _autocast_noticed(ledger: Ledger) -> AbstractContextManager[Any]:
    enter: Any = torch.autocast.__enter__

    def noticed(self: torch.autocast) -> Any:
        ledger.autocast_seen |= self._enabled
        return enter(self)

    return patch.object(torch.autocast, "__enter__", noticed)


def _conversions_in_place() -> AbstractContextManager[Any]:
    # Module.to and the like swap fake parameters, which whoever else holds them forbids (peft's
    # layers do); true ones get other data.
    def set_data(tensor: Tensor, other: Tensor) -> None:
        tensor.data = other

    return patch.object(torch.utils, "swap_tensors", set_data)


def _no_compiler(ledger: Ledger) -> AbstractContextManager[Any]:
    # Compiled code runs eagerly while it is watched: the number would be another step's.
    def refuse(*args: Any, **kwargs: Any) -> Any:
        ledger.unsupported = COMPILES
        raise UnsupportedError(COMPILES)

    return patch.object(torch, "compile", refuse)


@contextmanager
def _foreach_optimizers() -> Iterator[None]:
    # On CUDA optimizers update all parameters at once, with temporaries as large as all of them.
    types = [Tensor, nn.Parameter, FakeTensor]
    with (
        patch("torch.optim.optimizer._get_foreach_kernels_supported_devices", lambda: ["cpu"]),
        patch("torch.optim.optimizer._foreach_supported_types", types),
    ):
        yield


def _offload_to(ledger: Ledger) -> AbstractContextManager[Any]:
    # Both sides are fakes on the CPU, so that a copy to the host must be told from one back.
    def pack(tensor: Tensor) -> Tensor:
        ledger.on_host = True
        try:
            return tensor.clone()
        finally:
            ledger.on_host = False

    def save_on_cpu(*args: Any, **kwargs: Any) -> AbstractContextManager[Any]:
        return torch.autograd.graph.saved_tensors_hooks(pack, torch.clone)

    return patch.object(torch.autograd.graph, "save_on_cpu", save_on_cpu)


def fake_causal_lm(config: CausalLMConfig, target: Target) -> CausalLM:
    """The built-in task of a configuration; call it within ``as_on``.

    The architecture is all that is read of a model: weights are never looked for.

    Raises:
        PlanError: the model is unknown here, the sequences are too long for it, or the text that
            is part of the memory cannot be read.
    """
    resolved = resolve_architecture(config.model, config.model_source)
    check_sizes(config, resolved)
    with torch._C._DisableTorchDispatch():
        model = meta_model(resolved.config, config.attention)
    _materialise(model)
    model.config.use_cache = False
    rows = data.RANDOM_VALIDATION_ROWS if config.data == data.RANDOM else data.TEXT_VALIDATION_ROWS
    return CausalLM(
        config,
        resolved,
        model.train(),
        _batches(config, resolved, target),
        # Evaluation runs in micro-batches, and the second one is like the first.
        _tokens(rows, config.seq_len)[: config.batch_size],
        CPU,
    )


def _batches(config: CausalLMConfig, resolved: ResolvedModel, target: Target) -> data.Batches:
    # A text stays on the host. Where that is the device too, it is part of the memory, and how
    # large it is only its tokens tell.
    if config.data == data.RANDOM or target.accelerator:
        return data.FixedBatch(_tokens(config.batch_size, config.seq_len))
    with torch._C._DisableTorchDispatch():
        tokens = read_content(config, resolved).tokens
        data.split(tokens, config.batch_size, config.seq_len, config.data)
    return _Text(torch.empty(tokens.shape, dtype=tokens.dtype, device=CPU), config)


class _Text:
    """A text that stays, and a batch made of it for each step."""

    def __init__(self, tokens: Tensor, config: CausalLMConfig) -> None:
        self.num_workers = config.num_workers
        self.resident: tuple[Tensor, ...] = (tokens,)
        self._shape = (config.batch_size, config.seq_len)

    def next(self) -> Tensor:
        rows, length = self._shape
        return self.resident[0][: rows * length].view(rows, length).long()

    def close(self) -> None:
        pass


def _tokens(rows: int, length: int) -> Tensor:
    return torch.empty(rows, length, dtype=torch.int64, device=CPU)


def _materialise(model: nn.Module) -> None:
    """Give a model on meta fake tensors on the CPU, tied ones still tied."""
    made: dict[int, Any] = {}

    def fake(old: Tensor) -> Tensor:
        if id(old) not in made:
            new = torch.empty(old.shape, dtype=old.dtype, device=CPU)
            made[id(old)] = (
                nn.Parameter(new, old.requires_grad) if isinstance(old, nn.Parameter) else new
            )
        tensor: Tensor = made[id(old)]
        return tensor

    for module in model.modules():
        for tensors in (module._parameters, module._buffers):
            for name, old in tensors.items():
                if old is not None:
                    tensors[name] = fake(old)  # type: ignore[assignment]
