"""What one operation does: its FLOPs, and the bytes that it moves.

Bytes are an estimate from above: each operation reads its inputs from memory and
writes its results there, as if nothing were cached and nothing fused with it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import torch
from torch.utils.flop_counter import flop_registry

from trainperf_mlflow.measurement.memory import tensors_in

_aten = torch.ops.aten
# They reserve memory or change what describes a tensor, in place.
_NO_TRAFFIC = frozenset(
    getattr(_aten, name)
    for name in (
        *("empty", "empty_like", "empty_strided", "empty_permuted", "new_empty"),
        *("new_empty_strided", "resize_", "set_", "as_strided_", "detach_", "t_", "transpose_"),
        *("squeeze_", "unsqueeze_", "record_stream"),
    )
    if hasattr(_aten, name)
)
# Of their first argument they read no more than they return.
_GATHERS = frozenset({_aten.embedding, _aten.gather, _aten.index, _aten.index_select})
# What they write to they do not read.
_OVERWRITES = frozenset(
    {_aten.bernoulli_, _aten.copy_, _aten.fill_, _aten.normal_, _aten.uniform_, _aten.zero_}
)


def counted_flops(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], out: Any) -> float:
    """FLOPs of a matrix product, a convolution or attention by torch's formulas; of others 0."""
    packet = func._overloadpacket
    # Torch has formulas for the attention of accelerators only.
    if packet is _aten._scaled_dot_product_flash_attention_for_cpu:
        return _attention_flops(*args[:3], of_width=1, of_value_width=1)
    if packet is _aten._scaled_dot_product_flash_attention_for_cpu_backward:
        # The scores once more, then the gradients of queries and keys; those of scores and values.
        return _attention_flops(*args[1:4], of_width=3, of_value_width=2)
    count = flop_registry.get(packet)
    return 0.0 if count is None else float(count(*args, **kwargs, out_val=out))


def _attention_flops(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    *,
    of_width: int,
    of_value_width: int,
) -> float:
    """So many products of scores by the heads' width, and by the values' width."""
    *heads, queries, width = query.shape
    widths = of_width * width + of_value_width * value.shape[-1]
    return float(2 * math.prod(heads) * queries * key.shape[-2] * widths)


def moved_bytes(
    func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], out: Any, device_type: str
) -> int:
    """Bytes that an operation reads and writes on one kind of device; a view moves none."""
    packet = func._overloadpacket
    if packet in _NO_TRAFFIC:
        return 0
    read = list(tensors_in((args, kwargs)))
    written = list(_written_arguments(func, args, kwargs))
    known = {_identity(tensor) for tensor in read}
    made = [tensor for tensor in tensors_in(out) if _identity(tensor) not in known]
    if not (written or made):
        return 0
    if packet in _GATHERS:
        read = [*read[1:], *made]
    if packet in _OVERWRITES or any(argument.is_out for argument in func._schema.arguments):
        overwritten = {id(tensor) for tensor in written}
        read = [tensor for tensor in read if id(tensor) not in overwritten]
    return sum(_extent(t) for t in (*read, *written, *made) if t.device.type == device_type)


def _identity(tensor: torch.Tensor) -> int:
    """The same for tensors that share memory; a sparse tensor has no one storage."""
    return tensor.untyped_storage()._cdata if tensor.layout is torch.strided else id(tensor)


def _extent(tensor: torch.Tensor) -> int:
    """Bytes of the elements that are in memory: what ``expand`` repeats is there once."""
    count = tensor.element_size()
    if tensor.layout is not torch.strided or tensor.is_nested:
        return count * tensor.numel()
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        if size == 0:
            return 0
        count *= size if stride else 1
    return count


def _written_arguments(
    func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Iterator[torch.Tensor]:
    for index, name in _written_places(func):
        yield from tensors_in(args[index] if index < len(args) else kwargs.get(name))


@cache
def _written_places(func: Any) -> tuple[tuple[int, str], ...]:
    return tuple(
        (index, argument.name)
        for index, argument in enumerate(func._schema.arguments)
        if argument.alias_info is not None and argument.alias_info.is_write
    )
