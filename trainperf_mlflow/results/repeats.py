"""What was measured: the blocks and effects of a repeat, and the longer training."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, JsonValue

from trainperf_mlflow.results.record import Record, Setting, Status


class DeviceState(Record):
    """An accelerator right after a block, as its maker's library tells it."""

    clock_mhz: float | None = None
    temperature_c: float | None = None
    power_w: float | None = None
    throttled: tuple[str, ...] = ()  # what held its clock down: heat, power


class Watch(Record):
    """The machine around a block; shares are of the block's time, 0 to 1."""

    others_cores: float | None = None  # that other processes kept busy
    steal: float | None = None  # of all cores' time, taken by the host's other guests
    cpu_pressure: float | None = None  # some process waited for a core
    memory_pressure: float | None = None  # some process waited for memory
    # A fixed small computation, right before and after; ms.
    reference_ms: tuple[float, float] | None = None
    device: DeviceState | None = None


class Block(Record):
    """Consecutive measured steps, the device synchronised at both ends."""

    index: int
    started_at: float  # Unix seconds
    wall_ms: float  # the whole block
    step_ms: tuple[float, ...]
    losses: tuple[float | None, ...]
    process: int = 0  # which process of the repeat; more than one where each block has its own
    # Per step: how long the working thread was runnable but waited for a core.
    step_run_delay_ms: tuple[float, ...] = ()
    # What disturbed the block, where the system tells it.
    cpu_ms: float | None = None
    run_delay_ms: float | None = None  # the working thread was runnable, but waited for a core
    threads_delay_ms: float | None = None  # the same of the thread that waited longest
    involuntary_switches: int | None = None
    page_faults: int | None = None
    gc_collections: int | None = None
    compilations: int | None = None  # by torch.compile
    watch: Watch | None = None
    again: int = 0  # how often it was measured before, because it or its pair was disturbed


class Effect(Record):
    """Whether one changed setting is really in effect on the live task."""

    key: str
    wanted: Setting
    verified: bool | None  # None: could not be checked
    detail: str


class Repeat(Record):
    """One fresh process with a fresh initialisation of one variant: ``result.json``."""

    schema_version: Literal["trainperf-repeat/v1"] = "trainperf-repeat/v1"
    study_id: str
    variant: str
    index: int  # the round, from 0
    seed: int
    status: Status
    error: str | None = None
    started_at: float  # Unix seconds
    ended_at: float
    data_digest: str | None = None  # of the first batch; None where nobody could look
    samples_per_step: float | None = None
    tokens_per_step: float | None = None
    build_s: float | None = None
    warmup_steps: int = 0
    first_step_ms: float | None = None
    blocks: tuple[Block, ...] = ()
    peak_mem_mb: float | None = None
    peak_mem_source: Literal["accelerator_allocator", "tensor_tracker", "reported"] | None = None
    peak_reserved_mb: float | None = None
    num_alloc_retries: int | None = None
    host_peak_rss_mb: float | None = None
    loss: float | None = None  # of the last measured step
    eval_loss: float | None = None
    quality_checked: bool = False  # eval_loss was taken on held-out real data
    # Imported: the metrics as they were published, by their MLflow names, instead of blocks.
    reported: dict[str, float] = Field(default_factory=dict)
    effects: tuple[Effect, ...] = ()
    notes: tuple[str, ...] = ()  # what could not be measured, and why
    environment: dict[str, JsonValue] = Field(default_factory=dict)  # -> environment.json


class Convergence(Record):
    """One variant trained from its initialisation with one seed, untimed, then evaluated."""

    index: int  # the round whose seed it has
    seed: int
    status: Status
    error: str | None = None
    steps: int  # asked for
    every: int = 1  # the step between two of the losses, the first one's first
    losses: tuple[float | None, ...] = ()
    eval_loss: float | None = None
    quality_checked: bool = False  # eval_loss was taken on held-out real data
    ended_at: float = 0.0  # Unix seconds


class StudyConvergence(Record):
    """The longer training of all variants, seed by seed: ``convergence.json``."""

    schema_version: Literal["trainperf-convergence/v1"] = "trainperf-convergence/v1"
    variants: dict[str, tuple[Convergence, ...]]
