"""From what a repeat measured to metrics by their MLflow names, and to a variant's values."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence

from trainperf_mlflow.analysis.signal import block_values
from trainperf_mlflow.results.record import Status
from trainperf_mlflow.results.repeats import Effect, Repeat
from trainperf_mlflow.results.study import Variant
from trainperf_mlflow.results.values import RepeatValues, VariantValues

# The worst first: one diverged repeat tells more about a change than one that ran out of time.
_SEVERITY = (
    Status.DIVERGED,
    Status.OOM,
    Status.FAILED,
    Status.TIMEOUT,
    Status.UNSUPPORTED,
    Status.OK,
)


def repeat_metrics(repeat: Repeat, *, compiled: bool = False) -> dict[str, float]:
    """The finite values that this repeat measured; what was not measured is absent.

    ``step_time_ms`` is the wall time of all blocks over the number of their steps, in ms;
    ``compile_s`` is what the first step took beyond a median one, in s, and only a
    variant that compiles has it. Memory is MiB. A repeat of an imported report has the
    values as they were published, rounded as they are.
    """
    if repeat.reported:
        return {name: value for name, value in repeat.reported.items() if math.isfinite(value)}
    steps = [step for block in repeat.blocks for step in block.step_ms]
    mean = sum(block.wall_ms for block in repeat.blocks) / len(steps) if steps else None
    median = statistics.median(steps) if steps else None
    values: dict[str, float | None] = {
        "step_time_ms": _positive(mean),
        "step_time_median_ms": _positive(median),
        "samples_per_s": _per_second(repeat.samples_per_step, mean),
        "tokens_per_s": _per_second(repeat.tokens_per_step, mean),
        "peak_mem_mb": _positive(repeat.peak_mem_mb),
        "peak_reserved_mb": _positive(repeat.peak_reserved_mb),
        "host_peak_rss_mb": _positive(repeat.host_peak_rss_mb),
        "loss": repeat.loss,
        "eval_loss": repeat.eval_loss,
        "first_step_ms": _positive(repeat.first_step_ms),
        "num_alloc_retries": repeat.num_alloc_retries,
    }
    if compiled and repeat.first_step_ms is not None and median is not None:
        values["compile_s"] = _positive((repeat.first_step_ms - median) / 1000.0)
    return {
        name: float(value)
        for name, value in values.items()
        if value is not None and math.isfinite(value)
    }


def _positive(value: float | None) -> float | None:
    # A time or a peak of 0 is what a missing counter reports, never a measurement.
    return value if value is not None and value > 0 else None


def _per_second(per_step: float | None, step_ms: float | None) -> float | None:
    return per_step * 1000.0 / step_ms if per_step and step_ms and step_ms > 0 else None


def not_finite(repeat: Repeat) -> dict[str, float]:
    """What was measured but is no number (NaN, infinite): MLflow cannot keep it as a metric."""
    values = {"loss": repeat.loss, "eval_loss": repeat.eval_loss}
    return {k: v for k, v in values.items() if v is not None and not math.isfinite(v)}


def is_compiled(variant: Variant) -> bool:
    """Whether this configuration compiles, so that its first step holds the compilation."""
    return variant.config.get("compile") not in (None, False, "off", "")


def mean_metrics(repeats: Iterable[RepeatValues]) -> dict[str, float]:
    """Means over the ok repeats, of each metric that all of them have.

    >>> values = [{"loss": 1.0, "eval_loss": 2.0}, {"loss": 3.0}]
    >>> mean_metrics(
    ...     RepeatValues(index=i, status=Status.OK, metrics=m) for i, m in enumerate(values)
    ... )
    {'loss': 2.0}
    """
    measured = [repeat.metrics for repeat in repeats if repeat.status is Status.OK]
    if not measured:
        return {}
    return {
        name: statistics.fmean(metrics[name] for metrics in measured)
        for name in measured[0]
        if all(name in metrics for metrics in measured)
    }


def variant_status(statuses: Iterable[Status]) -> Status:
    """The worst of the repeats; a variant without any has failed.

    >>> variant_status([Status.OK, Status.OOM]).value
    'oom'
    """
    return min(statuses, key=_SEVERITY.index, default=Status.FAILED)


def effect_verdict(effects: Iterable[Effect]) -> tuple[bool | None, str]:
    """Whether the changes are in effect, and what was seen.

    One change without effect makes it False; all verified, True; else None: nobody
    could look.
    """
    effects = tuple(effects)
    seen = [effect.verified for effect in effects]
    detail = "; ".join(dict.fromkeys(f"{effect.key}: {effect.detail}" for effect in effects))
    if False in seen:
        return False, detail
    return (True if seen and None not in seen else None), detail


def merge_verdicts(verdicts: Iterable[bool | None]) -> bool | None:
    """One verdict of several repeats: any False wins, then any that could not be checked.

    >>> merge_verdicts([True, None]) is None, merge_verdicts([None, False])
    (True, False)
    """
    seen = list(verdicts)
    if False in seen:
        return False
    return True if seen and None not in seen else None


def repeat_values(repeat: Repeat, *, compiled: bool, run_id: str | None = None) -> RepeatValues:
    """A repeat as a comparison reads it."""
    return RepeatValues(
        index=repeat.index,
        status=repeat.status,
        error=repeat.error,
        run_id=run_id,
        quality_checked=repeat.quality_checked and repeat.eval_loss is not None,
        seed=repeat.seed,
        data_digest=repeat.data_digest,
        metrics=repeat_metrics(repeat, compiled=compiled),
        blocks=tuple(
            values
            for block in repeat.blocks
            if (values := block_values(block, repeat.samples_per_step)) is not None
        ),
    )


def variant_values(
    variant: Variant,
    repeats: Sequence[RepeatValues],
    *,
    effects: Iterable[bool | None] = (),
    effect_detail: str | None = None,
    sources: Iterable[str] = (),
    unsupported: str | None = None,
    run_id: str | None = None,
) -> VariantValues:
    """A variant as a comparison reads it, from its repeats.

    Args:
        effects: the verdict of each repeat that ran.
        sources: where each repeat's peak memory comes from; one memory value can
            only be given where all agree.
        unsupported: why the device cannot run it, for a variant without any repeat.
    """
    repeats = tuple(sorted(repeats, key=lambda repeat: repeat.index))
    status = variant_status(repeat.status for repeat in repeats)
    error = next((r.error for r in repeats if r.status is status and r.error), None)
    if not repeats:
        status = Status.FAILED if unsupported is None else Status.UNSUPPORTED
        error = unsupported or "no repeat of it was recorded"
    metrics = mean_metrics(repeats)
    source = set(sources)
    if len(source) > 1:
        metrics = {k: v for k, v in metrics.items() if k not in ("peak_mem_mb", "peak_reserved_mb")}
    return VariantValues(
        name=variant.name,
        role=variant.role,
        status=status,
        error=error,
        run_id=run_id,
        config=variant.config,
        changed_variable=variant.changed_variable,
        effect_verified=merge_verdicts(effects),
        effect_detail=effect_detail or None,
        peak_mem_source=source.pop() if len(source) == 1 else None,
        quality_checked="eval_loss" in metrics
        and all(repeat.quality_checked for repeat in repeats if repeat.status is Status.OK),
        metrics=metrics,
        repeats=repeats,
    )


def break_even_steps(
    compile_s: float, baseline_step_ms: float, candidate_step_ms: float
) -> float | None:
    """Steps after which a compilation has paid for itself; None where it never does.

    >>> break_even_steps(10.0, 120.0, 100.0)
    500.0
    """
    gain_ms = baseline_step_ms - candidate_step_ms
    return compile_s * 1000.0 / gain_ms if gain_ms > 0 and compile_s >= 0 else None
