"""What runs inside a worker process: one repeat of one variant, step by step on request.

The worker stays alive between requests, so that blocks of two workers can
take turns. It answers with plain records; errors become a status and a text.
"""

from __future__ import annotations

import math
import os
import time
import traceback
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from typing import Any

import torch
from pydantic import JsonValue

from trainperf_mlflow.analysis.estimate import VariantEstimate
from trainperf_mlflow.analysis.noise import SLOW_REFERENCE
from trainperf_mlflow.attribution import PhaseMeasurement, Safety, TraceMeasurement
from trainperf_mlflow.errors import TrainperfError
from trainperf_mlflow.measurement.audit import audit
from trainperf_mlflow.measurement.batches import batch_digest, first_batch
from trainperf_mlflow.measurement.environment import environment
from trainperf_mlflow.measurement.memory import (
    allocator_peak,
    reset_allocator_peak,
    reset_rss_peak,
    rss_peak_mb,
)
from trainperf_mlflow.measurement.nvidia import device_state
from trainperf_mlflow.measurement.protocol import Built, Finished, Trained, Warmed
from trainperf_mlflow.measurement.timing import (
    diverged,
    first_step,
    read_losses,
    timed_block,
)
from trainperf_mlflow.measurement.watch import between, reading, reference_ms
from trainperf_mlflow.messages import encodable
from trainperf_mlflow.results.record import Setting, Status
from trainperf_mlflow.results.repeats import Block, Effect
from trainperf_mlflow.results.study import Variant, Workload
from trainperf_mlflow.workloads.task import FactoryError, Task, build_task, run_step

MAX_ERROR_CHARS = 4000
LOSSES_AT_ONCE = 100
CALM_INTERVAL_S = 0.05


class DivergedError(Exception):
    """A loss is NaN or infinite."""


class Repeat:
    """The state of a repeat: the live task on its device."""

    def __init__(self) -> None:
        self._task: Task | None = None
        self._warm = False
        self._data_digest: str | None = None

    @property
    def task(self) -> Task:
        if self._task is None:
            raise RuntimeError("no task has been built yet")
        return self._task

    def describe(self, **arguments: Any) -> Workload:
        from trainperf_mlflow.workloads.describe import describe

        return describe(**arguments)

    def preflight(self) -> list[dict[str, str]]:
        from trainperf_mlflow.measurement.preflight import torch_checks

        _use_threads()
        return [check.model_dump() for check in torch_checks()]

    def build(
        self,
        task: str,
        config: Mapping[str, Setting],
        changed: Mapping[str, Setting],
        seed: int,
        data_seed: int,
        device: str,
    ) -> Built:
        _use_threads()
        self.device = torch.device(device)
        self.changed = dict(changed)
        self.compiled = config.get("compile", "off") not in ("off", False, None)
        begin = time.perf_counter()
        self._task = build_task(task, config, seed, self.device, data_seed)
        samples = float(self.task.samples_per_step)
        if not (math.isfinite(samples) and samples > 0):
            raise ValueError(f"samples_per_step is {samples}; a step has a positive number of them")
        return Built(
            build_s=time.perf_counter() - begin,
            samples_per_step=samples,
            tokens_per_step=self.task.tokens_per_step,
            quality_checked=self.task.quality_checked,
            environment=environment(self.device),
        )

    def _step(self) -> Any:
        return run_step(self.task)

    def warmup(self, steps: int) -> Warmed:
        """Steps that are not measured; the very first one's time is kept apart.

        The peaks are reset at the end, so that they are those of measured steps.
        """
        from trainperf_mlflow.measurement.safety import held_and_free_mb

        first_step_ms: float | None = None
        step_ms: tuple[float, ...] = ()
        left = steps
        if steps and not self._warm:
            self._warm, left = True, steps - 1
            with first_batch(self.task) as batches:
                first_step_ms, loss = first_step(self._step, self.device)
            self._data_digest = batch_digest(batches[0]) if batches else None
            self._refuse_divergence((loss,))
        if left:
            block = timed_block(self._step, left, self.device, index=0)
            self._refuse_divergence(block.losses)
            step_ms = block.step_ms
        held_mb, free_mb = held_and_free_mb(self.device)
        reset_allocator_peak(self.device)
        reset_rss_peak()
        return Warmed(
            first_step_ms=first_step_ms,
            steps=steps,
            step_ms=step_ms,
            held_mb=held_mb,
            free_mb=free_mb,
            data_digest=self._data_digest,
        )

    def block(self, index: int, steps: int) -> Block:
        before, reference = reading(), reference_ms()
        block = timed_block(self._step, steps, self.device, index)
        state = device_state(self.device)
        watch = between(before, reading(), (reference, reference_ms()), state)
        return block.model_copy(update={"watch": watch})

    def calm(self, usual_ms: float, at_most_s: float) -> float:
        """Wait until the reference computation takes no longer than usual; how long that was."""
        begin = time.monotonic()
        while (waited := time.monotonic() - begin) < at_most_s:
            if reference_ms() <= SLOW_REFERENCE * usual_ms:
                break
            time.sleep(CALM_INTERVAL_S)
        return waited

    def finish(self) -> Finished:
        """Everything that must not disturb the measured steps, in this order: the peaks of
        training, the evaluation (whose own peak may be higher), the observed step."""
        allocator = allocator_peak(self.device)
        rss_mb = rss_peak_mb()
        eval_loss = self.task.evaluate()
        self._refuse_divergence((eval_loss,))
        notes = []
        effects: tuple[Effect, ...] = ()
        peak_mb = None
        try:
            from trainperf_mlflow.workloads.effects import verify_effects

            seen = audit(self.task, self.device, self.compiled)
            peak_mb = seen.peak_mem_mb
            effects = verify_effects(self.task, self.changed, seen.observed)
        except Exception as error:
            # Watching failed, not the training: what was measured stays.
            notes.append(f"the observed step failed, so effects are not proven: {error!r}"[:500])
        if self.device.type == "cpu" and peak_mb is None:
            notes.append("peak memory was not measured: no tensor was seen during a step")
        self.task.close()
        return Finished(
            peak_mem_mb=allocator.allocated_mb if allocator else peak_mb,
            peak_mem_source="accelerator_allocator"
            if allocator
            else ("tensor_tracker" if peak_mb is not None else None),
            peak_reserved_mb=allocator.reserved_mb if allocator else None,
            num_alloc_retries=allocator.alloc_retries if allocator else None,
            host_peak_rss_mb=rss_mb,
            eval_loss=eval_loss,
            effects=effects,
            notes=tuple(notes),
        )

    def train(self, steps: int) -> Trained:
        """Steps that nobody times, and the evaluation after them."""
        losses: list[float | None] = []
        while len(losses) < steps:
            # Reading a loss waits for the device, and so may keep many of them there.
            some = [self._step() for _ in range(min(LOSSES_AT_ONCE, steps - len(losses)))]
            losses += read_losses(some)
            if diverged(tuple(losses)):
                last = next(n for n, loss in enumerate(losses) if diverged((loss,)))
                text = f"the loss became {losses[last]} in step {last + 1}"
                return Trained(losses=tuple(losses[:last]), eval_loss=None, diverged=text)
        eval_loss = self.task.evaluate()
        self.task.close()
        bad = f"the eval loss became {eval_loss}" if diverged((eval_loss,)) else None
        return Trained(losses=tuple(losses), eval_loss=None if bad else eval_loss, diverged=bad)

    def safety(self, device: str, projected_mb: float | None) -> Safety:
        """Before anything is built: does the projected peak fit into what is free?

        On an accelerator this process is then held to its share of the memory.
        """
        from trainperf_mlflow.measurement.safety import limit_process_memory, memory_safety

        found = memory_safety(torch.device(device), projected_mb)
        limit_process_memory(torch.device(device))
        return found

    def phases(self, steps: int) -> PhaseMeasurement:
        """Time and memory by phase, instead of blocks that are measured for a comparison."""
        from trainperf_mlflow.measurement.peaks import device_peaks
        from trainperf_mlflow.measurement.phases import measure_phases

        measured = measure_phases(self.task, steps, self.device, self.compiled)
        self._refuse_divergence((measured.loss,))
        self.task.close()
        return measured.model_copy(update={"peaks": device_peaks(self.device)})

    def profile(self, steps: int, top: int, path: str) -> TraceMeasurement:
        """A trace of some steps in the file ``path``."""
        from trainperf_mlflow.measurement.profiling import measure_trace

        measured = measure_trace(self.task, steps, top, path, self.device, self.compiled)
        self._refuse_divergence((measured.loss,))
        self.task.close()
        return measured

    def predict(
        self, task: str, variant: Variant, device: str, environment: Mapping[str, JsonValue]
    ) -> VariantEstimate:
        """The memory of a variant on a device that this process never opens."""
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
        from trainperf_mlflow.measurement.estimate.predict import estimate_variant
        from trainperf_mlflow.measurement.estimate.target import measured_target

        return estimate_variant(task, variant, measured_target(device, environment))

    def _refuse_divergence(self, losses: tuple[float | None, ...]) -> None:
        if diverged(losses):
            raise DivergedError(f"the loss became {next(x for x in losses if diverged((x,)))}")


def _use_threads() -> None:
    torch.set_num_threads(int(os.environ.get("TRAINPERF_THREADS", "1")))


def serve(connection: Connection) -> None:
    """Answer requests until the command closes the connection."""
    repeat = Repeat()
    requests: dict[str, Callable[..., Any]] = {
        name: getattr(repeat, name)
        for name in (
            *("describe", "preflight", "safety"),
            *("build", "warmup", "calm", "block", "finish", "train", "phases", "profile"),
            "predict",
        )
    }
    while True:
        try:
            name, arguments = connection.recv()
        except (EOFError, ConnectionError):
            return
        try:
            answer: tuple[str, Any] = ("done", requests[name](**arguments))
        except TrainperfError as error:
            answer = ("refused", (refusal_of(error), encodable(str(error))))
        except BaseException as error:
            # SystemExit and KeyboardInterrupt of a user's task are failures of that task too.
            traceback.print_exc()
            answer = ("failed", (status_of(error), describe_error(error)))
        connection.send(answer)


def refusal_of(error: TrainperfError) -> type[TrainperfError]:
    """The toolkit's own class of an error: a subclass of a task's may not exist elsewhere."""
    return next(
        kind for kind in type(error).__mro__ if kind.__module__ == TrainperfError.__module__
    )


def status_of(error: BaseException) -> Status:
    """Which status an exception means.

    >>> status_of(MemoryError()).value
    'oom'
    """
    if isinstance(error, FactoryError) and error.__cause__ is not None:
        return status_of(error.__cause__)
    if isinstance(error, DivergedError):
        return Status.DIVERGED
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return Status.OOM
    # The CPU allocator raises a plain RuntimeError.
    if isinstance(error, RuntimeError) and (
        "can't allocate memory" in str(error) or "out of memory" in str(error).lower()
    ):
        return Status.OOM
    return Status.FAILED


def describe_error(error: BaseException) -> str:
    """The error in one text: its type, its message, and where it was raised."""
    if isinstance(error, FactoryError):
        return encodable(str(error)[:MAX_ERROR_CHARS])
    text = f"{type(error).__name__}: {error}".strip()
    frames = traceback.extract_tb(error.__traceback__)
    if frames:
        text += f" (at {os.path.basename(frames[-1].filename)}:{frames[-1].lineno})"  # noqa: PTH119
    return encodable(text[:MAX_ERROR_CHARS])
