"""What a repeat's first batch holds: the same in all variants of a round, or they do not train
the same."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils import _pytree as pytree

from trainperf_mlflow.workloads.task import CallableTask, Task

# Of a very large batch the beginning of each tensor tells enough.
MAX_ELEMENTS = 1 << 22


@contextmanager
def first_batch(task: Task) -> Iterator[list[Any]]:
    """Keeps the first batch that the task hands out inside; a plain callable hands out none."""
    seen: list[Any] = []
    if isinstance(task, CallableTask):
        yield seen
        return
    original, own = task.next_batch, vars(task).get("next_batch")

    def keeping() -> Any:
        batch = original()
        if not seen:
            seen.append(batch)
        return batch

    task.next_batch = keeping  # type: ignore[method-assign]
    try:
        yield seen
    finally:
        if own is None:
            del task.next_batch
        else:
            task.next_batch = own  # type: ignore[method-assign]


def batch_digest(batch: Any) -> str | None:
    """SHA-256 of the tensors of a batch and their shapes; None where it holds none."""
    leaves = [leaf for leaf in pytree.tree_leaves(batch) if isinstance(leaf, torch.Tensor)]
    if not leaves:
        return None
    digest = hashlib.sha256()
    try:
        for leaf in leaves:
            digest.update(f"{leaf.dtype} {tuple(leaf.shape)}".encode())
            flat = leaf.detach().reshape(-1)[:MAX_ELEMENTS].cpu().contiguous()
            digest.update(flat.view(torch.uint8).numpy().tobytes())
    except (RuntimeError, NotImplementedError):  # sparse or quantised
        return None
    return digest.hexdigest()
