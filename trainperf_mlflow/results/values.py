"""What was measured, as a comparison reads it: blocks, repeats and variants in numbers."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from trainperf_mlflow.results.record import Record, Role, Setting, Status
from trainperf_mlflow.results.repeats import Convergence, Watch


class BlockValues(Record):
    """A block as a comparison reads it; ms per step, ``low`` being the mean of the fastest
    quarter of its steps.

    ``net`` is wall time less the time in which the thread waited for a core.
    """

    index: int
    process: int
    started_at: float  # Unix seconds
    wall_s: float  # of the whole block
    samples_per_step: float | None
    mean_ms: float
    low_ms: float
    net_mean_ms: float | None = None
    net_low_ms: float | None = None
    run_delay: float | None = None  # share of the wall time, of the thread that waited longest
    cpu: float | None = None  # CPU time over wall time
    steps: int | None = None
    faults: int | None = None  # of pages
    gc: int | None = None
    compilations: int | None = None
    watch: Watch | None = None
    again: int = 0
    losses: tuple[float | None, ...] = ()  # of evenly chosen steps, the first one's first


class StudyBlocks(Record):
    """The blocks of all repeats, by variant and round: ``blocks.json``."""

    schema_version: Literal["trainperf-blocks/v1"] = "trainperf-blocks/v1"
    variants: dict[str, dict[int, tuple[BlockValues, ...]]]


class RepeatValues(Record):
    """A repeat as a comparison reads it: status, metrics by their MLflow names, its blocks."""

    index: int
    status: Status
    error: str | None = None
    run_id: str | None = None
    quality_checked: bool = False
    seed: int | None = None
    data_digest: str | None = None  # of the first batch
    metrics: dict[str, float] = Field(default_factory=dict)
    blocks: tuple[BlockValues, ...] = ()


class VariantValues(Record):
    """A variant as a comparison reads it, from MLflow or from disk."""

    name: str
    role: Role
    status: Status
    error: str | None = None
    run_id: str | None = None
    config: dict[str, Setting] = Field(default_factory=dict)
    changed_variable: str | None = None
    effect_verified: bool | None = None
    effect_detail: str | None = None
    peak_mem_source: str | None = None
    quality_checked: bool = False  # in all of its repeats
    metrics: dict[str, float] = Field(default_factory=dict)  # means over the ok repeats
    repeats: tuple[RepeatValues, ...] = ()
    convergence: tuple[Convergence, ...] = ()  # where it was asked for
