"""Draw a study's pictures: after its last measured block, and never a reason for it to fail."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from trainperf_mlflow.analysis.paired import pairs_of
from trainperf_mlflow.analysis.round_ratios import pair_ratios, pairs_counted, round_ratios
from trainperf_mlflow.attribution import Attempt, Peaks, RooflinePoint
from trainperf_mlflow.errors import Interrupted, StoreError
from trainperf_mlflow.results.comparison import CandidateComparison, Comparison
from trainperf_mlflow.results.repeats import Repeat
from trainperf_mlflow.results.study import Study
from trainperf_mlflow.results.values import VariantValues

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from trainperf_mlflow.reporting.pictures.ratios import Looked, PairedRatios
    from trainperf_mlflow.tracking.store import Store

Warn = Callable[[str], None]
Pictures = dict[str, bytes]  # artifact path -> PNG
Draw = Callable[[], "Figure | None"]


def measured_pictures(
    study: Study,
    values: Sequence[VariantValues],
    comparison: Comparison,
    repeats: Sequence[Repeat],
    warn: Warn,
) -> Pictures:
    """Blocks, ratios, time against memory, losses."""

    def steps() -> Figure | None:
        from trainperf_mlflow.reporting.pictures.steps import figure_steps

        return figure_steps(study.variants, repeats)

    def loss() -> Figure | None:
        from trainperf_mlflow.reporting.pictures.loss import figure_loss

        return figure_loss(study.variants, repeats)

    return {
        **_drawn({"steps": steps, "loss": loss}, warn),
        **compared_pictures(study, values, comparison, warn),
    }


def compared_pictures(
    study: Study, values: Sequence[VariantValues], comparison: Comparison, warn: Warn
) -> Pictures:
    """Those of the measured pictures that need no more than a comparison does."""

    def ratios() -> Figure | None:
        from trainperf_mlflow.reporting.pictures.ratios import figure_ratios

        ratios = _ratios(study, values, comparison)
        return figure_ratios(study.variants, ratios, _verdict(comparison))

    def time_memory() -> Figure | None:
        from trainperf_mlflow.reporting.pictures.time_memory import figure_time_memory

        return figure_time_memory(study.variants, values, comparison, _verdict(comparison))

    return _drawn({"ratios": ratios, "time_memory": time_memory}, warn)


def phase_pictures(
    study: Study, attempts: Sequence[Attempt], summaries: Sequence[Mapping[str, Any]], warn: Warn
) -> Pictures:
    """Time and memory by phase, memory over the step, the roofline.

    Args:
        summaries: each variant's ``phases.json``, which has its points of the roofline.
    """

    def phases() -> Figure | None:
        from trainperf_mlflow.reporting.pictures.phases import figure_phases

        return figure_phases(study.variants, attempts)

    def memory() -> Figure | None:
        from trainperf_mlflow.reporting.pictures.memory import figure_memory

        samples = {}
        for variant in study.variants:
            own = [a.phases for a in attempts if a.variant == variant.name and a.phases]
            samples[variant.name] = next(
                (phases.memory_over_step for phases in own if phases.memory_over_step), ()
            )
        return figure_memory(samples)

    def roofline() -> Figure | None:
        from trainperf_mlflow.reporting.pictures.roofline import figure_roofline

        points = {
            summary["variant"]: [RooflinePoint.model_validate(p) for p in summary["roofline"]]
            for summary in summaries
        }
        peaks = next((summary["peaks"] for summary in summaries if summary["peaks"]), None)
        known = None if peaks is None else Peaks.model_validate(peaks)
        return figure_roofline(study.variants, points, known)

    return _drawn({"phases": phases, "memory": memory, "roofline": roofline}, warn)


def trace_pictures(traces: Mapping[str, Path], warn: Warn) -> Pictures:
    """A typical step of each trace, by variant, the baseline first."""

    def timeline() -> Figure | None:
        from trainperf_mlflow.analysis.traces_timeline import typical_step
        from trainperf_mlflow.reporting.pictures.timeline import figure_timeline

        steps = {name: typical_step(path) for name, path in traces.items()}
        return figure_timeline({name: step for name, step in steps.items() if step is not None})

    return _drawn({"trace_timeline": timeline}, warn)


def attach(store: Store, run_id: str, pictures: Pictures, warn: Warn) -> None:
    """Send pictures to a run that has its results already."""
    from trainperf_mlflow.tracking.pictures import send_pictures

    try:
        send_pictures(store, run_id, pictures)
    except StoreError as error:
        warn(f"MLflow did not take the pictures ({error}); the results are not affected")


def teller(stream: TextIO | None) -> Warn:
    """Warnings go where the progress goes; a closed terminal is no reason to fail."""

    def tell(message: str) -> None:
        if stream is not None:
            with suppress(OSError, ValueError):
                stream.write(f"{message}\n")

    return tell


def _drawn(figures: Mapping[str, Draw], warn: Warn) -> Pictures:
    pictures: Pictures = {}
    for name, draw in figures.items():
        path = f"plots/{name}.png"
        try:
            from trainperf_mlflow.reporting.pictures.style import png

            figure = draw()
            if figure is not None:
                pictures[path] = png(figure)
        except Interrupted:
            raise
        except Exception as error:  # a picture less is no reason to lose what was measured
            warn(f"{path} could not be drawn ({type(error).__name__}: {str(error)[:200]})")
    return pictures


def _verdict(comparison: Comparison) -> str:
    from trainperf_mlflow.reporting.pictures.style import safe

    best = comparison.best_candidate
    return comparison.decision.decision + (f" {safe(best)}" if best else "")


def _ratios(
    study: Study, values: Sequence[VariantValues], comparison: Comparison
) -> list[PairedRatios]:
    if comparison.baseline is None:
        return []
    by_name = {value.name: value for value in values}
    baseline = by_name.get(comparison.baseline.name)
    if baseline is None:
        return []
    return [
        _paired(study, baseline, by_name[candidate.variant], candidate)
        for candidate in comparison.candidates
        if candidate.variant in by_name and candidate.effect_verified is not False
    ]


def _paired(
    study: Study,
    baseline: VariantValues,
    values: VariantValues,
    candidate: CandidateComparison,
) -> PairedRatios:
    """By pairs of blocks with their interval; where there are none, by rounds, from the means."""
    from trainperf_mlflow.reporting.pictures.ratios import PairedRatios

    time = candidate.time
    ratios = pair_ratios(baseline, values, time) if time is not None else ()
    if time is None or not ratios:
        speedup = candidate.delta.get("speedup", 0.0)
        return PairedRatios(
            variant=candidate.variant,
            ratios=round_ratios(baseline, values),
            estimate=math.log(speedup) if speedup > 0 else None,
        )
    return PairedRatios(
        variant=candidate.variant,
        ratios=ratios,
        estimate=math.log(time.speedup),
        low=_log_of(time.low_pct),
        high=_log_of(time.high_pct),
        margin=_log_of(time.margin_pct),
        looks=tuple(_looks(study, baseline, values)),
        counted=pairs_counted(baseline, values, time),
    )


def _looks(study: Study, baseline: VariantValues, values: VariantValues) -> Iterator[Looked]:
    """When a study that might go on was looked at, each time with what was measured until then."""
    from trainperf_mlflow.decisions.candidate import candidates_of, estimated_time, planned_looks
    from trainperf_mlflow.reporting.pictures.ratios import Looked

    planned = planned_looks(study)
    rounds = 1 + max(repeat.index for repeat in (*baseline.repeats, *values.repeats))
    if len(planned) < 2:
        return
    for look in (*(look for look in planned if look < rounds), rounds):
        before, after = (_until(variant, look) for variant in (baseline, values))
        time = estimated_time(study, before, after, candidates_of(study))
        if time is not None:
            pairs = len(pairs_of(before, after))
            yield Looked(pairs, _log_of(time.low_pct), _log_of(time.high_pct))


def _until(variant: VariantValues, rounds: int) -> VariantValues:
    kept = tuple(repeat for repeat in variant.repeats if repeat.index < rounds)
    return variant.model_copy(update={"repeats": kept})


def _log_of(saved_pct: float | None) -> float | None:
    """ln(baseline / candidate) of time saved in percent of the baseline's.

    >>> round(_log_of(50.0), 3)
    0.693
    """
    return None if saved_pct is None or saved_pct >= 100 else -math.log1p(-saved_pct / 100)
