"""The rule of course project 74: keep what saves time and, with it, memory or throughput.

Accept when the time gain is at least 10 ms and the memory gain at least 512 MiB
or the throughput gain at least 5; tune when the time gain is large enough and
memory or throughput improved at all; else reject.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict

from trainperf_mlflow.analysis.compare import measured
from trainperf_mlflow.decisions.case import Case
from trainperf_mlflow.decisions.numbers import flag, number
from trainperf_mlflow.decisions.quality import eval_loss_excess, quality_text
from trainperf_mlflow.decisions.reasons import REASONS, Language, conclude
from trainperf_mlflow.results.decision import Decision

MIN_TIME_DELTA_MS = 10.0
MIN_MEMORY_DELTA_MB = 512.0
MIN_THROUGHPUT_DELTA = 5.0


class OptimizationSummary(TypedDict):
    """A positive delta is better: time and memory baseline - tuned, throughput tuned - baseline."""

    step_time_delta_ms: float
    peak_mem_delta_mb: float
    throughput_delta: float
    time_improved: bool
    memory_improved: bool
    throughput_improved: bool


def summarize_optimization_result(
    base_metrics: Mapping[str, Any], tuned_metrics: Mapping[str, Any]
) -> OptimizationSummary:
    """Differences in ``step_time_ms``, ``peak_mem_mb`` and ``throughput`` (of any one unit).

    Deltas are rounded to 2 decimals, the improved flags read the unrounded ones.

    Raises:
        ValueError: a field is missing or no finite number.

    >>> summarize_optimization_result(
    ...     {"step_time_ms": 50.0, "peak_mem_mb": 900.0, "throughput": 20.0},
    ...     {"step_time_ms": 41.5, "peak_mem_mb": 950.0, "throughput": 24.1})["throughput_delta"]
    4.1
    """
    time_delta, memory_delta, throughput_loss = (
        number(base_metrics, key, "base_metrics") - number(tuned_metrics, key, "tuned_metrics")
        for key in ("step_time_ms", "peak_mem_mb", "throughput")
    )
    throughput_delta = -throughput_loss
    return OptimizationSummary(
        step_time_delta_ms=round(time_delta, 2),
        peak_mem_delta_mb=round(memory_delta, 2),
        throughput_delta=round(throughput_delta, 2) + 0.0,  # never -0.0
        time_improved=time_delta > 0,
        memory_improved=memory_delta > 0,
        throughput_improved=throughput_delta > 0,
    )


def recommend_optimization_decision(
    summary: Mapping[str, Any],
    min_time_delta_ms: float = MIN_TIME_DELTA_MS,
    min_memory_delta_mb: float = MIN_MEMORY_DELTA_MB,
    min_throughput_delta: float = MIN_THROUGHPUT_DELTA,
) -> dict[str, str]:
    """``decision`` (accept, tune or reject) and ``reason`` (a code) for a summary.

    A gain that equals its threshold reaches it. Without enough gain in time
    nothing else counts.

    Raises:
        ValueError: a field is missing or of the wrong kind.

    >>> recommend_optimization_decision({
    ...     "step_time_delta_ms": 12.0, "peak_mem_delta_mb": 100.0, "throughput_delta": -1.0,
    ...     "time_improved": True, "memory_improved": True, "throughput_improved": False})
    {'decision': 'tune', 'reason': 'resource_gain_below_thresholds'}
    """
    thresholds = {
        "min_time_delta_ms": min_time_delta_ms,
        "min_memory_delta_mb": min_memory_delta_mb,
        "min_throughput_delta": min_throughput_delta,
    }
    enough_time, enough_memory, enough_throughput = (
        number(summary, f"{what}", "summary") >= number(thresholds, f"min_{limit}")
        for what, limit in (
            ("step_time_delta_ms", "time_delta_ms"),
            ("peak_mem_delta_mb", "memory_delta_mb"),
            ("throughput_delta", "throughput_delta"),
        )
    )
    _, memory_improved, throughput_improved = (
        flag(summary, f"{what}_improved", "summary") for what in ("time", "memory", "throughput")
    )
    if enough_time and (enough_memory or enough_throughput):
        reason = "time_and_resource_gains_met"
    elif enough_time and (memory_improved or throughput_improved):
        reason = "resource_gain_below_thresholds"
    else:
        reason = "no_stable_end_to_end_gain"
    return {"decision": REASONS[reason].decision, "reason": reason}


_WORDS: Mapping[str, tuple[str, str, str, str, str, str]] = {
    "en": (
        "| metric | change | verdict |",
        "improved",
        "not improved",
        "Bottleneck: ",
        ". Next: ",
        ".",
    ),
    "zh": ("| 指标 | 变化 | 判断 |", "改善", "未改善", "瓶颈：", "；下一步：", "。"),
}


def format_optimization_report(
    summary: Mapping[str, Any], bottleneck: str, next_action: str, lang: Language = "en"
) -> str:
    """A Markdown table of the three changes, and a line with bottleneck and next action.

    Args:
        summary: of ``summarize_optimization_result``.
        bottleneck: where the time or the memory goes, in words.
        next_action: what to do about it, in words.
        lang: ``"en"`` or ``"zh"``.

    Raises:
        ValueError: a field of the summary is missing or of the wrong kind, or the
            language is another one.
    """
    if lang not in _WORDS:
        raise ValueError(f"lang is {lang!r}; give one of: {', '.join(_WORDS)}")
    header, better, not_better, before, between, end = _WORDS[lang]
    rows = [
        f"| {title} | {number(summary, f'{key}{unit_key}', 'summary')}{unit} | "
        f"{better if flag(summary, f'{what}_improved', 'summary') else not_better} |"
        for title, key, unit_key, unit, what in (
            ("step time", "step_time_delta", "_ms", " ms", "time"),
            ("peak memory", "peak_mem_delta", "_mb", " MB", "memory"),
            ("throughput", "throughput_delta", "", "", "throughput"),
        )
    ]
    conclusion = f"{before}{bottleneck}{between}{next_action}{end}"
    return "\n".join([header, "| --- | --- | --- |", *rows, conclusion])


def decide(case: Case) -> Decision:
    """The rule on a study's candidate; means are rounded to 3 decimals first, as in the source.

    Throughput is samples per second. What was not measured on both sides, or
    in different ways, counts as no gain. An eval loss that is worse by more
    than ``max_eval_loss_delta`` turns an accept into tune.
    """
    difference, limits = case.difference, case.thresholds
    base_time, tuned_time = difference.step_time_ms or (0.0, 0.0)
    base, tuned = {"step_time_ms": base_time}, {"step_time_ms": tuned_time}
    for key, metric, comparable in (
        ("peak_mem_mb", "peak_mem_mb", difference.memory_gap is None),
        ("throughput", "samples_per_s", True),
    ):
        before = measured(case.baseline.metrics, metric)
        after = measured(case.candidate.metrics, metric)
        known = comparable and before is not None and after is not None
        base[key], tuned[key] = (before or 0.0, after or 0.0) if known else (0.0, 0.0)
    summary = summarize_optimization_result(_rounded(base), _rounded(tuned))
    reason = recommend_optimization_decision(
        summary,
        limits["min_time_delta_ms"],
        limits["min_memory_delta_mb"],
        limits["min_throughput_delta"],
    )["reason"]
    excess = eval_loss_excess(difference, limits["max_eval_loss_delta"])
    if reason == "time_and_resource_gains_met" and excess is not None:
        reason = "eval_loss_worse"
    numbers = {
        "step_time_delta_ms": summary["step_time_delta_ms"],
        "peak_mem_delta_mb": summary["peak_mem_delta_mb"],
        "throughput_delta": summary["throughput_delta"],
        **limits,
    }
    return conclude(reason, _text(reason, summary, case), "optimization", numbers=numbers)


def _rounded(metrics: Mapping[str, float]) -> dict[str, float]:
    return {key: round(value, 3) for key, value in metrics.items()}


def _text(reason: str, summary: OptimizationSummary, case: Case) -> str:
    difference, limits = case.difference, case.thresholds
    work = " for the baseline's samples" if difference.per_sample else ""
    memory = (
        f"memory gain {summary['peak_mem_delta_mb']:.2f} MiB "
        f"(at least {limits['min_memory_delta_mb']:g} wanted)"
        if difference.memory_gap is None
        else f"{difference.memory_gap}, which counts as no gain"
    )
    return (
        f"{REASONS[reason].en}: time gain {summary['step_time_delta_ms']:.2f} ms{work} "
        f"(at least {limits['min_time_delta_ms']:g} wanted), {memory}, "
        f"throughput gain {summary['throughput_delta']:.2f} samples/s "
        f"(at least {limits['min_throughput_delta']:g} wanted); "
        f"{quality_text(difference, limits['max_eval_loss_delta'])}"
    )
