"""How other benchmark tools and the source call one side faster: their rules, on step times.

A rule comes from its package where that is installed, and is written here after its
documentation where it is not; ``origin`` says which. Each step is one value, as each run of a
command or round of a benchmark is for these tools.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from statistics import fmean
from typing import Any, Literal, NamedTuple

import numpy as np
from scipy import stats

from decisions_bench.streams import Order, Sides
from trainperf_mlflow.decisions.training import (
    recommend_training_decision,
    summarize_training_result,
)

Verdict = Literal["faster", "slower", "same", "undecided"]
OWN = "written here"
PYTEST_BENCHMARK_PCT = 5.0
TORCHBENCH = 0.07
WELCH_P = 0.05
MANN_WHITNEY_P = 0.002
ASV_FACTOR = 1.1
# Criterion takes 100,000; with fewer its limits tremble by some hundredths of a percent.
RESAMPLES = 1000
CRITERION_P, CRITERION_NOISE = 0.05, 0.01
SOURCE_REPEATS = 3
_CHUNK = 250


class Rule(NamedTuple):
    """A rule: what it is called, where its code is from, in which order it measures by itself.

    ``answers`` are the changes it can report: some tools look for regressions only.
    """

    name: str
    origin: str
    judge: Callable[[Sides], Verdict]
    own_order: Order = "sequence"
    answers: tuple[Verdict, ...] = ("faster", "slower")


def rules() -> tuple[Rule, ...]:
    """All rules of others, in the order of the docs."""
    return (
        Rule("pytest-benchmark, mean:5%", *_pytest_benchmark(), answers=("slower",)),
        Rule("pyperf", *_pyperf()),
        Rule("asv, default", *_asv(), own_order="abba"),
        Rule("asv, Mann-Whitney alone", *_asv_mann_whitney(), own_order="abba"),
        Rule("hyperfine, Welch script", _package("scipy"), welch),
        Rule("criterion", OWN, criterion),
        Rule("torchbench, 7 %", OWN, torchbench),
        Rule("the source, 3 means", "this package", the_source, answers=("faster",)),
        Rule("Mann-Whitney per step", _package("scipy"), mann_whitney),
        Rule("Mann-Whitney per step, without waits", _package("scipy"), mann_whitney_net),
    )


def direction(ratio: float) -> Verdict:
    """By what the candidate's time is of the baseline's."""
    return "faster" if ratio < 1 else "slower"


# --- pytest-benchmark: --benchmark-compare-fail=mean:5% ------------------------------------------


def _pytest_benchmark() -> tuple[str, Callable[[Sides], Verdict]]:
    try:
        from pytest_benchmark.utils import PercentageRegressionCheck
    except ImportError:
        return OWN, lambda sides: "slower" if mean_fails(sides) else "same"
    check = PercentageRegressionCheck("mean", PYTEST_BENCHMARK_PCT)

    def judge(sides: Sides) -> Verdict:
        new, old = ({"mean": float(np.mean(side))} for side in (sides.after, sides.before))
        return "slower" if check.fails(new, old) else "same"

    return _package("pytest-benchmark"), judge


def mean_fails(sides: Sides) -> bool:
    """Whether the mean is more than 5 % above the baseline's."""
    change = np.mean(sides.after) / np.mean(sides.before) * 100 - 100
    return bool(change > PYTEST_BENCHMARK_PCT)


# --- pyperf: compare_to --------------------------------------------------------------------------


def _pyperf() -> tuple[str, Callable[[Sides], Verdict]]:
    try:
        from pyperf._utils import is_significant
    except ImportError:
        return OWN, lambda sides: _if(pooled_t_significant(sides), sides, np.mean)

    def judge(sides: Sides) -> Verdict:
        found, _ = is_significant(sides.before.tolist(), sides.after.tolist())
        return _if(found, sides, np.mean)

    return _package("pyperf"), judge


def pooled_t_significant(sides: Sides) -> bool:
    """Student's two-sample test at 95 %."""
    return bool(stats.ttest_ind(sides.before, sides.after).pvalue < WELCH_P)


# --- asv: continuous and compare -----------------------------------------------------------------


def _asv() -> tuple[str, Callable[[Sides], Verdict]]:
    try:
        from asv.commands.compare import _is_result_better
        from asv_runner.statistics import compute_stats
    except ImportError:
        return OWN, asv_default

    def judge(sides: Sides) -> Verdict:
        before, after = sides.before.tolist(), sides.after.tolist()
        (old, old_stats), (new, new_stats) = (compute_stats(side, 1) for side in (before, after))
        ours, theirs = (new_stats, after), (old_stats, before)
        if _is_result_better(new, old, ours, theirs, ASV_FACTOR):
            return "faster"
        return "slower" if _is_result_better(old, new, theirs, ours, ASV_FACTOR) else "same"

    return _package("asv"), judge


def asv_default(sides: Sides) -> Verdict:
    """Different by Mann-Whitney, and the median by more than a factor of 1.1."""
    before, after = np.median(sides.before), np.median(sides.after)
    if _mann_whitney_p(sides.before, sides.after)[0] >= MANN_WHITNEY_P:
        return "same"
    if after < before / ASV_FACTOR:
        return "faster"
    return "slower" if before < after / ASV_FACTOR else "same"


def _asv_mann_whitney() -> tuple[str, Callable[[Sides], Verdict]]:
    try:
        from asv._stats import is_different
    except ImportError:
        return OWN, mann_whitney

    def judge(sides: Sides) -> Verdict:
        # So many samples never need the intervals that it falls back to.
        found = is_different(sides.before.tolist(), sides.after.tolist(), None, None)
        return _if(found, sides, np.median)

    return _package("asv"), judge


# --- Mann-Whitney per step: the strongest rival in pairs -----------------------------------------


def mann_whitney(sides: Sides, threshold: float = MANN_WHITNEY_P) -> Verdict:
    return _by_rank(*_mann_whitney_p(sides.before, sides.after), threshold)


def mann_whitney_net(sides: Sides, threshold: float = MANN_WHITNEY_P) -> Verdict:
    """On the signal that we take where one thread works."""
    return _by_rank(*_mann_whitney_p(sides.before_net, sides.after_net), threshold)


def mann_whitney_p(sides: Sides, net: bool) -> float:
    """The two-sided p value."""
    before, after = (sides.before_net, sides.after_net) if net else (sides.before, sides.after)
    return _mann_whitney_p(before, after)[0]


def _mann_whitney_p(before: np.ndarray, after: np.ndarray) -> tuple[float, float]:
    """The p value, and in which part of all pairings the candidate is slower."""
    found = stats.mannwhitneyu(after, before)
    return float(found.pvalue), float(found.statistic) / (len(before) * len(after))


def _by_rank(p: float, slower_in: float, threshold: float) -> Verdict:
    if p >= threshold:
        return "same"
    return "slower" if slower_in > 0.5 else "faster"


# --- hyperfine's scripts/welch_ttest.py, criterion.rs, torchbench --------------------------------


def welch(sides: Sides) -> Verdict:
    found = stats.ttest_ind(sides.before, sides.after, equal_var=False).pvalue < WELCH_P
    return _if(found, sides, np.mean)


def criterion(sides: Sides, seed: int = 1) -> Verdict:
    """A bootstrapped t test, and the mean's change beyond 1 % with all of its 95 % interval.

    The t statistic's distribution without a change comes from both sides mixed.
    """
    chance = np.random.default_rng(seed)
    before, after = sides.before, sides.after
    mixed = np.concatenate([before, after])
    nothing, changes = [], []
    for _ in range(RESAMPLES // _CHUNK):
        drawn = (chance.choice(mixed, (_CHUNK, len(side))) for side in (after, before))
        nothing.append(_t(*drawn))
        new, old = (chance.choice(side, (_CHUNK, len(side))).mean(1) for side in (after, before))
        changes.append(new / old - 1)
    seen = _t(after[None], before[None])[0]
    below = np.mean(np.concatenate(nothing) < seen)
    if 2 * min(below, 1 - below) >= CRITERION_P:
        return "same"
    low, high = np.percentile(np.concatenate(changes), [2.5, 97.5])
    if high < -CRITERION_NOISE:
        return "faster"
    return "slower" if low > CRITERION_NOISE else "same"


def torchbench(sides: Sides) -> Verdict:
    """The medians differ by more than 7 %."""
    change = np.median(sides.after) / np.median(sides.before) - 1
    return _if(abs(change) > TORCHBENCH, sides, np.median)


def _t(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Welch's statistic, row by row."""
    spread = first.var(1, ddof=1) / first.shape[1] + second.var(1, ddof=1) / second.shape[1]
    return np.asarray((first.mean(1) - second.mean(1)) / np.sqrt(spread))


# --- the source: three repeats of each, baseline first, their means ------------------------------


def the_source(sides: Sides) -> Verdict:
    """Whether the rule of course project 73 sees a gain, memory being equal: anything but reject.

    A reject says that there is no gain, not that the candidate is slower.
    """
    means = [
        round(fmean(float(part.mean()) for part in np.array_split(side, SOURCE_REPEATS)), 3)
        for side in (sides.before, sides.after)
    ]
    old, new = ({"step_time_ms": mean, "peak_mem_mb": 100.0} for mean in means)
    decision = recommend_training_decision(summarize_training_result(old, new))["decision"]
    return "same" if decision == "reject" else "faster"


def _if(found: bool, sides: Sides, middle: Callable[[Any], Any]) -> Verdict:
    return direction(float(middle(sides.after) / middle(sides.before))) if found else "same"


def _package(name: str) -> str:
    try:
        return f"{name} {version(name)}"
    except PackageNotFoundError:  # importable without being installed
        return name
