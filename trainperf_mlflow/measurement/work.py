"""The work of each phase of an observed step: FLOPs, their precision, and moved bytes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from trainperf_mlflow.attribution import PHASES
from trainperf_mlflow.measurement.audit import Observer

_PRECISIONS = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}


class PhaseWork:
    """Takes from an observer's totals what each phase added."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self._flops: dict[str, dict[str, float]] = {name: defaultdict(float) for name in PHASES}
        self._bytes = dict.fromkeys(PHASES, 0)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        flops, moved = dict(self._observer.matmul_flops), self._observer.moved_bytes
        try:
            yield
        finally:
            for dtype, total in self._observer.matmul_flops.items():
                self._flops[name][dtype] += total - flops.get(dtype, 0.0)
            self._bytes[name] += self._observer.moved_bytes - moved

    def found(self) -> dict[str, Any]:
        """The fields of a ``PhaseMeasurement``, once the step is over; ``other`` is the rest."""
        flops = {name: sum(counts.values()) for name, counts in self._flops.items()}
        flops["other"] = sum(self._observer.matmul_flops.values()) - sum(flops.values())
        moved = dict(self._bytes)
        moved["other"] = self._observer.moved_bytes - sum(moved.values())
        return {
            "matmul_flops": {name: count for name, count in flops.items() if count},
            "matmul_precision": {
                name: self._precision(counts) for name, counts in self._flops.items() if flops[name]
            },
            "moved_bytes": {name: count for name, count in moved.items() if count},
        }

    def _precision(self, flops: dict[str, float]) -> str:
        dtype = max(flops, key=lambda name: flops[name])
        if dtype == "float32" and self._observer.device_type == "cuda":
            return "fp32" if torch.get_float32_matmul_precision() == "highest" else "tf32"
        return _PRECISIONS.get(dtype, dtype)
