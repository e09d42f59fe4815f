"""The plain records of what explains a study: time and memory by phase, and traces.

They say where a step's time and memory go and never feed a comparison: marks,
synchronisation and a profiler all change what they look at.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field, JsonValue

from trainperf_mlflow.results.record import Record, Status

# In the order of a step. What lies outside of the four named ones is ``other``.
PHASES = ("data", "forward", "backward", "optimizer", "other")
CATEGORIES = (
    "parameters",  # weights and buffers
    "gradients",
    "optimizer_state",
    "activations",  # outlive the forward pass, or the recomputed piece of it, that made them
    "temporaries",
    "other",  # what else lives, such as the batch
    "untracked",  # what the allocator holds beyond all tensors, such as workspaces
)

# The source's own safety margins for phases on an accelerator.
MINIMUM_FREE_MARGIN_MB = 512.0
PROCESS_MEMORY_FRACTION = 0.92


class Safety(Record):
    """Whether a study's peak fits into what is free now; MiB."""

    free_memory_mb_before_load: float
    total_memory_mb: float
    projected_peak_reserved_mb: float | None  # None: nothing is known to project from
    minimum_free_margin_mb: float
    required_free_memory_mb: float | None
    process_memory_fraction: float | None  # None on a CPU, where nothing limits a process
    admitted: bool


class MemorySample(Record):
    """What lived at one moment of a step; the categories add up to all tracked memory."""

    at_ms: float  # since the step's start; the tracker itself slows this step
    phase: str
    memory_mb: dict[str, float]


class Peaks(Record):
    """What a device can do at most, and how that is known."""

    device: str
    tflops: dict[str, float]  # by precision: fp32, tf32, bf16, fp16; dense, without sparsity
    memory_gb_s: float  # GB (1e9 bytes) per second
    source: str  # a data sheet, or how it was timed here
    evidence_level: Literal["theoretical", "measured"]


class RooflinePoint(Record):
    """A step or one of its phases under the roofline of its device."""

    name: str  # "step" or a phase
    precision: str  # which of the peaks' it is held against
    time_ms: float
    flops: float  # counted
    moved_bytes: float  # estimated: each operator's inputs and outputs, nothing cached or fused
    intensity: float  # FLOP per byte
    achieved_tflops: float
    attainable_tflops: float  # min(peak, intensity x bandwidth)
    fraction: float  # achieved of attainable
    bound: Literal["compute", "memory"]


class PhaseMeasurement(Record):
    """What one fresh process showed of its phases; ms, MiB, FLOPs, bytes, each by phase."""

    # One value per step; a step's phases add up to the step.
    step_ms: tuple[float, ...]
    phase_ms: dict[str, tuple[float, ...]]
    loss: float | None = None
    peak_mem_mb: dict[str, float] = Field(default_factory=dict)
    peak_mem_source: Literal["accelerator_allocator", "tensor_tracker"] | None = None
    peak_reserved_mb: dict[str, float] = Field(default_factory=dict)
    # At the moment of the phase's peak, by category; they add up to ``peak_mem_mb``.
    memory_mb: dict[str, dict[str, float]] = Field(default_factory=dict)
    matmul_flops: dict[str, float] = Field(default_factory=dict)
    matmul_precision: dict[str, str] = Field(default_factory=dict)  # of most of these FLOPs
    moved_bytes: dict[str, float] = Field(default_factory=dict)
    # One step's memory over time, at most 400 samples, peaks kept.
    memory_over_step: tuple[MemorySample, ...] = ()
    peaks: Peaks | None = None  # of the device it ran on, where they are known
    recomputed_modules: int | None = None  # module calls that backward repeated
    notes: tuple[str, ...] = ()


class Operator(Record):
    """An operator's own time in a trace, without what it calls; ms over all active steps."""

    name: str
    calls: int
    self_cpu_ms: float
    self_device_ms: float | None = None  # None where the trace has no device


class TraceMeasurement(Record):
    """What one profiled process showed; the trace itself is in a file."""

    active_steps: int
    step_ms: float  # profiled, mean of the active steps
    plain_step_ms: float  # the same steps unprofiled, in the same process
    activities: tuple[str, ...]
    trace_bytes: int  # as JSON, before compression
    operators: tuple[Operator, ...]
    phase_ms: dict[str, float]  # as the trace's marks show them, per step, on the host
    # What the trace's analysis says of a profiled step; ms, as `analysis.traces` explains.
    parts_ms: dict[str, float] = Field(default_factory=dict)  # add up to the step
    kinds_ms: dict[str, float] = Field(default_factory=dict)
    matmul_precision_ms: dict[str, float] = Field(default_factory=dict)
    recompute_ms: float | None = None  # None: the trace cannot tell
    loss: float | None = None
    peak_mem_mb: float | None = None
    peak_mem_source: Literal["accelerator_allocator", "tensor_tracker"] | None = None
    peak_reserved_mb: float | None = None
    notes: tuple[str, ...] = ()

    @property
    def slowdown(self) -> float:
        """Profiled over plain step time."""
        return self.step_ms / self.plain_step_ms


class Attempt(Record):
    """One fresh process that was to explain a variant, however it ended."""

    variant: str
    index: int  # the round, from 0
    status: Status
    error: str | None = None
    samples_per_step: float | None = None
    environment: dict[str, JsonValue] = Field(default_factory=dict)
    phases: PhaseMeasurement | None = None
    trace: TraceMeasurement | None = None
