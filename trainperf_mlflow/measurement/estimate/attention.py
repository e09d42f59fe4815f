"""Which attention kernel CUDA takes, and so whether the scores [batch, heads, len, len] are kept.

From torch's aten/src/ATen/native/transformers/cuda/sdp_utils.cpp: flash
attention needs half precision and no mask, and takes grouped key heads;
memory-efficient attention takes fp32 and masks, but no grouped heads; all else
is plain mathematics, which materialises the scores.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch.nn import functional

FLASH_MAX_HEAD_DIM = 256
_aten = torch.ops.aten


def cuda_attention() -> AbstractContextManager[Any]:
    """Run scaled-dot-product attention by the operations that CUDA would run.

    The function is replaced, since a mode for functions is off during backward,
    where checkpointing calls it again.
    """
    return patch.object(functional, "scaled_dot_product_attention", _attention)


def _attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    query, key, value = _autocast(query), _autocast(key), _autocast(value)
    kernel = cuda_kernel(query, key, masked=attn_mask is not None)
    if kernel == "flash":
        out: Tensor = _aten._scaled_dot_product_flash_attention(
            query, key, value, dropout_p, is_causal, scale=scale
        )[0]
    elif kernel == "efficient":
        bias = None if attn_mask is None else _bias(attn_mask, query, key)
        out = _aten._scaled_dot_product_efficient_attention(
            query, key, value, bias, torch.is_grad_enabled(), dropout_p, is_causal, scale=scale
        )[0]
    else:
        out = _aten._scaled_dot_product_attention_math(
            query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
        )[0]
    return out


def cuda_kernel(query: Tensor, key: Tensor, *, masked: bool) -> str:
    """``flash``, ``efficient`` or ``math``, for query and key [batch, heads, len, head_dim]."""
    head_dim = query.shape[-1]
    half = query.dtype in (torch.float16, torch.bfloat16)
    grouped = query.shape[-3] != key.shape[-3]
    if half and not masked and head_dim <= FLASH_MAX_HEAD_DIM and head_dim % 8 == 0:
        return "flash"
    if not grouped and query.dtype is not torch.float64 and head_dim % (8 if half else 4) == 0:
        return "efficient"
    return "math"


def _autocast(tensor: Tensor) -> Tensor:
    # The call is caught before autocast sees it.
    if tensor.dtype is torch.float32 and torch.is_autocast_enabled("cpu"):
        return tensor.to(torch.get_autocast_dtype("cpu"))
    return tensor


def _bias(mask: Tensor, query: Tensor, key: Tensor) -> Tensor:
    shape = (*query.shape[:-1], key.shape[-2])
    if mask.dtype is torch.bool:
        mask = torch.zeros_like(mask, dtype=query.dtype).masked_fill(~mask, float("-inf"))
    return mask.expand(shape)
