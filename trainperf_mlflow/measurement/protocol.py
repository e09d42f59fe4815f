"""What a worker answers: plain records, so that the command reads them without importing torch."""

from __future__ import annotations

from typing import Literal

from pydantic import JsonValue

from trainperf_mlflow.results.record import Record
from trainperf_mlflow.results.repeats import Effect


class Built(Record):
    """The answer to ``build``."""

    build_s: float
    samples_per_step: float
    tokens_per_step: float | None
    quality_checked: bool
    environment: dict[str, JsonValue]


class Warmed(Record):
    """The answer to ``warmup``; MiB.

    ``step_ms`` are the steps of this request, without a repeat's very first one.
    """

    first_step_ms: float | None
    steps: int
    step_ms: tuple[float, ...] = ()
    held_mb: float | None = None  # by this process, where it trains
    free_mb: float | None = None  # there, for others
    data_digest: str | None = None  # of the repeat's first batch


class Trained(Record):
    """The answer to ``train``: the losses up to the first that is no number, and where they led."""

    losses: tuple[float | None, ...]
    eval_loss: float | None
    diverged: str | None = None  # why it ended early


class Finished(Record):
    """The answer to ``finish``; MiB."""

    peak_mem_mb: float | None
    peak_mem_source: Literal["accelerator_allocator", "tensor_tracker"] | None
    peak_reserved_mb: float | None
    num_alloc_retries: int | None
    host_peak_rss_mb: float | None
    eval_loss: float | None
    effects: tuple[Effect, ...]
    notes: tuple[str, ...]
