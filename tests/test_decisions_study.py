from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_studies import study, variant

from trainperf_mlflow.decisions.reasons import REASONS
from trainperf_mlflow.decisions.study import decide_study
from trainperf_mlflow.errors import MeasurementError, PlanError
from trainperf_mlflow.results.comparison import Comparison

BASE = variant("baseline", time=100.0, memory=2000.0)
GOOD = variant("good", time=50.0, memory=1000.0)
WEAK = variant("weak", time=99.0, memory=2000.0)
BAD = variant("bad", time=120.0, memory=2100.0)


def by_name(comparison: Comparison) -> dict[str, str]:
    return {item.variant: item.decision.decision for item in comparison.candidates}


def test_each_candidate_gets_a_decision_and_the_study_that_of_its_best_one():
    made = decide_study(study(), [BASE, BAD, GOOD, WEAK])
    assert by_name(made) == {"bad": "reject", "good": "accept", "weak": "tune"}
    assert made.best_candidate == "good"
    assert made.decision.decision == "accept"
    assert made.thresholds == {
        "min_time_delta_ms": 10.0,
        "min_memory_delta_mb": 512.0,
        "max_eval_loss_delta": 0.05,
    }


def test_with_a_goal_the_sources_rule_is_told_too():
    made = decide_study(study("step_time"), [BASE, variant("bf16", time=50.0, memory=1900.0)])
    candidate = made.candidates[0]
    assert candidate.decision.reason == "goal_met"
    assert candidate.other_decisions["training"].decision == "tune"
    assert candidate.other_decisions["training"].policy == "training"


def test_the_studys_thresholds_override_the_defaults():
    made = decide_study(study("step_time", thresholds={"min_gain": 60.0}), [BASE, GOOD])
    assert made.decision.reason == "goal_gain_below_threshold"
    assert made.thresholds["min_gain"] == 60.0


def test_among_equal_decisions_the_larger_gain_wins_then_the_name():
    lighter = variant("lighter", time=52.0, memory=500.0)
    faster = variant("faster", time=50.0, memory=1000.0)
    assert decide_study(study("step_time"), [BASE, lighter, faster]).best_candidate == "faster"
    assert decide_study(study("peak_mem"), [BASE, lighter, faster]).best_candidate == "lighter"
    assert decide_study(study(), [BASE, faster, lighter]).best_candidate == "lighter"
    twin = faster.model_copy(update={"name": "a twin"})
    assert decide_study(study(), [BASE, faster, twin]).best_candidate == "a twin"


def test_a_candidate_without_gain_ranks_above_one_that_got_worse():
    same = variant("same", time=100.0, memory=2000.0)
    assert decide_study(study(), [BASE, BAD, same]).best_candidate == "same"


candidates = st.builds(
    lambda number, time, memory, status: variant(
        f"c{number}", time=time, memory=memory, statuses=(status,)
    ),
    number=st.integers(0, 10_000),
    time=st.floats(20.0, 200.0),
    memory=st.floats(500.0, 4000.0),
    status=st.sampled_from(["ok", "ok", "ok", "oom", "failed"]),
)


@settings(max_examples=50, deadline=None)
@given(
    some=st.lists(candidates, min_size=1, max_size=5, unique_by=lambda item: item.name),
    seed=st.integers(0, 99),
    goal=st.sampled_from([None, "step_time", "peak_mem"]),
)
def test_the_order_of_candidates_does_not_matter(some, seed, goal):
    shuffled = [*some, BASE]
    random.Random(seed).shuffle(shuffled)
    assert decide_study(study(goal), [BASE, *some]) == decide_study(study(goal), shuffled)


@pytest.mark.parametrize("status", ["oom", "failed", "timeout", "diverged", "unsupported"])
@pytest.mark.parametrize("goal", [None, "step_time"])
def test_a_candidate_that_did_not_run_is_rejected_with_its_reason(status, goal):
    broken = variant("broken", statuses=(status,) * 3, error="the cause")
    made = decide_study(study(goal), [BASE, broken])
    decision = made.candidates[0].decision
    assert (decision.decision, decision.reason) == ("reject", f"candidate_{status}")
    assert decision.rollback
    assert decision.next_action == REASONS[f"candidate_{status}"].next_action
    assert "the cause" in decision.text
    assert made.candidates[0].delta == {}


@settings(max_examples=40, deadline=None)
@given(
    time=st.floats(1.0, 50.0),
    memory=st.floats(1.0, 1000.0),
    goal=st.sampled_from(["", "step_time"]),
)
def test_no_gain_is_large_enough_to_pass_a_guard(time, memory, goal):
    fields = {"time": time, "memory": memory}
    made = decide_study(
        study(goal or None),
        [
            BASE,
            variant("partly", statuses=("ok", "failed", "ok"), **fields),
            variant("no effect", effect_verified=False, effect_detail="still fp32", **fields),
            variant("nan", loss=float("nan"), **fields),
        ],
    )
    reasons = {item.variant: item.decision.reason for item in made.candidates}
    assert reasons == {
        "partly": "repeats_failed",
        "no effect": "change_without_effect",
        "nan": "candidate_diverged",
    }
    assert "accept" not in by_name(made).values()


def test_a_change_without_effect_says_what_to_check():
    made = decide_study(study(), [BASE, variant(effect_verified=False, effect_detail="fp32")])
    assert made.decision.decision == "tune"
    assert made.decision.next_action == "check_that_the_setting_takes_effect"
    assert "(fp32)" in made.decision.text


def test_failed_repeats_do_not_soften_a_reject():
    made = decide_study(
        study(), [BASE, variant("bad", time=120.0, memory=2100.0, statuses=("ok", "oom"))]
    )
    assert made.decision.reason == "no_meaningful_gain"
    assert "bad: 1 ok, 1 oom" in made.warnings


def test_a_candidate_without_a_step_time_is_not_judged():
    made = decide_study(study(), [BASE, variant(time=None)])
    assert (made.decision.decision, made.decision.reason) == ("tune", "step_time_not_measured")


def test_a_baseline_that_never_succeeded_ends_the_comparison_with_statuses_and_remedy():
    base = variant("baseline", statuses=("oom", "oom"), error="tried to get 90 GiB")
    with pytest.raises(MeasurementError, match=r"2 oom: tried to get 90 GiB.*smaller batch_size"):
        decide_study(study(), [base, GOOD])
    with pytest.raises(MeasurementError, match="no measured baseline"):
        decide_study(study(), [GOOD])


def test_a_study_without_a_candidate_or_with_an_unknown_policy_is_refused():
    with pytest.raises(PlanError, match="no candidate"):
        decide_study(study(), [BASE])
    with pytest.raises(PlanError, match="unknown policy 'other'"):
        decide_study(study(policy="other"), [BASE, GOOD])
    with pytest.raises(PlanError, match="needs a goal"):
        decide_study(study(policy="goal"), [BASE, GOOD])


def test_a_probe_measures_and_compares_nothing():
    made = decide_study(
        study(plan={"probe": True}), [variant("bf16"), variant("big", statuses=("oom",))]
    )
    assert (made.decision.decision, made.decision.reason) == ("measure", "nothing_to_compare")
    assert made.baseline is None
    assert made.best_candidate is None
    assert by_name(made) == {"bf16": "measure", "big": "measure"}
    assert made.candidates[0].metrics["step_time_ms"] == 50.0
    assert made.candidates[0].delta == {}


def test_a_probe_of_which_nothing_ran_is_an_error():
    with pytest.raises(MeasurementError, match="bf16: 3 failed"):
        decide_study(study(plan={"probe": True}), [variant("bf16", statuses=("failed",) * 3)])


def test_warnings_name_what_weakens_the_comparison():
    made = decide_study(
        study(),
        [
            variant("baseline", statuses=("ok",)),
            variant("two", statuses=("ok", "ok"), quality_checked=False, effect_verified=None),
            variant("big", samples=4, memory=None),
        ],
    )
    text = "\n".join(made.warnings)
    assert "the baseline has 1 ok repeats, two has 2" in text
    assert "big has other samples per step" in text
    assert "peak memory was not measured (big)" in text
    assert "two: whether the change is in effect could not be checked" in text
    assert "quality was not checked" in text
    assert "one repeat says nothing" in text


def test_a_clean_study_has_no_warnings_and_counts_its_pairs():
    made = decide_study(study(), [BASE, GOOD])
    assert made.warnings == ()
    assert made.candidates[0].pairs == 3


def test_a_compilation_tells_what_it_takes_and_when_it_pays():
    base = variant("baseline", time=100.0)
    faster = variant("faster", time=90.0, metrics={"compile_s": 20.0})
    slower = variant("slower", time=101.0, metrics={"compile_s": 20.0})
    made = {item.variant: item for item in decide_study(study(), [base, faster, slower]).candidates}
    assert made["faster"].metrics["break_even_steps"] == 2000.0
    assert "compiling takes 20.0 s and pays after 2000 steps" in made["faster"].note
    assert "break_even_steps" not in made["slower"].metrics
    assert "never pays" in made["slower"].note


def test_a_comparison_survives_json():
    made = decide_study(study("step_time"), [BASE, GOOD, BAD])
    assert Comparison.from_json(made.to_json()) == made


def test_only_a_reject_asks_to_roll_back_and_every_reason_has_a_next_action():
    made = decide_study(study(), [BASE, GOOD, WEAK, BAD])
    assert {item.variant: item.decision.rollback for item in made.candidates} == {
        "good": False,
        "weak": False,
        "bad": True,
    }
    assert all(reason.next_action.replace("_", "").isalnum() for reason in REASONS.values())


def test_a_change_without_effect_gets_no_credit_in_words():
    base = variant("baseline", time=100.0)
    idle = variant("idle", time=80.0, effect_verified=False, effect_detail="precision: float32")
    (item,) = decide_study(study(), [base, idle]).candidates
    assert item.decision.reason == "change_without_effect"
    assert "saves" not in item.note
    assert "not in effect" in item.note


def test_repeats_of_the_same_code_that_differ_much_are_told_with_their_range():
    def timed(name, *times, **more):
        made = variant(name, statuses=("ok",) * len(times), **more)
        repeats = tuple(
            repeat.model_copy(update={"metrics": {**repeat.metrics, "step_time_ms": time}})
            for repeat, time in zip(made.repeats, times, strict=True)
        )
        return made.model_copy(update={"repeats": repeats})

    base = timed("baseline", 67.5, 67.9, 110.5)
    steady = timed("steady", 60.0, 61.0, 62.0)
    warnings = decide_study(study(), [base, steady]).warnings
    (told,) = [warning for warning in warnings if "same code" in warning]
    assert "(baseline 67.5 to 110 ms a step)" in told


def test_a_baseline_that_never_ran_is_told_apart_from_one_that_failed():
    base = variant("baseline", statuses=())
    with pytest.raises(MeasurementError, match="interrupted early"):
        decide_study(study(), [base, GOOD])
