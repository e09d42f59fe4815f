"""A task that is nothing but multiplications, so that 5 % more of them is 5 % more work."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

SIZE = 256


def matrix_loop(config: Mapping[str, Any]) -> Callable[[], None]:
    """A step of ``config["multiplications"]`` products of two square matrices."""
    count = int(config["multiplications"])
    left, right = torch.rand(SIZE, SIZE), torch.rand(SIZE, SIZE)
    product = torch.empty(SIZE, SIZE)

    def step() -> None:
        for _ in range(count):
            torch.mm(left, right, out=product)

    return step
