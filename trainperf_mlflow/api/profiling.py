"""Paired torch.profiler traces of an existing study's variants."""

from __future__ import annotations

from typing import Any, TextIO

from trainperf_mlflow.analysis.explanation import (
    PROFILE_FILE,
    profile_summary,
    trace_evidence_report,
)
from trainperf_mlflow.api.explaining import (
    Opened,
    opened,
    refuse_nothing_measured,
    trace_path,
    with_assessment,
)
from trainperf_mlflow.api.picturing import attach, teller, trace_pictures
from trainperf_mlflow.attribution import Attempt
from trainperf_mlflow.errors import Interrupted, PlanError
from trainperf_mlflow.measurement.conductor import AnyWorker
from trainperf_mlflow.results.study import Variant

DEFAULT_STEPS, MAX_STEPS = 3, 100
DEFAULT_TOP, MAX_TOP = 15, 500


def profile(
    study: str,
    *,
    top: int = DEFAULT_TOP,
    steps: int = DEFAULT_STEPS,
    tracking_uri: str | None = None,
    experiment: str | None = None,
    progress: TextIO | None = None,
) -> dict[str, Any]:
    """Trace some steps of each variant of a study, and attach the traces to its runs.

    Args:
        study: a run id, a unique prefix of one, or a study's name (the newest of it).
        top: operators to list, by own time on the host and on the device.
        steps: steps in each trace; fewer where they would exceed the size budget.

    Returns:
        The report ``profiling-trace-evidence/v1``, which is also on the study's run; its
        ``trace_places`` is where each variant's trace is, and its ``assessment`` what phases
        and traces together say until now (None where nothing was compared yet).

    Raises:
        PlanError: there is no such study, or ``top`` or ``steps`` is out of range.
        EvidenceError: the study is closed, or was meanwhile (what was traced stays on disk), or
            its workload is another one here.
        MeasurementError: no variant could be traced.
        StoreError: the store cannot be read or written.
        Interrupted: a signal ended it; what was traced until then is in MLflow.
    """
    for name, value, most in (("top", top, MAX_TOP), ("steps", steps, MAX_STEPS)):
        if not 1 <= value <= most:
            raise PlanError(f"{name} = {value}: give a whole number from 1 to {most}")
    with opened(study, "profile", tracking_uri, experiment, progress) as found:

        def look(worker: AnyWorker, variant: Variant, timeout: float) -> dict[str, Any]:
            path = str(trace_path(found.kept.path, variant.name))
            return {"trace": worker.ask("profile", timeout, steps=steps, top=top, path=path)}

        attempts: list[Attempt] = []
        try:
            for attempt in found.attempts(1, look, _detail):
                attempts.append(attempt)  # noqa: PERF402 - kept when the loop is interrupted
        except Interrupted as interruption:
            _record(found, attempts, steps)
            raise Interrupted(
                interruption.signum,
                f"interrupted; {len(attempts)} traces are kept with study {found.study.study_id}",
            ) from None
        report = _record(found, attempts, steps)
        refuse_nothing_measured(attempts, "a trace")
        return {**with_assessment(found, report), "trace_places": _places(found, attempts)}


def _places(found: Opened, attempts: list[Attempt]) -> dict[str, str]:
    """Where each variant's trace is now; for who asked, as the report moves with its run."""
    from trainperf_mlflow.tracking.explaining import trace_place

    runs = {a.variant: found.variant_runs[a.variant] for a in attempts if a.trace is not None}
    return {name: trace_place(found.store, run) for name, run in runs.items() if run is not None}


def _record(found: Opened, attempts: list[Attempt], steps: int) -> dict[str, Any]:
    """Send each variant's trace to its run, and the report to the study's."""
    from trainperf_mlflow.tracking.explaining import TRACE_EVIDENCE_FILE
    from trainperf_mlflow.tracking.waiting import parcel

    parcels = []
    names = [variant.name for variant in found.study.variants]
    attempts = sorted(attempts, key=lambda attempt: names.index(attempt.variant))
    for attempt in attempts:
        run_id = found.variant_runs[attempt.variant]
        if run_id is not None:
            summary = profile_summary(found.study.study_id, attempt)
            path = None
            if attempt.trace is not None:
                path = trace_path(found.kept.path, attempt.variant).relative_to(found.kept.path)
            parcels.append(parcel(run_id, {PROFILE_FILE: summary}, trace=path))
    report = trace_evidence_report(
        found.study,
        attempts,
        found.variant_runs,
        warmup=found.plan.warmup_steps,
        iters=steps,
    )
    if attempts:
        parcels.append(parcel(found.study.study_id, {TRACE_EVIDENCE_FILE: report}))
        say = teller(found.progress)
        found.put(parcels)
        traces = {
            attempt.variant: trace_path(found.kept.path, attempt.variant)
            for attempt in attempts
            if attempt.trace is not None
        }
        pictures = trace_pictures(traces, say)
        found.kept.send(found.store, pictures)
        attach(found.store, found.study.study_id, pictures, say)
    found.kept.remove()
    return report


def _detail(attempt: Attempt) -> str:
    assert attempt.trace is not None
    return (
        f"{attempt.trace.active_steps} steps traced, {attempt.trace.slowdown:.2f} times as slow "
        "as without the profiler"
    )
