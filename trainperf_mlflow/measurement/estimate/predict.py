"""Run a variant's steps on fake tensors and read the ledger."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from torch import nn
from torch._dynamo.eval_frame import OptimizedModule

from trainperf_mlflow.analysis.estimate import (
    PhaseEstimate,
    VariantEstimate,
    explain_peak,
    fits,
    training_peak,
)
from trainperf_mlflow.errors import TrainperfError, UnsupportedError
from trainperf_mlflow.measurement.account import (
    BACKWARD,
    DATA,
    EVALUATION,
    FORWARD,
    GRADIENTS,
    OPTIMIZER,
    PARAMETERS,
    moments,
    peaks_by_phase,
)
from trainperf_mlflow.measurement.allocator import ExactAllocator
from trainperf_mlflow.measurement.estimate.fakes import COMPILES, CPU, as_on, fake_causal_lm
from trainperf_mlflow.measurement.estimate.ledger import Ledger
from trainperf_mlflow.measurement.estimate.target import Target
from trainperf_mlflow.measurement.memory import MIB
from trainperf_mlflow.results.record import Setting
from trainperf_mlflow.results.study import Variant
from trainperf_mlflow.workloads.causal_lm import parse_config
from trainperf_mlflow.workloads.config import CausalLMConfig
from trainperf_mlflow.workloads.support import check_compile_mode
from trainperf_mlflow.workloads.task import (
    CallableTask,
    FactoryError,
    Task,
    build_task,
    is_custom,
)

PHASES = (FORWARD, BACKWARD, OPTIMIZER, EVALUATION)
# Later micro-steps repeat the second one.
MICROSTEPS = 2


def estimate_variant(
    task: str,
    variant: Variant,
    target: Target,
    device_memory_mb: float | None = None,
    *,
    traffic: bool = False,
) -> VariantEstimate:
    """Predict one variant's step; what cannot be modelled is ``unsupported``, with the reason.

    Raises:
        PlanError: the task, its model or a setting cannot be had on any device.
    """
    try:
        found = (
            _custom_step(task, variant.config, target, traffic)
            if is_custom(task)
            else causal_lm_step(parse_config(task, variant.config), target, traffic=traffic)
        )
    except UnsupportedError as error:
        return VariantEstimate(
            variant=variant.name, role=variant.role, status="unsupported", reason=str(error)
        )
    phases = found.phases
    name, peak = training_peak(phases)
    return VariantEstimate(
        variant=variant.name,
        role=variant.role,
        status="ok",
        peak_mem_mb=peak,
        peak_phase=name,
        phases=phases,
        flops_per_step=sum(phases[name].flops for name in phases if name != EVALUATION),
        fits=None if device_memory_mb is None else fits(phases, device_memory_mb),
        why=explain_peak(phases, found.floor_mb),
        not_modelled=found.not_modelled,
    )


class Step(NamedTuple):
    """A predicted step, and what of it no rule stands for."""

    phases: dict[str, PhaseEstimate]
    not_modelled: tuple[str, ...]
    floor_mb: float | None  # what the optimizer step takes, whatever an allocator adds


def causal_lm_step(config: CausalLMConfig, target: Target, *, traffic: bool = False) -> Step:
    """The built-in task's step.

    Raises:
        PlanError: the model is unknown here, the sequences are too long for it, or a text that is
            part of the memory cannot be read.
        UnsupportedError: it cannot be modelled.
    """
    check_compile_mode(config.compile)
    if config.compile != "off":
        raise UnsupportedError(COMPILES)
    if config.offload and not target.accelerator:
        raise UnsupportedError("offload moves saved tensors to the host, which the CPU is itself")
    ledger = _ledger(target, fused=config.fused, traffic=traffic)
    try:
        with as_on(target, ledger):
            phases, floor = _phases(
                lambda: fake_causal_lm(config, target), ledger, target, same_passes=True
            )
    except RuntimeError as error:  # also those of fake tensors whose values would be needed
        raise UnsupportedError(_reason(error)) from error
    return Step(phases, _not_modelled(target, ledger), floor)


def _custom_step(task: str, config: Mapping[str, Setting], target: Target, traffic: bool) -> Step:
    ledger = _ledger(target, traffic=traffic)
    try:
        with as_on(target, ledger):
            phases, floor = _phases(lambda: build_task(task, config, 0, CPU, 0), ledger, target)
    # Whatever a task does that cannot be done without values; also where it ends the process.
    except (Exception, SystemExit) as error:
        if ledger.unsupported is not None:
            raise UnsupportedError(ledger.unsupported) from error
        if isinstance(error, TrainperfError):
            raise
        # What torch raises of a tensor without values is a RuntimeError.
        if isinstance(error, FactoryError) and not isinstance(error.__cause__, RuntimeError):
            raise UnsupportedError(str(error)) from error
        raise UnsupportedError(_reason(error)) from error
    if ledger.unsupported is not None:
        raise UnsupportedError(ledger.unsupported)
    if ledger.autocast_seen and target.accelerator:
        raise UnsupportedError(
            "the task uses autocast, which chooses dtypes by other lists on the CPU than on "
            f"{target.kind}; estimate it without, or measure it on the device"
        )
    return Step(phases, _not_modelled(target, ledger), floor)


def _not_modelled(target: Target, ledger: Ledger) -> tuple[str, ...]:
    """What holds for every step on the target, and what this one does besides."""
    found = list(target.not_modelled)
    if target.accelerator and ledger.convolution_seen:
        found.append(
            "workspaces of convolutions (cuDNN), whose size depends on the algorithm that it takes"
        )
    if target.accelerator and ledger.autocast_seen:
        found.append(f"autocast by the lists of {target.kind}: those of the CPU are taken")
    return tuple(found)


def _ledger(target: Target, *, fused: bool = False, traffic: bool = False) -> Ledger:
    return Ledger(
        workspace=target.workspace,
        traffic=traffic,
        host_scalars=target.accelerator and not fused,
    )


def _reason(error: BaseException) -> str:
    if isinstance(error, FactoryError) and error.__cause__ is not None:
        error = error.__cause__
    lines = str(error).strip().splitlines() or [""]
    return (
        "the step cannot be followed without the tensors' values "
        f"({type(error).__name__}: {lines[0][:200]}); measure it on the device"
    )


def _phases(
    build: Callable[[], Task], ledger: Ledger, target: Target, *, same_passes: bool = False
) -> tuple[dict[str, PhaseEstimate], float | None]:
    """Trace two steps and an evaluation, and account for the second step: like all that follow.

    Also the least that the optimizer step takes, in MiB.

    The first step makes the optimizer's state. ``same_passes``: forward and
    backward of the second are known to be those of the first, and not traced anew.
    """
    task = build()
    if isinstance(task, CallableTask):
        raise UnsupportedError(
            "a plain callable has no phases; return a trainperf_mlflow.Task from the factory"
        )
    if any(_is_compiled(module) for root in task.modules() for module in root.modules()):
        raise UnsupportedError(COMPILES)
    _register(task, ledger)
    with ledger:
        first = _trace_passes(task, ledger)
        state = _trace_update(task, ledger)
        second = first if same_passes else _trace_passes(task, ledger)
        measured = [*second, _trace_update(task, ledger)]
        ledger.begin(EVALUATION)
        if task.evaluate() is not None:
            measured.append(len(ledger.segments) - 1)
    segments = ledger.segments
    warm = [0, *first, state]
    peaks, exact = (
        peaks_by_phase(moments(ledger.lives, segments, warm, measured, allocator), segments)
        for allocator in (target.allocator(), ExactAllocator())
    )
    repeated = task.microsteps / min(task.microsteps, MICROSTEPS)
    phases = {
        name: PhaseEstimate(
            peak_mem_mb=peaks[name].bytes / MIB,
            categories={key: size / MIB for key, size in peaks[name].categories.items()},
            flops=sum(segments[i].flops for i in measured if segments[i].name == name)
            * (repeated if name in (FORWARD, BACKWARD) else 1),
            moved_bytes=sum(segments[i].moved_bytes for i in measured if segments[i].name == name)
            * (repeated if name in (FORWARD, BACKWARD) else 1)
            or None,
        )
        for name in PHASES
        if name in peaks
    }
    return phases, exact[OPTIMIZER].bytes / MIB if OPTIMIZER in exact else None


def _is_compiled(module: nn.Module) -> bool:
    return isinstance(module, OptimizedModule) or module._compiled_call_impl is not None


def _register(task: Task, ledger: Ledger) -> None:
    def mark_gradient(parameter: object) -> None:
        gradient = getattr(parameter, "grad", None)
        if gradient is not None:
            ledger.label([gradient], GRADIENTS)

    for module in task.modules():
        ledger.label(module.parameters(), PARAMETERS)
        ledger.label(module.buffers(), PARAMETERS)
        for parameter in module.parameters():
            if parameter.requires_grad:
                parameter.register_post_accumulate_grad_hook(mark_gradient)
    ledger.track(task.state_tensors())


def _trace_passes(task: Task, ledger: Ledger) -> list[int]:
    # With _trace_update as workloads.task.run_step, the phases told apart.
    task.zero_grad()
    begun = len(ledger.segments)
    for _ in range(min(task.microsteps, MICROSTEPS)):
        ledger.begin(DATA)
        batch = task.next_batch()
        ledger.begin(FORWARD)
        loss = task.forward(batch)
        ledger.begin(BACKWARD)
        task.backward(loss)
    return list(range(begun, len(ledger.segments)))


def _trace_update(task: Task, ledger: Ledger) -> int:
    ledger.begin(OPTIMIZER)
    task.optimizer_step()
    return len(ledger.segments) - 1
