"""A ladder of sequence lengths with zero-momentum SGD: does checkpointing save activations?

One study a length, measured as any other, under one run of kind ``scope``. The ladder stops at
the safety boundary: where a prediction says that the next length does not fit, or where one ran
out of memory.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from trainperf_mlflow.api.estimating import estimate
from trainperf_mlflow.api.measuring import measure
from trainperf_mlflow.api.planning import as_plan
from trainperf_mlflow.decisions.activation_scope import (
    MIN_SUCCESSFUL_RUNS,
    assess_activation_memory_scope,
)
from trainperf_mlflow.decisions.qualification import QUALIFICATION_GATES
from trainperf_mlflow.decisions.scope_study import Rung, Scope, scope_decision
from trainperf_mlflow.errors import Interrupted, MeasurementError, PlanError, TrainperfError
from trainperf_mlflow.evidence.exported import Exported
from trainperf_mlflow.evidence.scope import scope_report
from trainperf_mlflow.plan import Plan
from trainperf_mlflow.reporting.scope import scope_note
from trainperf_mlflow.results.comparison import Comparison
from trainperf_mlflow.results.record import Status
from trainperf_mlflow.results.values import VariantValues

if TYPE_CHECKING:
    from trainperf_mlflow.tracking.store import Store

VERDICT_FILE = "activation_scope.json"


@dataclass(frozen=True)
class _Measured:
    """One length that was measured, with its part of the source's report."""

    rung: Rung
    report: dict[str, Any] | None  # None: the length ran out of memory
    confidence: str = "unconfirmed"
    device: str | None = None
    device_memory_mb: float | None = None


def measure_ladder(
    plan: Plan | Mapping[str, Any] | str | Path,
    *,
    device_memory_mb: float | None = None,
    tracking_uri: str | None = None,
    experiment: str | None = None,
    progress: TextIO | None = None,
) -> Scope:
    """Measure a plan's ladder, and decide within the scope of activation memory.

    Args:
        plan: with ``ladder``, the optimizer sgd, momentum 0 and the candidate checkpoint.
        device_memory_mb: MiB that a length must be predicted to fit into; by default the
            accelerator's own, once the first length has told it.

    Raises:
        PlanError: the plan is invalid, or has no ladder.
        MeasurementError: no length has enough successful repeats on both sides.
        StoreError: the store fails.
        Interrupted: a signal ended it; the lengths measured until then are studies in MLflow.
    """
    from trainperf_mlflow.tracking import names
    from trainperf_mlflow.tracking.gathering import create_gathering_run, stop_gathering_run
    from trainperf_mlflow.tracking.store import open_store

    plan = as_plan(plan)
    if plan.ladder is None:
        raise PlanError("the plan has no ladder; give the lengths, e.g. ladder: [64, 128, 256]")
    store = open_store(tracking_uri, experiment)
    name = plan.study or plan.ladder_name
    tags = {names.CHANGED_VARIABLE: "checkpoint", names.BEST_CANDIDATE: "checkpoint"}
    run_id = create_gathering_run(store, "scope", name, tags)
    try:
        measured, stopped = _climb(plan, store, run_id, device_memory_mb, progress)
        return _recorded(plan, store, run_id, name, measured, stopped)
    except BaseException as error:
        killed = isinstance(error, Interrupted | KeyboardInterrupt)
        stop_gathering_run(
            store, run_id, "KILLED" if killed else "FAILED", str(error) or repr(error)
        )
        raise


def _climb(
    plan: Plan,
    store: Store,
    run_id: str,
    limit_mb: float | None,
    progress: TextIO | None,
) -> tuple[list[_Measured], str | None]:
    """Length after length up to the safety boundary, and why it stopped before the end."""
    found: list[_Measured] = []
    for length in plan.ladder or ():
        rung = plan.rung(length)
        device = next((each.device for each in reversed(found) if each.device), plan.device)
        predicted = _predicted(rung, device, limit_mb)
        over = {name: mb for name, mb in predicted.items() if limit_mb and mb > limit_mb}
        if over:
            found.append(_Measured(Rung(seq_len=length, predicted_mb=predicted), None))
            needs = ", ".join(f"{name} needs {mb:.0f} MiB" for name, mb in over.items())
            return found, f"predicted at seq_len {length}: {needs}, there are {limit_mb:.0f} MiB"
        one = _measured(rung, length, predicted, store, run_id, progress)
        found.append(one)
        limit_mb = limit_mb or one.device_memory_mb
        out = [name for name, status in one.rung.status.items() if status == Status.OOM.value]
        if out:
            return found, f"out of memory at seq_len {length}: {', '.join(out)}"
    return found, None


def _predicted(rung: Plan, device: str, limit_mb: float | None) -> dict[str, float]:
    """Peak memory by variant; nothing where no limit is known to hold it against."""
    if limit_mb is None:
        return {}
    found = estimate(rung.model_copy(update={"device": device}), device_memory_mb=limit_mb)
    return {v.variant: v.peak_mem_mb for v in found.variants if v.peak_mem_mb is not None}


def _measured(
    rung: Plan,
    length: int,
    predicted: dict[str, float],
    store: Store,
    run_id: str,
    progress: TextIO | None,
) -> _Measured:
    from trainperf_mlflow.tracking import queries
    from trainperf_mlflow.tracking.gathering import gather
    from trainperf_mlflow.tracking.reports import load_environment

    comparison: Comparison | None = None
    failure: MeasurementError | None = None
    try:
        comparison = measure(
            rung,
            tracking_uri=store.tracking_uri,
            experiment=store.experiment_name,
            progress=progress,
        )
        study_id = comparison.study_id
    except MeasurementError as error:
        # No repeat of the baseline succeeded: at the boundary that is an answer.
        failure = error
        study_id = _begun(store, rung, error)
    gather(store, run_id, study_id)
    study = queries.load_study(store, study_id)
    variants = queries.load_variants(store, study_id, study)
    if failure is not None and not any(v.status is Status.OOM for v in variants):
        raise failure
    environment = load_environment(store, variants)
    report = None
    if comparison is not None:
        exported = Exported(
            study=study, variants=variants, comparison=comparison, environment=environment
        )
        report = scope_report(exported)
    memory = environment.get("device_memory_mb")
    candidate = comparison.candidates[0] if comparison else None
    return _Measured(
        rung=Rung(
            seq_len=length,
            study_id=study_id,
            predicted_mb=predicted,
            status={v.name: v.status.value for v in variants},
            successful_runs={v.name: _successful(v) for v in variants},
            peak_mem_mb={
                v.name: v.metrics["peak_mem_mb"] for v in variants if "peak_mem_mb" in v.metrics
            },
            delta=candidate.delta if candidate else {},
            pairs=candidate.pairs if candidate else 0,
        ),
        report=report,
        confidence=comparison.decision.confidence if comparison else "unconfirmed",
        device=study.workload.device,
        device_memory_mb=float(memory) if isinstance(memory, int | float) else None,
    )


def _begun(store: Store, rung: Plan, error: MeasurementError) -> str:
    """The study of a measurement that failed, if it came so far as to be one."""
    from trainperf_mlflow.tracking.queries import find_study

    try:
        return find_study(store, str(rung.study))
    except TrainperfError:
        raise error from None


def _successful(variant: VariantValues) -> int:
    return sum(repeat.status is Status.OK for repeat in variant.repeats)


# --- the verdict -------------------------------------------------------------------------------


def _recorded(
    plan: Plan,
    store: Store,
    run_id: str,
    name: str,
    measured: list[_Measured],
    stopped: str | None,
) -> Scope:
    from trainperf_mlflow.tracking import names
    from trainperf_mlflow.tracking.gathering import finish_gathering_run, links_to

    compared = _compared(measured)
    report = json.dumps(_report(measured, compared, stopped), indent=2)
    content = json.loads(report)
    gates = {key: plan.threshold.get(key, value) for key, value in QUALIFICATION_GATES.items()}
    verdict = assess_activation_memory_scope(content, content["config"], gates)
    evidence = {
        "path": names.SCOPE_FILE,
        "sha256": hashlib.sha256(report.encode()).hexdigest(),
    }
    verdict = verdict.model_copy(update={"evidence": evidence})
    decision = scope_decision(verdict)
    if decision.decision == "accept":
        decision = decision.model_copy(update={"confidence": compared.confidence})
    scope = Scope(
        study_id=run_id,
        name=name,
        rungs=tuple(each.rung for each in measured),
        stopped=stopped,
        verdict=verdict,
        decision=decision,
    )
    studies = [each.rung.study_id for each in measured if each.rung.study_id]
    finish_gathering_run(
        store,
        run_id,
        {
            names.SCOPE_FILE: report,
            VERDICT_FILE: verdict.to_json(),
            names.LADDER_FILE: scope.to_json(),
        },
        decision,
        scope_note(scope, links_to(store, studies)),
        {names.delta_metric(key): value for key, value in compared.rung.delta.items()},
        {names.SCOPE_STUDIES: ",".join(studies)},
    )
    return scope


def _compared(measured: list[_Measured]) -> _Measured:
    """The longest length with enough successful repeats on both sides.

    Raises:
        MeasurementError: there is none.
    """
    fit = [
        each
        for each in measured
        if each.report is not None
        and min(each.rung.successful_runs.values(), default=0) >= MIN_SUCCESSFUL_RUNS
        and set(each.rung.status.values()) == {Status.OK.value}
    ]
    if not fit:
        raise MeasurementError(
            f"no length has {MIN_SUCCESSFUL_RUNS} successful repeats of both baseline and "
            "checkpoint, so nothing can be decided; begin the ladder with a shorter length"
        )
    return fit[-1]


def _report(measured: list[_Measured], compared: _Measured, stopped: str | None) -> dict[str, Any]:
    """The source's report on the whole ladder."""
    assert compared.report is not None
    whole = dict(compared.report)
    whole["length_records"] = [
        record for each in measured if each.report for record in each.report["length_records"]
    ]
    lengths = [each.rung.seq_len for each in measured if each.rung.study_id]
    whole["summary"] = {**whole["summary"], "tested_seq_lens": lengths}
    if stopped:
        whole["summary"]["stopped"] = stopped
    return whole
