"""Time and memory of each phase of an existing study's variants."""

from __future__ import annotations

from typing import Any, TextIO

from trainperf_mlflow.analysis.explanation import (
    PHASES_FILE,
    phase_memory_report,
    phase_metrics,
    phase_summary,
)
from trainperf_mlflow.analysis.roofline import best_peaks, roofline_metrics, roofline_summary
from trainperf_mlflow.api.explaining import Opened, opened, refuse_nothing_measured, with_assessment
from trainperf_mlflow.api.picturing import attach, phase_pictures, teller
from trainperf_mlflow.attribution import Attempt, Safety
from trainperf_mlflow.errors import Interrupted, MeasurementError, PlanError
from trainperf_mlflow.measurement.conductor import AnyWorker
from trainperf_mlflow.measurement.launcher import WorkerError
from trainperf_mlflow.results.study import Variant

DEFAULT_REPEATS = 3
MAX_REPEATS = 1000
SAFETY_TIMEOUT_S = 600.0


def phase(
    study: str,
    *,
    repeats: int = DEFAULT_REPEATS,
    tracking_uri: str | None = None,
    experiment: str | None = None,
    progress: TextIO | None = None,
) -> dict[str, Any]:
    """Measure time and memory of each phase of a study's variants, in fresh processes.

    The steps are run again for this; nothing of it feeds the study's comparison.

    Args:
        study: a run id, a unique prefix of one, or a study's name (the newest of it).
        repeats: fresh processes per variant.

    Returns:
        The report ``training-phase-memory/v1``, which is also on the study's run; its
        ``assessment`` is what phases and traces together say until now (None where nothing
        was compared yet).

    Raises:
        PlanError: there is no such study, or ``repeats`` is not from 1 to 1000.
        EvidenceError: the study is closed, or was meanwhile (what was measured stays on disk), or
            its workload is another one here.
        MeasurementError: memory is too short, or no variant's phases could be measured.
        StoreError: the store cannot be read or written.
        Interrupted: a signal ended it; what was measured until then is in MLflow.
    """
    if not 1 <= repeats <= MAX_REPEATS:
        raise PlanError(f"repeats = {repeats}: give a whole number from 1 to {MAX_REPEATS}")
    with opened(study, "phase", tracking_uri, experiment, progress) as found:
        projected = _projected_mb(found)
        device = found.study.workload.device
        safety = _check_memory(found, projected)
        steps = found.plan.steps_per_block

        def look(worker: AnyWorker, variant: Variant, timeout: float) -> dict[str, Any]:
            return {"phases": worker.ask("phases", timeout=timeout, steps=steps)}

        def prepare(worker: AnyWorker) -> None:
            worker.ask("safety", SAFETY_TIMEOUT_S, device=device, projected_mb=projected)

        attempts: list[Attempt] = []
        try:
            for attempt in found.attempts(repeats, look, _detail, prepare):
                attempts.append(attempt)  # noqa: PERF402 - kept when the loop is interrupted
        except Interrupted as interruption:
            _record(found, attempts, safety, repeats)
            raise Interrupted(
                interruption.signum,
                f"interrupted; {len(attempts)} measured repeats are kept with study "
                f"{found.study.study_id}",
            ) from None
        report = _record(found, attempts, safety, repeats)
        refuse_nothing_measured(attempts, "phases")
        return with_assessment(found, report)


def _record(found: Opened, attempts: list[Attempt], safety: Safety, repeats: int) -> dict[str, Any]:
    """Send each variant's phases to its run, and the report to the study's."""
    from trainperf_mlflow.tracking.explaining import PHASE_MEMORY_FILE
    from trainperf_mlflow.tracking.waiting import parcel

    summaries, parcels = [], []
    peaks = best_peaks(attempts)
    baselines = {variant.name for variant in found.study.variants if variant.role == "baseline"}
    baseline = [attempt for attempt in attempts if attempt.variant in baselines]
    for variant in found.study.variants:
        own = [attempt for attempt in attempts if attempt.variant == variant.name]
        if not own:
            continue
        summary = {
            **phase_summary(found.study.study_id, variant, own),
            **roofline_summary(own, baseline, peaks, variant.config),
        }
        summaries.append(summary)
        run_id = found.variant_runs[variant.name]
        if run_id is not None:
            metrics = {**phase_metrics(summary), **roofline_metrics(summary)}
            parcels.append(parcel(run_id, {PHASES_FILE: summary}, metrics))
    report = phase_memory_report(
        found.study,
        attempts,
        summaries,
        safety,
        warmup=found.plan.warmup_steps,
        iters=found.plan.steps_per_block,
        repeats=repeats,
    )
    if summaries:
        parcels.append(parcel(found.study.study_id, {PHASE_MEMORY_FILE: report}))
        say = teller(found.progress)
        found.put(parcels)
        pictures = phase_pictures(found.study, attempts, summaries, say)
        found.kept.send(found.store, pictures)
        attach(found.store, found.study.study_id, pictures, say)
    found.kept.remove()
    return report


def _projected_mb(found: Opened) -> float | None:
    """The most memory that a variant of the study was seen to take: what to expect; MiB."""
    metric = "host_peak_rss_mb" if found.study.workload.device == "cpu" else "peak_reserved_mb"
    known = [v.metrics[metric] for v in found.variants if metric in v.metrics]
    return max(known, default=None)


def _check_memory(found: Opened, projected_mb: float | None) -> Safety:
    try:
        with found.launcher.worker() as worker:
            safety: Safety = worker.ask(
                "safety",
                SAFETY_TIMEOUT_S,
                device=found.study.workload.device,
                projected_mb=projected_mb,
            )
    except WorkerError as error:
        raise MeasurementError(f"free memory cannot be asked for: {error.text}") from None
    if not safety.admitted:
        raise MeasurementError(
            f"{safety.free_memory_mb_before_load:.0f} MiB of {found.study.workload.device} are "
            f"free, but the study took {projected_mb:.0f} MiB and "
            f"{safety.minimum_free_margin_mb:.0f} MiB must stay free; end other programs there, "
            "then try again (nothing was started)"
        )
    return safety


def _detail(attempt: Attempt) -> str:
    assert attempt.phases is not None
    return f"{sum(attempt.phases.step_ms) / len(attempt.phases.step_ms):.2f} ms a marked step"
