from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_studies import case, variant

from trainperf_mlflow.decisions.goal import decide, goal_gain, refuse_unmeasurable
from trainperf_mlflow.decisions.policies import GOALS
from trainperf_mlflow.errors import MeasurementError


def judged(goal="step_time", base=None, thresholds=None, **tuned):
    baseline = variant("baseline", time=100.0, memory=1000.0, **(base or {}))
    candidate = variant(**{"time": 100.0, "memory": 1000.0, **tuned})
    return decide(case(baseline, candidate, goal=goal, **(thresholds or {})))


def test_a_faster_candidate_is_accepted_where_the_sources_memory_gain_cannot_be_met():
    made = judged(time=50.0, memory=990.0)
    assert (made.decision, made.reason, made.rollback) == ("accept", "goal_met", False)
    assert "step_time_ms 100 -> 50 is 50 % better (at least 5 % wanted)" in made.text


@pytest.mark.parametrize(
    ("time", "reason"),
    [
        (95.0, "goal_met"),
        (95.001, "goal_gain_below_threshold"),
        (99.0, "goal_gain_below_threshold"),
        (100.0, "no_goal_gain"),
        (101.0, "no_goal_gain"),
    ],
)
def test_min_gain_acts_at_the_boundary(time, reason):
    assert judged(time=time).reason == reason


@pytest.mark.parametrize(
    ("memory", "reason"), [(1050.0, "goal_met"), (1050.01, "cost_constraint_broken")]
)
def test_max_cost_acts_at_the_boundary(memory, reason):
    assert judged(time=50.0, memory=memory).reason == reason


@pytest.mark.parametrize(
    ("eval_loss", "reason"), [(1.05, "goal_met"), (1.0501, "eval_loss_constraint_broken")]
)
def test_the_eval_losses_margin_acts_at_the_boundary(eval_loss, reason):
    made = judged(base={"eval_loss": 1.0}, time=50.0, eval_loss=eval_loss)
    assert made.reason == reason


@settings(max_examples=80, deadline=None)
@given(base=st.integers(1, 4000), percent=st.integers(1, 60))
def test_a_gain_of_exactly_the_threshold_passes_whatever_binary_makes_of_it(base, percent):
    baseline = variant("baseline", memory=base / 10)
    candidate = variant(memory=base / 10 * (100 - percent) / 100)
    made = decide(case(baseline, candidate, goal="peak_mem", min_gain=float(percent)))
    assert made.decision == "accept"


def test_a_broken_constraint_rejects_and_rolls_back_with_its_number():
    made = judged(goal="peak_mem", time=124.0, memory=390.0)
    assert (made.decision, made.rollback) == ("reject", True)
    assert made.next_action == "restore_baseline"
    assert "the gain costs too much time" in made.text
    assert "costs 24 % in time (at most 5 % allowed)" in made.text
    allowed = judged(goal="peak_mem", time=124.0, memory=390.0, thresholds={"max_cost": 40.0})
    assert allowed.decision == "accept"


@pytest.mark.parametrize("goal", ["samples_per_s", "tokens_per_s", "step_time"])
def test_time_does_not_constrain_its_own_twins(goal):
    tokens = {"metrics": {"tokens_per_s": 100.0}}
    made = judged(goal=goal, base=tokens, time=10.0, metrics={"tokens_per_s": 200.0})
    assert made.decision == "accept"
    assert "in time" not in made.text


def test_throughput_gains_are_relative_to_the_baseline():
    made = judged(goal="samples_per_s", time=50.0)
    assert "samples_per_s 20 -> 40 is 100 % better" in made.text


def test_a_goal_that_was_not_measured_is_tuned():
    made = judged(goal="tokens_per_s", time=10.0)
    assert (made.decision, made.reason) == ("tune", "goal_not_measured")
    assert made.next_action == "measure_goal_metric"
    other_source = judged(goal="peak_mem", memory=1.0, peak_mem_source="accelerator_allocator")
    assert other_source.reason == "goal_not_measured"


def test_an_eval_loss_goal_needs_real_text_and_is_no_constraint_to_itself():
    random_data = judged(goal="eval_loss", eval_loss=1.0, quality_checked=False)
    assert random_data.reason == "goal_not_measured"
    worse = judged(goal="eval_loss", eval_loss=2.5)
    assert worse.reason == "no_goal_gain"
    assert judged(goal="eval_loss", eval_loss=1.8).reason == "goal_met"


def test_time_is_compared_per_sample_for_the_goal_too():
    baseline = variant("baseline", time=100.0, samples=2)
    candidate = variant(time=180.0, samples=4)
    made = decide(case(baseline, candidate, goal="step_time"))
    assert made.decision == "accept"
    assert "100 -> 90 for the same samples is 10 % better" in made.text


def test_unchecked_quality_and_uncompared_memory_are_said():
    made = judged(time=50.0, memory=None, eval_loss=None)
    assert made.decision == "accept"
    assert "peak memory could not be compared" in made.text
    assert "quality was not checked" in made.text


def test_the_rule_without_a_goal_is_a_callers_error():
    with pytest.raises(ValueError, match="needs a goal"):
        decide(case(variant("baseline"), variant()))


@pytest.mark.parametrize("goal", list(GOALS))
def test_every_goal_has_a_gain_when_its_metric_is_measured(goal):
    metric, better = GOALS[goal]
    old, new = (2.0, 1.0) if better == "lower" else (1.0, 2.0)
    base = variant("baseline").model_copy(update={"metrics": {metric: old, "eval_loss": 2.0}})
    tuned = variant().model_copy(update={"metrics": {metric: new, "eval_loss": 2.0}})
    if goal == "eval_loss":
        base, tuned = variant("baseline", eval_loss=old), variant(eval_loss=new)
    assert goal_gain(case(base, tuned, goal=goal)) == pytest.approx(
        50.0 if better == "lower" else 100.0
    )


RANK = {"accept": 2, "tune": 1, "reject": 0}
share = st.floats(0.0, 1.0)


@settings(max_examples=100, deadline=None)
@given(
    goal=st.sampled_from(["step_time", "samples_per_s", "peak_mem"]),
    time=st.floats(10.0, 200.0),
    memory=st.floats(100.0, 2000.0),
    loss=st.floats(1.9, 2.2),
    faster=share,
    smaller=share,
    wiser=st.floats(0.0, 0.3),
)
def test_a_goal_never_decides_worse_about_a_better_candidate(
    goal, time, memory, loss, faster, smaller, wiser
):
    one = judged(goal, time=time, memory=memory, eval_loss=loss)
    better = judged(
        goal,
        time=max(time * faster, 1e-3),
        memory=max(memory * smaller, 1e-3),
        eval_loss=loss - wiser,
    )
    assert RANK[better.decision] >= RANK[one.decision]


def test_a_goal_without_a_number_on_the_device_is_told_before_measuring():
    with pytest.raises(MeasurementError, match="peak_reserved has no number on cpu"):
        refuse_unmeasurable("peak_reserved", "cpu")
    for goal, device in [(None, "cpu"), ("peak_mem", "cpu"), ("peak_reserved", "cuda:0")]:
        refuse_unmeasurable(goal, device)
