"""Memory strategies under a budget (course projects 76 and 75), on plain reports."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import trainperf_mlflow as tp

BUDGET = {"memory_cap_mb": 12000.0, "min_samples_per_s": 6.0}
QUALITY = {"max_val_loss": 1.15}
RANK = {"reject": 0, "tune": 1, "accept": 2}


def item(name: str, memory: Any, rate: Any, loss: Any = 1.0, **more: Any) -> dict[str, Any]:
    values = {"peak_memory_mb": memory, "samples_per_s": rate, "eval_loss": loss}
    return {"name": name, **values, **more}


BASELINE = item("baseline", 11000.0, 8.0)


def summed(*items: dict[str, Any], **budget: Any) -> Any:
    quality = {key: budget.pop(key) for key in list(budget) if key == "max_val_loss"}
    return tp.summarize_memory_strategies(items, BUDGET | budget, QUALITY | quality)


def decided(*items: dict[str, Any], **budget: Any) -> tuple[str, str, str]:
    return tuple(tp.decide_memory_budget(summed(*items, **budget)).values())


def status_of(summary: Any, name: str) -> tuple[str, list[str]]:
    (found,) = [one for one in summary["evaluations"] if one["name"] == name]
    return found["status"], list(found["reasons"])


# --- the budget --------------------------------------------------------------------------------


def test_a_complete_budget_is_valid() -> None:
    checked = tp.validate_memory_budget(BUDGET, QUALITY)
    assert checked == {"is_valid": True, "missing_keys": [], "invalid_keys": []}


def test_the_missing_limits_of_a_budget_are_named() -> None:
    checked = tp.validate_memory_budget({"memory_cap_mb": 1.0}, {})
    assert checked["is_valid"] is False
    assert checked["missing_keys"] == ["min_samples_per_s", "max_val_loss"]
    with pytest.raises(ValueError, match="min_samples_per_s is missing, max_val_loss is missing"):
        tp.summarize_memory_strategies([BASELINE], {"memory_cap_mb": 1.0}, {})


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -1.0, True, "9600", None])
@pytest.mark.parametrize(
    "key",
    ["memory_cap_mb", "min_samples_per_s", "min_memory_saving_mb", "min_throughput_ratio"],
)
def test_a_limit_that_is_no_number_from_0_on_is_invalid(key, wrong) -> None:
    checked = tp.validate_memory_budget({**BUDGET, key: wrong}, QUALITY)
    assert checked["invalid_keys"] == [key]
    with pytest.raises(ValueError, match=f"{key} is invalid"):
        tp.summarize_memory_strategies([BASELINE], {**BUDGET, key: wrong}, QUALITY)
    assert tp.validate_memory_budget(BUDGET, {"max_val_loss": wrong})["invalid_keys"] == [
        "max_val_loss"
    ]


def test_a_cap_of_nothing_and_a_ratio_above_one_are_invalid() -> None:
    odd = {**BUDGET, "memory_cap_mb": 0.0, "min_throughput_ratio": 1.01}
    assert tp.validate_memory_budget(odd, QUALITY)["invalid_keys"] == [
        "memory_cap_mb",
        "min_throughput_ratio",
    ]


# --- who keeps it ------------------------------------------------------------------------------


def test_limits_are_kept_by_what_equals_them() -> None:
    summary = summed(item("checkpoint", 12000.0, 6.0, 1.15))
    assert status_of(summary, "checkpoint") == ("feasible", [])


def test_every_broken_limit_is_told() -> None:
    summary = summed(item("offload", 12000.01, 5.999, 1.150001))
    assert status_of(summary, "offload") == (
        "rejected",
        ["memory_over_budget", "throughput_below_floor", "quality_over_floor"],
    )
    (told,) = summary["evaluations"]
    assert "memory 12000.01 MiB (at most 12000)" in told["detail"]


def test_ooms_and_what_has_no_numbers_are_counted_apart() -> None:
    summary = summed(
        BASELINE,
        {"name": "checkpoint", "status": "oom"},
        {"name": "offload", "status": "failed"},
        item("hybrid", None, 7.0),
    )
    counts = {key: value for key, value in summary.items() if key.endswith("_count")}
    assert counts == {
        "candidate_count": 4,
        "measured_count": 1,
        "oom_count": 1,
        "invalid_count": 2,
        "feasible_count": 1,
        "quality_failed_count": 0,
    }
    assert summary["best_candidate"] == "baseline"


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf, True, "9000", None, [1.0]])
@pytest.mark.parametrize("key", ["peak_memory_mb", "samples_per_s", "eval_loss"])
def test_a_candidates_wrong_number_is_never_compared(key, wrong) -> None:
    summary = summed(BASELINE, {**item("checkpoint", 9000.0, 7.0), key: wrong})
    assert status_of(summary, "checkpoint") == ("invalid", ["missing_or_non_numeric_metric"])
    assert summary["feasible_names"] == ["baseline"]


@pytest.mark.parametrize("key", ["peak_memory_mb", "samples_per_s"])
def test_a_counter_that_says_0_measured_nothing(key) -> None:
    summary = summed({**item("checkpoint", 9000.0, 7.0), key: 0.0})
    assert summary["invalid_count"] == 1


def test_val_loss_stands_in_where_there_is_no_eval_loss() -> None:
    old = {"name": "checkpoint", "peak_memory_mb": 9000.0, "samples_per_s": 7.0, "val_loss": 1.2}
    assert status_of(summed(old), "checkpoint") == ("rejected", ["quality_over_floor"])
    assert status_of(summed({**old, "eval_loss": 1.1}), "checkpoint") == ("feasible", [])


def test_a_name_that_is_missing_or_given_twice_stands_for_nobody() -> None:
    twice = item("checkpoint", 9000.0, 7.0)
    summary = summed(BASELINE, twice, {**twice, "peak_memory_mb": 8000.0}, item("", 1.0, 9.0))
    assert summary["invalid_count"] == 3
    assert summary["best_candidate"] == "baseline"


def test_the_best_has_least_memory_then_most_throughput_then_least_loss() -> None:
    first, second, third, fourth = (
        item("hybrid", 9000.0, 8.0, 1.0),
        item("offload", 9000.0, 8.0, 1.1),
        item("checkpoint", 9000.0, 7.0, 0.5),
        item("baseline", 9000.1, 9.0, 0.5),
    )
    summary = summed(fourth, second, third, first)
    assert summary["feasible_names"] == ["hybrid", "offload", "checkpoint", "baseline"]


def test_of_equals_the_baseline_is_best() -> None:
    same = [item(name, 9000.0, 8.0) for name in ("checkpoint", "baseline", "offload")]
    assert summed(*same)["feasible_names"] == ["baseline", "checkpoint", "offload"]


def test_reserved_memory_over_the_cap_is_told_though_the_allocated_fits() -> None:
    tight = item("checkpoint", 9450.76, 7.0, peak_reserved_mb=10896.0)
    (told,) = summed(tight, memory_cap_mb=9600.0)["evaluations"]
    assert told["status"] == "feasible"
    assert told["reserved_over_cap"] is True
    assert "the allocator reserved 10896.00 MiB, which exceeds the cap" in told["detail"]
    (fits,) = summed(tight)["evaluations"]
    assert fits["reserved_over_cap"] is False


# --- the decision ------------------------------------------------------------------------------

SAVES = item("checkpoint", 10488.0, 5.6)  # exactly 512 MiB, and exactly 0.70 of 8.0


@pytest.mark.parametrize("strategy", ["checkpoint", "offload", "hybrid"])
def test_a_strategy_is_accepted_exactly_at_both_thresholds(strategy) -> None:
    made = decided(BASELINE, {**SAVES, "name": strategy}, min_samples_per_s=1.0)
    assert made == (
        "accept",
        "compression_strategy_is_best_feasible_option",
        "promote_to_training_run",
    )


def test_saving_and_ratio_are_compared_without_the_last_bits_of_binary() -> None:
    # 10000.3 - 9488.3 is 511.9999999999991 in binary.
    base = item("baseline", 10000.3, 8.0)
    assert decided(base, item("checkpoint", 9488.3, 8.0))[0] == "accept"


@pytest.mark.parametrize(
    ("items", "budget", "reason", "for_75", "for_76"),
    [
        (
            [BASELINE, {**SAVES, "peak_memory_mb": 10488.01}],
            {"min_samples_per_s": 1.0},
            "memory_saving_below_meaningful_threshold",
            "test_larger_pressure_or_optimizer_compression",
            "test_pressure_or_offload_scope",
        ),
        (
            [BASELINE, {**SAVES, "samples_per_s": 5.599}],
            {"min_samples_per_s": 1.0},
            "throughput_loss_exceeds_budget",
            "reduce_compression_scope",
            "reduce_checkpoint_or_offload_scope",
        ),
        (
            [BASELINE, item("bf16", 9000.0, 8.0)],
            {},
            "baseline_still_best_under_current_budget",
            "revisit_memory_strategy_mix",
            "revisit_strategy_mix",
        ),
        (
            [BASELINE, item("checkpoint", 9000.0, 8.0, 1.2)],
            {},
            "{}_needs_quality_recovery",
            "adjust_checkpoint_scope_or_batch_plan",
            "adjust_checkpoint_granularity_or_offload_scope",
        ),
    ],
)
def test_what_keeps_the_best_from_being_accepted_is_told(
    items, budget, reason, for_75, for_76
) -> None:
    summary = summed(*items, **budget)
    assert tp.decide_memory_budget(summary) == {
        "decision": "tune",
        "reason": reason.format("compression"),
        "next_action": for_75,
    }
    assert tp.decide_memory_strategy(summary) == {
        "decision": "tune",
        "reason": reason.format("strategy"),
        "next_action": for_76,
    }


def test_nothing_feasible_is_rejected_by_both_rules() -> None:
    summary = summed(BASELINE, memory_cap_mb=100.0)
    assert (summary["best_candidate"], summary["throughput_ratio"]) == (None, None)
    reason = "no_strategy_meets_budget_and_quality"
    assert tp.decide_memory_budget(summary) == {
        "decision": "reject",
        "reason": reason,
        "next_action": "tighten_batch_or_rework_memory_plan",
    }
    assert tp.decide_memory_strategy(summary)["reason"] == reason
    assert tp.decide_memory_strategy(summary)["next_action"] == "rework_checkpoint_or_offload_scope"


def test_an_accepted_strategy_is_so_whatever_another_ones_quality() -> None:
    accepted = decided(BASELINE, SAVES, item("offload", 9000.0, 8.0, 1.2), min_samples_per_s=1.0)
    assert accepted[0] == "accept"


def test_quality_recovery_comes_before_the_other_reasons_to_tune() -> None:
    small = item("checkpoint", 10900.0, 1.0)
    made = decided(BASELINE, small, item("offload", 1.0, 8.0, 1.2), min_samples_per_s=0.5)
    assert made[1] == "compression_needs_quality_recovery"


def test_no_ratio_passes() -> None:
    published = {
        "feasible_count": 1,
        "best_candidate": "checkpoint",
        "quality_failed_count": 0,
        "memory_saving_mb": 600.0,
        "throughput_ratio": None,
    }
    assert tp.decide_memory_strategy(published)["decision"] == "accept"


def test_thresholds_of_the_budget_are_the_decisions() -> None:
    small = item("checkpoint", 10900.0, 4.0)
    assert decided(BASELINE, small, min_samples_per_s=1.0)[0] == "tune"
    assert (
        decided(
            BASELINE,
            small,
            min_samples_per_s=1.0,
            min_memory_saving_mb=100.0,
            min_throughput_ratio=0.5,
        )[0]
        == "accept"
    )


@pytest.mark.parametrize("wrong", [math.nan, math.inf, True, "1"])
@pytest.mark.parametrize("key", ["feasible_count", "memory_saving_mb", "throughput_ratio"])
def test_a_memory_summary_with_a_wrong_number_is_refused(key, wrong) -> None:
    with pytest.raises(ValueError, match=f"summary: {key} is .*finite number"):
        tp.decide_memory_budget({**summed(BASELINE, SAVES), key: wrong})


@pytest.mark.parametrize("key", ["feasible_count", "memory_saving_mb", "throughput_ratio"])
def test_a_memory_summary_without_a_field_is_refused(key) -> None:
    short = {k: v for k, v in summed(BASELINE, SAVES).items() if k != key}
    with pytest.raises(ValueError, match=f"summary: {key} is missing"):
        tp.decide_memory_budget(short)


VALUES = st.tuples(st.floats(100, 20000), st.floats(0.1, 20), st.floats(0.5, 1.5))


@given(VALUES, VALUES, st.tuples(*[st.floats(0, 1)] * 3))
@settings(max_examples=80, deadline=None)
def test_a_strategy_that_gets_better_is_never_decided_worse(base, tuned, better) -> None:
    memory, rate, loss = tuned
    less, more, gained = better
    baseline = item("baseline", *base)
    before = decided(baseline, item("checkpoint", memory, rate, loss))[0]
    improved = item("checkpoint", memory * (1 - less / 2), rate * (1 + more), loss - gained / 4)
    assert RANK[decided(baseline, improved)[0]] >= RANK[before]


@given(st.lists(VALUES, min_size=1, max_size=5), st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None)
def test_the_order_of_candidates_does_not_matter(values, shuffler: random.Random) -> None:
    names = ("baseline", "checkpoint", "offload", "hybrid", "bf16")
    items = [item(name, *numbers) for name, numbers in zip(names, values, strict=False)]
    one, other = summed(*items), summed(*shuffler.sample(items, len(items)))
    unordered = {key: value for key, value in one.items() if key != "evaluations"}
    assert unordered == {key: value for key, value in other.items() if key != "evaluations"}
    assert tp.decide_memory_budget(one) == tp.decide_memory_budget(other)


@given(st.floats(12000.01, 1e6), st.floats(1.1501, 9), st.booleans())
@settings(max_examples=30, deadline=None)
def test_no_gain_buys_what_breaks_the_budget_or_the_quality(memory, loss, which) -> None:
    tempting = item("checkpoint", memory, 1e6) if which else item("checkpoint", 1.0, 1e6, loss)
    assert decided(BASELINE, tempting)[0] == "tune"
    assert decided({**BASELINE, "samples_per_s": 1.0}, tempting)[0] == "reject"
