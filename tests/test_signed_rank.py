"""The signed-rank interval against known tables, scipy and what it must not depend on."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from trainperf_mlflow.analysis.signed_rank import signed_rank_cdf, signed_rank_interval


@pytest.mark.parametrize("n", [1, 2, 5, 9])
def test_the_table_is_what_counting_all_signs_gives(n: int) -> None:
    sums = [
        sum(rank for rank, positive in zip(range(1, n + 1), signs, strict=True) if positive)
        for signs in product((False, True), repeat=n)
    ]
    for total, chance in enumerate(signed_rank_cdf(n)):
        assert chance == pytest.approx(sum(value <= total for value in sums) / 2**n)


# Critical values of the two-sided test as they are printed in tables (Wilcoxon 1964).
@pytest.mark.parametrize(
    ("n", "at_5_percent", "at_1_percent"),
    [(6, 0, None), (7, 2, None), (8, 3, 0), (12, 13, 7), (16, 29, 19), (20, 52, 37), (25, 89, 68)],
)
def test_critical_values_are_those_of_printed_tables(
    n: int, at_5_percent: int, at_1_percent: int | None
) -> None:
    cdf = signed_rank_cdf(n)
    for alpha, printed in ((0.05, at_5_percent), (0.01, at_1_percent)):
        found = [total for total, chance in enumerate(cdf) if 2 * chance <= alpha]
        assert (found[-1] if found else None) == printed


@pytest.mark.parametrize("n", [7, 12, 16, 24])
def test_the_interval_holds_exactly_the_shifts_that_the_test_does_not_refuse(n: int) -> None:
    values = np.random.default_rng(n).normal(0.3, 1.0, n)
    interval = signed_rank_interval(list(values), 0.95)

    def refused(shift: float) -> bool:
        return bool(stats.wilcoxon(values - shift, method="exact").pvalue <= 0.05)

    for end, outside in ((interval.low, -1e-9), (interval.high, 1e-9)):
        assert refused(end + outside)
        assert not refused(end - outside)


def test_the_estimate_is_the_median_of_all_pairwise_means() -> None:
    values = [0.1, -0.4, 2.0, 0.7]
    means = [(a + b) / 2 for i, a in enumerate(values) for b in values[i:]]
    assert signed_rank_interval(values, 0.9).estimate == pytest.approx(np.median(means))


@pytest.mark.parametrize(("n", "level"), [(5, 0.95), (6, 0.984), (2, 0.75)])
def test_too_few_values_bound_nothing(n: int, level: float) -> None:
    interval = signed_rank_interval([1.0] * n, level)
    assert (interval.low, interval.high) == (-math.inf, math.inf)
    assert interval.estimate == 1.0


def test_six_pairs_are_the_first_that_can_tell_at_95_percent() -> None:
    interval = signed_rank_interval([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], 0.95)
    assert (interval.low, interval.high) == (1.0, 6.0)


def test_beyond_the_table_the_normal_approximation_follows_on() -> None:
    values = list(np.random.default_rng(1).normal(0.0, 1.0, 101))
    exact = signed_rank_interval(values[:100], 0.95)
    approximate = signed_rank_interval(values, 0.95)
    assert approximate.low == pytest.approx(exact.low, abs=0.05)
    assert approximate.high == pytest.approx(exact.high, abs=0.05)


def test_nothing_measured_is_refused() -> None:
    with pytest.raises(ValueError, match="measure pairs first"):
        signed_rank_interval([], 0.95)


@given(
    st.lists(st.floats(-10, 10), min_size=6, max_size=20),
    st.floats(-5, 5),
    st.randoms(use_true_random=False),
)
def test_order_does_not_matter_and_a_shift_shifts(values, shift, chance) -> None:  # type: ignore[no-untyped-def]
    interval = signed_rank_interval(values, 0.95)
    assert interval.low <= interval.estimate <= interval.high
    shuffled = list(values)
    chance.shuffle(shuffled)
    assert signed_rank_interval(shuffled, 0.95) == interval
    moved = signed_rank_interval([value + shift for value in values], 0.95)
    assert moved == pytest.approx([bound + shift for bound in interval], abs=1e-9)


def test_coverage_of_the_interval_is_its_level() -> None:
    chance = np.random.default_rng(7)
    held = sum(
        interval.low <= 0.0 <= interval.high
        for _ in range(1500)
        for interval in [signed_rank_interval(list(chance.laplace(0, 1, 12)), 0.95)]
    )
    assert 0.935 <= held / 1500 <= 0.97
