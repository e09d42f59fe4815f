"""What separates a candidate from its baseline, in numbers and in words."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median

from trainperf_mlflow.analysis.convergence import FinalLosses, final_losses
from trainperf_mlflow.results.record import Status
from trainperf_mlflow.results.values import VariantValues

# SQL stores write an infinite metric as the largest double.
_HUGE = 1e300
# Batch sizes that differ by less than this are the same one, derived from rounded rates.
_SAME_SAMPLES = 0.005
# Relative differences (percent) that the note does not call a gain or a cost.
_NOTEWORTHY_PCT = 0.5
_NOTEWORTHY_LOSS = 0.0005
# Where these settings differ, the held-out text or its tokens do, and their losses say nothing
# about each other.
_CHOOSES_VALIDATION = ("data", "seq_len", "model", "model_source")
# What is better when it grows; the difference is candidate - baseline.
_CANDIDATE_MINUS_BASELINE = ("samples_per_s", "tokens_per_s", "loss", "eval_loss")


@dataclass(frozen=True)
class Difference:
    """A candidate against its baseline.

    Attributes:
        delta: names of the MLflow metrics without ``delta/``. Time and memory
            are baseline - candidate, from means rounded to 3 decimals and then
            rounded to 2 (as the source's rules read them); throughput and loss
            are candidate - baseline. Percentages and ``speedup`` are unrounded.
            What one side did not measure is absent.
        pairs: rounds in which both succeeded.
        step_time_ms: baseline's and candidate's time for the same number of
            samples (the baseline's step), or None.
        per_sample: the samples per step differ, so that the candidate's time
            was scaled to the baseline's.
        memory_gap: why peak memory could not be compared, or None.
        quality_gap: why the losses say nothing about quality, or None.
        final: the eval losses after a longer training, or None where that was not asked for.
    """

    delta: dict[str, float]
    pairs: int
    step_time_ms: tuple[float, float] | None
    per_sample: bool
    memory_gap: str | None
    quality_gap: str | None
    final: FinalLosses | None = None


def measured(metrics: Mapping[str, float], name: str) -> float | None:
    """A metric's value, or None where it is absent, NaN or infinite.

    >>> measured({"loss": float("nan")}, "loss") is None
    True
    """
    value = metrics.get(name)
    return value if value is not None and math.isfinite(value) and abs(value) < _HUGE else None


def compare(baseline: VariantValues, candidate: VariantValues, candidates: int = 1) -> Difference:
    """Everything that can be subtracted between two variants.

    Args:
        candidates: of the study, which share the error of the longer training's interval.
    """
    memory_gap = _memory_gap(baseline, candidate)
    times, per_sample = _times_for_equal_work(baseline, candidate)
    delta: dict[str, float] = {}
    if times is not None:
        delta |= _saving("step_time_ms", "step_time_pct", *times)
        if times[1] > 0:
            delta["speedup"] = times[0] / times[1]
    if memory_gap is None:
        before, after = baseline.metrics["peak_mem_mb"], candidate.metrics["peak_mem_mb"]
        delta |= _saving("peak_mem_mb", "peak_mem_pct", before, after)
    other_validation = _other_validation(baseline, candidate)
    for name in _CANDIDATE_MINUS_BASELINE:
        if name == "eval_loss" and other_validation:
            continue
        old, new = measured(baseline.metrics, name), measured(candidate.metrics, name)
        if old is not None and new is not None:
            delta[name] = new - old
    final = final_losses(baseline, candidate, _other_text(other_validation), candidates)
    if final is not None and final.interval is not None:
        ends = ("", "_low", "_high")
        delta |= {
            f"convergence_eval_loss{end}": value
            for end, value in zip(ends, final.interval, strict=True)
            if math.isfinite(value)
        }
    return Difference(
        delta=delta,
        pairs=len(_ok_rounds(baseline) & _ok_rounds(candidate)),
        step_time_ms=times,
        per_sample=per_sample,
        memory_gap=memory_gap,
        quality_gap=_quality_gap(baseline, candidate, other_validation),
        final=final,
    )


def relative_gain(before: float, after: float, better: str) -> float | None:
    """By how many percent of ``before`` the metric got better, or None where that has no meaning.

    >>> relative_gain(200.0, 150.0, "lower"), relative_gain(2.0, 3.0, "higher")
    (25.0, 50.0)
    """
    if before <= 0:
        return None
    return (before - after if better == "lower" else after - before) / before * 100


def samples_per_step(variant: VariantValues) -> float | None:
    """From throughput x step time; per repeat, because a mean of rates is no rate of means."""
    derived = [
        value
        for repeat in variant.repeats
        if repeat.status is Status.OK and (value := _samples(repeat.metrics)) is not None
    ]
    return median(derived) if derived else _samples(variant.metrics)


def _samples(metrics: Mapping[str, float]) -> float | None:
    rate, time_ms = measured(metrics, "samples_per_s"), measured(metrics, "step_time_ms")
    if rate is None or time_ms is None or rate <= 0 or time_ms <= 0:
        return None
    return rate * time_ms / 1000


def _times_for_equal_work(
    baseline: VariantValues, candidate: VariantValues
) -> tuple[tuple[float, float] | None, bool]:
    before = measured(baseline.metrics, "step_time_ms")
    after = measured(candidate.metrics, "step_time_ms")
    if before is None or after is None:
        return None, False
    ours, theirs = samples_per_step(candidate), samples_per_step(baseline)
    if ours is None or theirs is None or math.isclose(ours, theirs, rel_tol=_SAME_SAMPLES):
        return (before, after), False
    return (before, after * theirs / ours), True


def _saving(absolute: str, percent: str, before: float, after: float) -> dict[str, float]:
    saving = {absolute: round(round(before, 3) - round(after, 3), 2)}
    gain = relative_gain(before, after, "lower")
    return saving if gain is None else saving | {percent: gain}


def _memory_gap(baseline: VariantValues, candidate: VariantValues) -> str | None:
    without = [
        variant.name
        for variant in (baseline, candidate)
        if measured(variant.metrics, "peak_mem_mb") is None
    ]
    if without:
        return f"peak memory was not measured ({', '.join(without)})"
    if baseline.peak_mem_source != candidate.peak_mem_source:
        return (
            "peak memory was measured in different ways "
            f"({baseline.peak_mem_source} and {candidate.peak_mem_source})"
        )
    return None


def _other_validation(baseline: VariantValues, candidate: VariantValues) -> list[str]:
    """The settings by which the two were evaluated on different data."""
    return [
        key for key in _CHOOSES_VALIDATION if baseline.config.get(key) != candidate.config.get(key)
    ]


def _quality_gap(
    baseline: VariantValues, candidate: VariantValues, other_validation: list[str]
) -> str | None:
    both = (baseline, candidate)
    if any(measured(variant.metrics, "eval_loss") is None for variant in both):
        return "there is no eval loss on both sides"
    if not all(variant.quality_checked for variant in both):
        return "the eval loss was not taken on real text"
    return _other_text(other_validation)


def _other_text(other_validation: list[str]) -> str | None:
    if not other_validation:
        return None
    return f"another {' and '.join(other_validation)} means another validation text"


def _ok_rounds(variant: VariantValues) -> set[int]:
    return {repeat.index for repeat in variant.repeats if repeat.status is Status.OK}


# --- in words ----------------------------------------------------------------------------------


def describe(difference: Difference) -> str:
    """Gain and cost in one sentence.

    >>> describe(Difference(
    ...     delta={"step_time_pct": -24.2, "peak_mem_pct": 61.0, "eval_loss": 0.0},
    ...     pairs=3, step_time_ms=(50.0, 62.1), per_sample=False,
    ...     memory_gap=None, quality_gap=None))
    'saves 61 % of peak memory, but costs 24 % in time'
    """
    delta = difference.delta
    if not delta:
        return "nothing to compare: no metric was measured on both sides"
    time = "time per sample" if difference.per_sample else "time"
    saved, costs = [], []
    for what, key in ((time, "step_time_pct"), ("peak memory", "peak_mem_pct")):
        percent = delta.get(key, 0.0)
        if percent >= _NOTEWORTHY_PCT:
            saved.append(f"{_percent(percent)} of {what}")
        elif percent <= -_NOTEWORTHY_PCT:
            costs.append(f"{_percent(-percent)} in {what}")
    gains = ["saves " + " and ".join(saved)] if saved else []
    losses = ["costs " + " and ".join(costs)] if costs else []
    name = "eval loss" if difference.quality_gap is None else "loss"
    change = delta.get(name.replace(" ", "_"), 0.0)
    if change >= _NOTEWORTHY_LOSS:
        losses.append(f"{name} is higher by {change:.3g}")
    elif change <= -_NOTEWORTHY_LOSS:
        gains.append(f"{name} is lower by {-change:.3g}")
    halves = [" and ".join(half) for half in (gains, losses) if half]
    sentence = ", but ".join(halves) or _nothing_noteworthy(delta, time)
    return sentence if difference.memory_gap is None else f"{sentence}; {difference.memory_gap}"


def _nothing_noteworthy(delta: Mapping[str, float], time: str) -> str:
    names = ((time, "step_time_pct"), ("peak memory", "peak_mem_pct"))
    compared = [what for what, key in names if key in delta]
    if not compared:
        return "neither time nor peak memory could be compared"
    verb = "differs" if len(compared) == 1 else "differ"
    return f"{' and '.join(compared)} {verb} by less than {_NOTEWORTHY_PCT} %"


def _percent(value: float) -> str:
    return f"{value:.0f} %" if value >= 10 else f"{value:.1f} %"
