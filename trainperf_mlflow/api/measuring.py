"""Measure a plan's variants into MLflow, compare them and decide."""

from __future__ import annotations

import hashlib
import json
import shlex
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TextIO

import trainperf_mlflow
from trainperf_mlflow.analysis.assessment import assess
from trainperf_mlflow.analysis.sequential import hopeless
from trainperf_mlflow.api.annotating import annotate, note_of
from trainperf_mlflow.api.converging import converge
from trainperf_mlflow.api.pages import attach_report
from trainperf_mlflow.api.picturing import measured_pictures
from trainperf_mlflow.api.planning import as_plan
from trainperf_mlflow.api.predicting import predict_measured
from trainperf_mlflow.decisions.evidence import OPEN_REASONS
from trainperf_mlflow.decisions.goal import refuse_unmeasurable
from trainperf_mlflow.decisions.policies import POLICIES
from trainperf_mlflow.decisions.study import decide_study
from trainperf_mlflow.errors import Interrupted, MeasurementError, PlanError, StoreError
from trainperf_mlflow.measurement.conductor import Job, conduct
from trainperf_mlflow.measurement.launcher import Launcher, WorkerError
from trainperf_mlflow.measurement.machine import machine_digest
from trainperf_mlflow.measurement.preflight import machine_checks
from trainperf_mlflow.messages import encodable
from trainperf_mlflow.plan import Plan
from trainperf_mlflow.reporting.note import run_note
from trainperf_mlflow.reporting.progress import Progress
from trainperf_mlflow.results.check import Check
from trainperf_mlflow.results.comparison import Comparison
from trainperf_mlflow.results.record import Status
from trainperf_mlflow.results.repeats import Repeat
from trainperf_mlflow.results.study import Calibration, Study, Variant, Workload
from trainperf_mlflow.results.values import VariantValues
from trainperf_mlflow.signals import Interruption, interruptible

if TYPE_CHECKING:
    from trainperf_mlflow.tracking.recorder import Recorder
    from trainperf_mlflow.tracking.store import Store

# Loading a large model from a slow disk or a hub takes its time, a hang takes forever.
DESCRIBE_TIMEOUT_S = 3600.0


def measure(
    plan: Plan | Mapping[str, Any] | str | Path,
    *,
    tracking_uri: str | None = None,
    experiment: str | None = None,
    progress: TextIO | None = None,
) -> Comparison:
    """Measure a plan's variants into MLflow, compare them and decide.

    Args:
        plan: a ``Plan``, a mapping with its keys, or the path of a YAML file.
        tracking_uri: MLflow store; by default MLFLOW_TRACKING_URI, else ``mlflow.db`` here.
        experiment: MLflow experiment; by default ``trainperf``.
        progress: where to tell the progress and warnings, e.g. ``sys.stderr``.

    Raises:
        PlanError: the plan is invalid, or names a model, data or task that is not there.
        MeasurementError: this machine cannot measure it, or no baseline repeat succeeded.
        StoreError: the store fails at the start, or could not be reached until the end
            (the results then wait on disk).
        Interrupted: a signal ended the study; what was measured is in MLflow.

    >>> import trainperf_mlflow as tp
    >>> plan = tp.Plan(candidates=["checkpoint"], repeats=1, iters=2)
    >>> comparison = tp.measure(plan)
    >>> comparison.candidates[0].delta["peak_mem_mb"] > 0
    True
    """
    plan = as_plan(plan)
    if plan.ladder is not None:
        raise PlanError("a ladder is several studies; measure it with tp.measure_ladder(plan)")
    if plan.probe and plan.convergence_steps is not None:
        raise PlanError(
            f"convergence_steps is {plan.convergence_steps}, but a probe compares nothing; "
            "leave one of them out"
        )
    return measured(
        plan, plan.variants(), tracking_uri=tracking_uri, experiment=experiment, progress=progress
    )


def measured(
    plan: Plan,
    variants: tuple[Variant, ...],
    *,
    kind: Literal["study", "calibration"] = "study",
    tracking_uri: str | None,
    experiment: str | None,
    progress: TextIO | None,
) -> Comparison:
    """Measure these variants under the schedule of a plan; raises what ``measure`` does."""
    with ExitStack() as stack:
        interruption = stack.enter_context(interruptible())
        # The server imports torch while this process imports mlflow.
        launcher = stack.enter_context(Launcher())
        from trainperf_mlflow.tracking.health import spool_check
        from trainperf_mlflow.tracking.recorder import Recorder
        from trainperf_mlflow.tracking.spool import Spool
        from trainperf_mlflow.tracking.store import open_store

        spool = Spool()
        _preflight((*machine_checks(), spool_check(spool)), progress)
        store = open_store(tracking_uri, experiment)
        workload = describe(plan, launcher, variants, plan.device)
        if kind == "study":
            refuse_unmeasurable(plan.goal, workload.device)
        total = len(variants) * plan.looks[-1]
        teller = Progress(total, progress) if progress is not None else None
        if teller is not None:
            stack.enter_context(teller)
        say = teller.say if teller is not None else _silent
        abandoned = spool.abandoned()
        if abandoned:
            say(
                f"{len(abandoned)} interrupted studies wait on disk ({abandoned[0]} ...); "
                "'trainperf recover' sends what MLflow lacks of them"
            )
        study = _study(plan, variants, workload, kind)
        if kind == "study":
            study = study.model_copy(update={"calibration": _calibration(store, study, say)})
        # A run that was made but whose id is not known yet could never be ended.
        with interruption.later():
            recorder = Recorder.start(store, study, spool=spool, warn=say)
        try:
            job = _job(plan, recorder.study)
            _run(plan, job, recorder, launcher, teller, interruption)
            if plan.convergence_steps is not None and kind == "study":
                converge(job, plan.convergence_steps, recorder, launcher, interruption, say)
            predict_measured(recorder, launcher, say)
            interruption.check()
            comparison = _compare(store, recorder, say)
        except Interrupted as interrupt:
            recorder.kill()
            raise Interrupted(
                interrupt.signum,
                f"interrupted; what was measured is kept in study {recorder.study_id}, "
                f"decide about it with: trainperf compare {recorder.study_id}",
            ) from None
        except BaseException as error:
            recorder.fail(str(error) or repr(error))
            raise
        return comparison


def _silent(message: str) -> None:
    pass


def _preflight(checks: tuple[Check, ...], progress: TextIO | None) -> None:
    failed = [check for check in checks if check.status == "fail"]
    if failed:
        raise MeasurementError(
            "; ".join(f"{check.check}: {check.detail}; {check.remedy}" for check in failed)
        )
    if progress is not None:
        for check in checks:
            # A closed terminal or a full disk behind it is no reason not to measure.
            if check.status == "warn":
                with suppress(OSError, ValueError):
                    progress.write(f"{check.check}: {check.detail}; {check.remedy}\n")


def describe(
    plan: Plan, launcher: Launcher, variants: tuple[Variant, ...], device: str
) -> Workload:
    """The workload as it is on this machine.

    Raises:
        PlanError: the model, data or task is not there.
        MeasurementError: the device is not there, or preparing failed.
    """
    with launcher.worker() as worker:
        try:
            workload: Workload = worker.ask(
                "describe",
                timeout=min(plan.max_time or DESCRIBE_TIMEOUT_S, DESCRIBE_TIMEOUT_S),
                task=plan.task,
                variants=variants,
                seed=plan.seed,
                device=device,
                name=plan.workload_name,
            )
        except WorkerError as error:
            raise MeasurementError(f"the workload cannot be prepared: {error.text}") from None
    return workload


def _study(
    plan: Plan,
    variants: tuple[Variant, ...],
    workload: Workload,
    kind: Literal["study", "calibration"],
) -> Study:
    policy = POLICIES[plan.policy_name]
    return Study(
        study_id="",  # the recorder gives it the run's
        name=plan.study or f"{plan.workload_name}: {_names(plan, kind)}"[:200],
        plan=plan.model_dump(mode="json"),
        policy=policy.name,
        goal=plan.goal,
        hypothesis=plan.hypothesis,
        thresholds={**policy.thresholds, **plan.threshold},
        variants=variants,
        workload=workload,
        kind=kind,
        machine_digest=machine_digest(),
        baseline_digest=_baseline_digest(plan, variants, workload),
        label=plan.label,
        command=_command(),
        created_at=time.time(),
        toolkit_version=trainperf_mlflow.__version__,
    )


def _command() -> str:
    """How this study was asked for, without passwords and fit for every encoding."""
    from trainperf_mlflow.tracking.uris import masked

    program, *arguments = sys.argv
    if Path(program).name in ("__main__.py", "trainperf"):
        program = "trainperf"
    return encodable(shlex.join([program, *map(masked, arguments)]))


def _names(plan: Plan, kind: str) -> str:
    if kind == "calibration":
        return kind
    return ", ".join(candidate.name for candidate in plan.candidates) or "probe"


def _baseline_digest(plan: Plan, variants: tuple[Variant, ...], workload: Workload) -> str:
    """SHA-256 of what the baseline trains: the workload's own digest leaves changes out, so that
    it differs between studies of one baseline."""
    base = next((variant for variant in variants if variant.role == "baseline"), variants[0])
    known = {"task": plan.task, "config": base.config, "device": workload.device}
    text = json.dumps(known, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _calibration(store: Store, study: Study, warn: Callable[[str], None]) -> Calibration | None:
    """What this machine is known to make of identical code; a study can do without."""
    from trainperf_mlflow.tracking.calibrations import find_calibration

    try:
        return find_calibration(
            store, study.machine_digest or "", study.baseline_digest or "", study.workload.device
        )
    except StoreError as error:
        warn(f"no calibration is used: {error}")
        return None


def _job(plan: Plan, study: Study) -> Job:
    return Job(
        study_id=study.study_id,
        task=plan.task,
        variants=study.variants,
        workload=study.workload,
        repeats=plan.looks[-1],
        blocks=plan.blocks_per_repeat,
        warmup_steps=plan.fixed_warmup,
        steps_per_block=plan.fixed_iters,
        seed=plan.seed,
        isolation=plan.isolation,
        max_time_s=plan.max_time,
    )


def _run(
    plan: Plan,
    job: Job,
    recorder: Recorder,
    launcher: Launcher,
    teller: Progress | None,
    interruption: Interruption,
) -> None:
    def announce(variant: str, index: int) -> None:
        interruption.check()
        if teller is not None:
            teller.running(variant, index, job.repeats)

    settled: str | None = None

    def enough(rounds: int) -> bool:
        nonlocal settled
        if rounds not in plan.looks[:-1]:
            return False
        settled = _settled(plan, recorder, rounds)
        if teller is not None:
            teller.looked(rounds * plan.blocks_per_repeat, settled)
        return settled is not None

    rounds = 0
    for repeat in conduct(job, launcher.worker, announce, enough=enough):
        rounds = max(rounds, repeat.index + 1)
        recorder.record_repeat(repeat)
        interruption.check()
        if teller is not None:
            teller.advance(
                repeat.variant, repeat.index, job.repeats, repeat.status.value, _detail(repeat)
            )
    recorder.record_blocks()
    most = plan.looks[-1]
    if teller is not None and plan.max_time is not None and not settled and rounds < most:
        teller.say(
            f"stopped after {rounds} of at most {most} rounds: the {plan.max_time:.0f} s of "
            "--max-time are used up"
        )


def _settled(plan: Plan, recorder: Recorder, rounds: int) -> str | None:
    """Why more rounds would change nothing: all is decided, or none of it can be; else None."""
    with suppress(MeasurementError):  # no baseline yet: go on
        comparison = decide_study(recorder.study, recorder.values())
        more = [
            item.time.more_pairs if item.time is not None else None
            for item in comparison.candidates
            if item.decision.reason in OPEN_REASONS
            or (item.time is not None and item.time.direction == "undecided")
        ]
        left = (plan.looks[-1] - rounds) * plan.blocks_per_repeat
        if not more:
            return "decided"
        return "undecided, and more pairs would not settle it" if hopeless(more, left) else None
    return None


def _detail(repeat: Repeat) -> str:
    if repeat.status is not Status.OK:
        return repeat.error or ""
    steps = sum(len(block.step_ms) for block in repeat.blocks)
    return f"{sum(block.wall_ms for block in repeat.blocks) / steps:.2f} ms a step"


def _compare(store: Store, recorder: Recorder, warn: Callable[[str], None]) -> Comparison:
    """Decide from what MLflow holds; from memory only while it is out of reach."""
    from trainperf_mlflow.tracking import queries

    comparison, note = None, ""
    if recorder.complete:
        # A store that goes away now is no reason to lose the decision.
        with suppress(StoreError):
            variants = queries.load_variants(store, recorder.study_id)
            comparison = _decided(recorder.study, variants)
            note = note_of(store, comparison)
    if comparison is None:
        comparison = _decided(recorder.study, recorder.values())
    pictures = measured_pictures(
        recorder.study, recorder.values(), comparison, recorder.repeats, warn
    )
    if not recorder.finish_study(comparison, note or run_note(comparison), pictures):
        raise StoreError(
            f"measured and decided ({comparison.decision.decision}: {comparison.decision.text}), "
            f"but the MLflow store does not answer; when it is back, run "
            f"'trainperf recover {recorder.study_id}'"
        )
    attach_report(store, comparison, warn, pictures)
    annotate(store, comparison)
    return comparison


def _decided(study: Study, variants: tuple[VariantValues, ...]) -> Comparison:
    """The comparison and its assessment, for which nobody has looked at phases yet."""
    comparison = decide_study(study, variants)
    return comparison.model_copy(update={"assessment": assess(comparison, variants)})
