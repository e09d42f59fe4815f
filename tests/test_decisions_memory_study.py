"""A memory budget on a measured study: the evaluation of each variant and the decision."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_studies import study, variant
from paired_blocks import with_blocks

from trainperf_mlflow.decisions.study import decide_study
from trainperf_mlflow.errors import PlanError
from trainperf_mlflow.plan import make_plan
from trainperf_mlflow.reporting.note import run_note
from trainperf_mlflow.reporting.table import to_text
from trainperf_mlflow.results.comparison import Comparison
from trainperf_mlflow.results.values import VariantValues


def decided(*variants, policy="memory-budget", **thresholds) -> Comparison:
    return decide_study(study(policy=policy, thresholds=thresholds), variants)


# 20 samples/s each, if not said otherwise.
BASE = variant("baseline", time=100.0, memory=9700.0)
CHECKPOINT = variant("checkpoint", time=125.0, memory=9100.0)
OFFLOAD = variant("offload", time=4000.0, memory=9000.0)


def reasons(made: Comparison) -> dict[str, tuple[str, ...]]:
    found = [made.baseline_evaluation, *(item.evaluation for item in made.candidates)]
    return {item.name: item.reasons for item in found}


def test_a_study_under_a_budget_says_which_limits_each_variant_breaks() -> None:
    made = decided(BASE, CHECKPOINT, OFFLOAD)
    assert reasons(made) == {
        "baseline": ("memory_over_budget",),
        "checkpoint": (),
        "offload": ("throughput_below_floor",),
    }
    assert made.best_candidate == "checkpoint"
    assert made.decision.reason == "compression_strategy_is_best_feasible_option"
    assert made.decision.decision == "accept"
    assert made.decision.numbers["memory_cap_mb"] == 9600.0
    by_name = {item.variant: item.decision for item in made.candidates}
    assert (by_name["offload"].decision, by_name["offload"].reason) == (
        "reject",
        "candidate_over_budget",
    )
    assert by_name["offload"].rollback is True


@pytest.mark.parametrize("variants", [(BASE, CHECKPOINT, OFFLOAD), (BASE, OFFLOAD)])
def test_a_budgets_decision_is_as_sure_as_what_it_is_about(
    variants: tuple[VariantValues, ...],
) -> None:
    blocks = [[[v.metrics["step_time_ms"]] * 4] * len(v.repeats) for v in variants]
    made = decided(*(with_blocks(v, own) for v, own in zip(variants, blocks, strict=True)))
    about = {item.variant: item.decision.confidence for item in made.candidates}
    assert about["offload"] == "unconfirmed"
    assert made.decision.confidence == about.get(made.best_candidate or "", "unconfirmed")
    assert about.get("checkpoint", "confirmed") == "confirmed"
    assert decided(*variants).decision.confidence == "unconfirmed"


def test_the_budget_is_in_the_table_the_note_and_the_json() -> None:
    made = decided(BASE, CHECKPOINT, OFFLOAD, memory_cap_mb=9650.0, max_val_loss=2.5)
    for text in (to_text(made, width=200), run_note(made).replace("\\", "")):
        assert "offload breaks the budget: throughput 0.500 samples/s (at least 1)" in text
        assert "baseline breaks the budget: memory 9700.00 MiB (at most 9650)" in text
        assert "checkpoint keeps the budget" in text
        assert "eval loss 2 (at most 2.5)" in text
    assert Comparison.from_json(made.to_json()) == made
    summary = made.summary()
    assert summary["baseline_evaluation"]["status"] == "rejected"
    assert summary["candidates"][0]["evaluation"]["status"] == "feasible"


def test_both_memory_policies_decide_a_study_with_their_own_codes() -> None:
    made = decided(BASE, CHECKPOINT, policy="memory-strategy")
    assert made.decision.reason == "strategy_is_best_feasible_option"
    assert made.decision.policy == "memory-strategy"
    none = decided(BASE, CHECKPOINT, policy="memory-strategy", memory_cap_mb=10.0)
    assert none.decision.next_action == "rework_checkpoint_or_offload_scope"
    assert none.decision.rollback is True
    assert none.best_candidate is None


def test_a_budgets_thresholds_act_exactly_on_a_study() -> None:
    assert decided(BASE, CHECKPOINT, memory_cap_mb=9100.0).decision.decision == "accept"
    assert decided(BASE, CHECKPOINT, memory_cap_mb=9099.9).decision.decision == "reject"
    assert decided(BASE, CHECKPOINT, min_samples_per_s=16.0).decision.decision == "accept"
    assert decided(BASE, CHECKPOINT, min_samples_per_s=16.01).decision.decision == "reject"
    assert decided(BASE, CHECKPOINT, min_memory_saving_mb=600.0).decision.decision == "accept"
    assert decided(BASE, CHECKPOINT, min_memory_saving_mb=600.01).decision.decision == "tune"
    assert decided(BASE, CHECKPOINT, min_throughput_ratio=0.8).decision.decision == "accept"
    assert decided(BASE, CHECKPOINT, min_throughput_ratio=0.801).decision.decision == "tune"


def test_the_loss_limit_is_a_share_of_the_baselines_unless_given() -> None:
    at_limit = variant("checkpoint", time=125.0, memory=9100.0, eval_loss=2.04)
    assert decided(BASE, at_limit).decision.decision == "accept"
    over = variant("checkpoint", time=125.0, memory=9100.0, eval_loss=2.0401)
    assert reasons(decided(BASE, over))["checkpoint"] == ("quality_over_floor",)
    assert decided(BASE, over, max_val_loss=3.0).decision.decision == "accept"
    assert decided(BASE, over, max_val_loss_ratio=1.5).decision.decision == "accept"
    assert reasons(decided(BASE, CHECKPOINT, max_val_loss=1.9))["baseline"] == (
        "memory_over_budget",
        "quality_over_floor",
    )


def test_without_real_text_only_a_limit_that_was_asked_for_is_judged() -> None:
    unread = variant("checkpoint", time=125.0, memory=9100.0, eval_loss=9.0, quality_checked=False)
    made = decided(BASE, unread)
    assert made.decision.decision == "accept"
    assert "quality was not checked, because the eval loss was not taken on real" in (
        made.decision.text
    )
    asked = decided(BASE, unread, max_val_loss=8.0)
    assert reasons(asked)["checkpoint"] == ("quality_over_floor",)
    assert asked.decision.decision == "reject"


def test_a_limit_asked_for_on_a_loss_that_was_not_measured_is_not_kept() -> None:
    silent = variant("checkpoint", time=125.0, memory=9100.0, eval_loss=None)
    made = decided(BASE, silent, max_val_loss=8.0)
    assert made.candidates[0].decision.reason == "budget_not_measured"
    assert made.candidates[0].evaluation.status == "invalid"
    assert made.decision.decision == "reject"


def test_the_baseline_competes_and_may_stay_the_best() -> None:
    larger = variant("checkpoint", time=125.0, memory=9800.0)
    made = decided(BASE, larger, memory_cap_mb=12000.0)
    assert made.best_candidate == "baseline"
    assert made.decision.reason == "memory_saving_below_meaningful_threshold"
    assert "best is baseline" in made.decision.text


@pytest.mark.parametrize("policy", ["memory-budget", "memory-strategy"])
@pytest.mark.parametrize(
    ("candidate", "reason"),
    [
        (variant("offload", time=4000.0, memory=9000.0), "candidate_over_budget"),
        (variant("hybrid", time=125.0, memory=9550.0), "memory_saving_below_meaningful_threshold"),
        (variant("bf16", time=125.0, memory=9000.0), "baseline_still_best_under_current_budget"),
        (variant("checkpoint", time=200.0, memory=9000.0), "throughput_loss_exceeds_budget"),
        (variant("checkpoint", time=125.0, memory=9000.0), "strategy_is_best_feasible_option"),
    ],
)
def test_a_budget_judges_by_memory_and_throughput_and_needs_no_step_time(
    policy: str, candidate: VariantValues, reason: str
) -> None:
    def without_time(values: VariantValues) -> VariantValues:
        held = {k: v for k, v in values.metrics.items() if k != "step_time_ms"}
        repeats = tuple(r.model_copy(update={"metrics": held}) for r in values.repeats)
        return values.model_copy(update={"metrics": held, "repeats": repeats})

    limits = {"memory_cap_mb": 9600.0, "min_samples_per_s": 1.0}
    for pair in ((BASE, candidate), (without_time(BASE), without_time(candidate))):
        made = decided(*pair, policy=policy, **limits)
        assert made.candidates[0].decision.reason.removeprefix("compression_") == reason
        # It is said of this candidate, whether it is the best one or not.
        assert "best" not in made.candidates[0].decision.text


def test_a_study_whose_baseline_is_best_says_so_and_a_candidate_speaks_of_itself() -> None:
    larger = [variant(name, time=125.0, memory=9800.0) for name in ("checkpoint", "offload")]
    made = decided(BASE, *larger, memory_cap_mb=12000.0)
    # The source asks for the saving before it asks which variant is best.
    assert made.decision.reason == "memory_saving_below_meaningful_threshold"
    assert "too little memory is saved" in made.decision.text
    assert "best is baseline, so no other variant within the budget" in made.decision.text
    assert all("best" not in item.decision.text for item in made.candidates)


def test_a_strategy_is_known_by_what_it_changes_whatever_its_name() -> None:
    base = variant("baseline", time=100.0, memory=9700.0, config={"checkpoint": False})
    mine = variant("mine", time=125.0, memory=9100.0, config={"checkpoint": True})
    assert decided(base, mine).decision.decision == "accept"
    other = variant("other", time=90.0, memory=9100.0, config={"precision": "bf16"})
    made = decided(base, other)
    assert made.decision.reason == "baseline_still_best_under_current_budget"
    assert "no memory strategy" in made.decision.text


def test_what_did_not_run_is_counted_apart_and_keeps_its_own_reason() -> None:
    gone = variant("offload", statuses=("oom", "oom"))
    broken = variant("hybrid", statuses=("failed",))
    idle = variant("idle", time=50.0, memory=10.0, effect_verified=False)
    made = decided(BASE, CHECKPOINT, gone, broken, idle)
    by_name = {item.variant: item for item in made.candidates}
    assert by_name["offload"].evaluation.status == "oom"
    assert by_name["hybrid"].evaluation.status == "invalid"
    assert by_name["idle"].evaluation.status == "invalid"
    assert by_name["offload"].decision.reason == "candidate_oom"
    assert by_name["idle"].decision.reason == "change_without_effect"
    assert made.best_candidate == "checkpoint"
    assert "1 ran out of memory; 2 cannot be judged" in made.decision.text


def test_a_best_candidate_of_which_repeats_failed_is_not_accepted() -> None:
    shaky = variant("checkpoint", time=125.0, memory=9100.0, statuses=("ok", "oom", "ok"))
    made = decided(BASE, shaky)
    assert made.best_candidate == "checkpoint"
    assert (made.decision.decision, made.decision.reason) == ("tune", "repeats_failed")


def test_memory_from_different_sources_does_not_compete() -> None:
    other = variant("checkpoint", time=125.0, memory=1.0, peak_mem_source="accelerator_allocator")
    made = decided(BASE, other)
    assert made.candidates[0].evaluation.status == "invalid"
    assert "measured in different ways" in made.candidates[0].evaluation.detail


def test_reserved_memory_over_the_cap_is_a_warning_on_the_study() -> None:
    tight = variant("checkpoint", time=125.0, memory=9100.0, metrics={"peak_reserved_mb": 9700.0})
    made = decided(BASE, tight)
    assert made.candidates[0].evaluation.reserved_over_cap is True
    assert any("reserved more than memory_cap_mb (checkpoint)" in text for text in made.warnings)
    assert "its reserved memory exceeds the cap although the allocated fits" in made.decision.text


def test_other_policies_are_told_beside_a_budget_but_not_budgets_beside_them() -> None:
    made = decided(BASE, CHECKPOINT)
    assert set(made.candidates[0].other_decisions) == {"training", "optimization"}
    plain = decide_study(study(), [BASE, CHECKPOINT])
    assert set(plain.candidates[0].other_decisions) == {"optimization"}
    assert plain.candidates[0].evaluation is None
    assert plain.baseline_evaluation is None


@given(st.permutations(["checkpoint", "offload", "hybrid"]), st.data())
@settings(max_examples=25, deadline=None)
def test_the_order_in_which_variants_are_measured_does_not_matter(names, data) -> None:
    drawn = {
        name: variant(
            name,
            time=data.draw(st.floats(50, 3000), label=f"time of {name}"),
            memory=data.draw(st.sampled_from([9000.0, 9100.0, 9188.0, 9650.0])),
        )
        for name in sorted(names)
    }
    one = decided(BASE, *drawn.values())
    other = decided(*(drawn[name] for name in names), BASE)
    assert (one.best_candidate, one.decision) == (other.best_candidate, other.decision)


# --- the plan ----------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["optimization", "memory-strategy", "memory-budget"])
def test_a_plan_takes_each_policy(policy) -> None:
    assert make_plan({"candidates": ["checkpoint"], "policy": policy}).policy_name == policy


def test_a_plan_takes_a_budgets_limits_also_the_one_without_a_default() -> None:
    limits = {"memory_cap_mb": 100.0, "min_samples_per_s": 2.0, "max_val_loss": 3.0}
    plan = make_plan({"candidates": ["checkpoint"], "policy": "memory-budget", "threshold": limits})
    assert plan.threshold == limits


def test_a_threshold_of_another_policy_is_refused_with_its_owner() -> None:
    with pytest.raises(PlanError, match=r"max_val_loss.*belongs to the policy 'memory-strategy'"):
        make_plan({"candidates": ["checkpoint"], "threshold": {"max_val_loss": 3.0}})
