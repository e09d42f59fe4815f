from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_studies import case, variant

from trainperf_mlflow.decisions.training import (
    decide,
    recommend_training_decision,
    summarize_paired_training_result,
    summarize_training_result,
)


def metrics(time: object, memory: object) -> dict[str, object]:
    return {"step_time_ms": time, "peak_mem_mb": memory}


def summary(time: float, memory: float) -> dict[str, object]:
    return {
        "step_time_delta_ms": time,
        "peak_mem_delta_mb": memory,
        "time_improved": time > 0,
        "memory_improved": memory > 0,
    }


def test_the_summary_has_the_sources_four_fields_and_values():
    assert summarize_training_result(metrics(120.0, 8192.0), metrics(98.0, 6144.0)) == {
        "step_time_delta_ms": 22.0,
        "peak_mem_delta_mb": 2048.0,
        "time_improved": True,
        "memory_improved": True,
    }


def test_improved_flags_read_the_unrounded_difference():
    made = summarize_training_result(metrics(10.004, 5.0), metrics(10.0, 5.004))
    assert made["step_time_delta_ms"] == 0.0
    assert made["time_improved"] is True
    assert made["memory_improved"] is False


@pytest.mark.parametrize(
    ("time", "memory", "decision", "reason"),
    [
        (22.0, 2048.0, "accept", "time_and_memory_gains_met"),
        (10.0, 512.0, "accept", "time_and_memory_gains_met"),
        (9.99, 512.0, "tune", "gain_below_thresholds"),
        (10.0, 511.99, "tune", "gain_below_thresholds"),
        (6.0, 256.0, "tune", "gain_below_thresholds"),
        (-50.0, 0.01, "tune", "gain_below_thresholds"),
        (-4.0, 0.0, "reject", "no_meaningful_gain"),
        (0.0, 0.0, "reject", "no_meaningful_gain"),
    ],
)
def test_the_recommendation_follows_the_sources_rule(time, memory, decision, reason):
    assert recommend_training_decision(summary(time, memory)) == {
        "decision": decision,
        "reason": reason,
    }


def test_the_recommendation_takes_other_thresholds():
    made = recommend_training_decision(
        summary(6.0, 256.0), min_time_delta_ms=5.0, min_memory_delta_mb=256.0
    )
    assert made["decision"] == "accept"


def test_the_paired_report_adds_percentages_and_the_meaningful_memory_flag():
    made = summarize_paired_training_result(metrics(482.753, 9782.56), metrics(237.998, 9477.25))
    assert made == {
        "step_time_delta_ms": 244.75,
        "peak_mem_delta_mb": 305.31,
        "time_improved": True,
        "memory_improved": True,
        "time_improvement_pct": 50.7,
        "memory_improvement_pct": 3.12,
        "meaningful_memory_improved": False,
    }
    assert recommend_training_decision(made)["decision"] == "tune"


def test_meaningful_memory_reads_the_unrounded_difference():
    made = summarize_paired_training_result(metrics(1.0, 1000.0), metrics(1.0, 488.001))
    assert made["peak_mem_delta_mb"] == 512.0
    assert made["meaningful_memory_improved"] is False


def test_a_percentage_of_nothing_is_refused():
    with pytest.raises(ValueError, match=r"peak_mem_mb is 0.*positive"):
        summarize_paired_training_result(metrics(1.0, 0.0), metrics(1.0, 0.0))


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf, True, "12", None, [1.0]])
def test_what_is_no_finite_number_is_refused_by_name(wrong):
    with pytest.raises(ValueError, match=r"tuned_metrics: peak_mem_mb is .*finite number"):
        summarize_training_result(metrics(1.0, 1.0), metrics(1.0, wrong))
    with pytest.raises(ValueError, match=r"summary: step_time_delta_ms is .*finite number"):
        recommend_training_decision({**summary(1.0, 1.0), "step_time_delta_ms": wrong})
    with pytest.raises(ValueError, match=r"min_time_delta_ms is .*finite number"):
        recommend_training_decision(summary(1.0, 1.0), min_time_delta_ms=wrong)


def test_a_missing_field_is_named():
    with pytest.raises(ValueError, match="base_metrics: peak_mem_mb is missing"):
        summarize_training_result({"step_time_ms": 1.0}, metrics(1.0, 1.0))
    with pytest.raises(ValueError, match="summary: memory_improved is missing"):
        recommend_training_decision(
            {key: value for key, value in summary(1, 1).items() if key != "memory_improved"}
        )


def test_a_flag_that_is_no_boolean_is_refused():
    with pytest.raises(ValueError, match="time_improved is 1; give True or False"):
        recommend_training_decision({**summary(1.0, 1.0), "time_improved": 1})


def test_a_studys_means_are_rounded_before_the_rule_reads_them():
    # 49.9996 - 40.0044 is 9.9952, but 50.0 - 40.004 is 9.996, and that is 10.0 in two decimals.
    made = decide(case(variant("baseline", time=49.9996, memory=1600.0), variant(time=40.0044)))
    assert made.decision == "accept"
    made = decide(case(variant("baseline", time=50.0, memory=1600.0), variant(time=40.006)))
    assert made.decision == "tune"
    assert "time gain 9.99 ms" in made.text


def test_memory_that_was_not_measured_is_no_gain_and_the_text_says_so():
    made = decide(case(variant("baseline", memory=5000.0), variant(time=10.0, memory=None)))
    assert made.reason == "gain_below_thresholds"
    assert "peak memory was not measured (tuned), which counts as no gain" in made.text


def test_memory_from_another_source_is_no_gain():
    tuned = variant(time=60.0, memory=100.0, peak_mem_source="accelerator_allocator")
    made = decide(case(variant("baseline", memory=5000.0), tuned))
    assert made.reason == "no_meaningful_gain"
    assert made.rollback
    assert "in different ways" in made.text


def test_a_worse_eval_loss_turns_accept_into_tune():
    base = variant("baseline", memory=2000.0, eval_loss=1.0)
    made = decide(case(base, variant(time=10.0, eval_loss=1.06)))
    assert (made.decision, made.reason) == ("tune", "eval_loss_worse")
    assert "higher by 0.06" in made.text
    # 1.05 - 1.0 is above 0.05 in binary, and yet not worse by more than 0.05.
    assert decide(case(base, variant(time=10.0, eval_loss=1.05))).decision == "accept"


def test_an_eval_loss_on_random_data_decides_nothing_and_the_text_says_so():
    base = variant("baseline", memory=2000.0, quality_checked=False)
    made = decide(case(base, variant(time=10.0, eval_loss=9.0, quality_checked=False)))
    assert made.decision == "accept"
    assert "quality was not checked" in made.text


def test_a_faster_step_of_more_samples_counts_for_the_baselines_samples():
    base = variant("baseline", time=50.0, memory=2000.0, samples=2)
    made = decide(case(base, variant(time=70.0, samples=4)))
    assert made.decision == "accept"
    assert "time gain 15.00 ms for the baseline's samples" in made.text


RANK = {"accept": 2, "tune": 1, "reject": 0}
numbers = st.floats(1.0, 3000.0)


@settings(max_examples=60, deadline=None)
@given(time=numbers, memory=numbers, faster=st.floats(0.0, 1.0), smaller=st.floats(0.0, 1.0))
def test_training_never_decides_worse_about_a_better_candidate(time, memory, faster, smaller):
    base = variant("baseline", time=100.0, memory=2000.0)
    one = decide(case(base, variant(time=time, memory=memory)))
    better = decide(case(base, variant(time=time * faster + 1e-3, memory=memory * smaller)))
    if time * faster + 1e-3 <= time:
        assert RANK[better.decision] >= RANK[one.decision]
