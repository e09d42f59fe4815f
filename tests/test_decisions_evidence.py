"""The evidence guard: what intervals make of a rule's accept, tune or reject."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from made_studies import study, variant
from paired_blocks import normal_ratios, with_blocks

from trainperf_mlflow.analysis.metrics import mean_metrics
from trainperf_mlflow.analysis.rounds import saved_by_round
from trainperf_mlflow.decisions.study import decide_study
from trainperf_mlflow.results.comparison import CandidateComparison, Comparison
from trainperf_mlflow.results.record import Status
from trainperf_mlflow.results.values import RepeatValues, VariantValues


def measured(base: VariantValues, times: np.ndarray) -> VariantValues:
    """The variant with blocks of these times; its step time is their mean, as when measured."""
    made = with_blocks(base, times.tolist())
    repeats = tuple(
        repeat.model_copy(
            update={
                "metrics": {
                    **repeat.metrics,
                    "step_time_ms": float(np.mean(own)),
                    "samples_per_s": 2000.0 / float(np.mean(own)),
                }
            }
        )
        for repeat, own in zip(made.repeats, times, strict=True)
    )
    return made.model_copy(update={"repeats": repeats, "metrics": mean_metrics(repeats)})


def decided(
    saved: float,
    *,
    goal: str | None = "step_time",
    within: float = 0.005,
    rounds: int = 3,
    memory: float = 1000.0,
    seed: int = 1,
    step_ms: float = 100.0,
    thresholds: dict[str, float] | None = None,
    **fields: Any,
) -> CandidateComparison:
    """A study whose candidate truly saves this share of the time."""
    chance = np.random.default_rng(seed)
    statuses = ("ok",) * rounds
    ratios = normal_ratios(chance, -np.log1p(-saved), rounds, within, 0.002)
    before = step_ms * np.exp(chance.normal(0, 0.02, (rounds, 4)))
    base = measured(variant("baseline", memory=1000.0, statuses=statuses), before)
    tuned = variant("tuned", memory=memory, statuses=statuses, **fields)
    tuned = measured(tuned, before * np.exp(-ratios))
    made = decide_study(study(goal, thresholds=thresholds or {}), [base, tuned])
    return made.candidates[0]


def verdict(made: CandidateComparison) -> tuple[str, str, str]:
    return made.decision.decision, made.decision.reason, made.decision.confidence


# --- gains ---------------------------------------------------------------------------------------


def test_a_gain_whose_interval_reaches_the_threshold_is_confirmed() -> None:
    made = decided(0.12)
    assert verdict(made) == ("accept", "goal_met", "confirmed")
    assert made.time is not None
    assert made.time.direction == "faster"
    assert "[+1" in made.decision.text
    assert made.delta["step_time_pct_low"] < made.delta["step_time_pct"]
    assert made.delta["step_time_pct"] < made.delta["step_time_pct_high"]
    assert made.delta["speedup"] == pytest.approx(1 / 0.88, rel=0.01)
    assert made.delta["step_time_ms_low"] < 12.0 < made.delta["step_time_ms_high"]


def test_an_accept_whose_interval_does_not_reach_is_tune_and_says_what_would_settle_it() -> None:
    made = decided(0.08, within=0.06, seed=0)
    assert verdict(made) == ("tune", "gain_not_confirmed", "unconfirmed")
    assert made.decision.next_action == "measure_more_pairs"
    assert "more pairs" in made.decision.text


@pytest.mark.parametrize("rounds", [1, 2])
def test_fewer_than_three_process_pairs_accept_nothing_in_time(rounds: int) -> None:
    made = decided(0.3, rounds=rounds)
    assert verdict(made) == ("tune", "gain_not_confirmed", "unconfirmed")
    assert "too few" in made.decision.text


@pytest.mark.parametrize("goal", [None, "step_time", "samples_per_s", "peak_mem"])
@pytest.mark.parametrize("seed", range(8))
def test_identical_code_is_the_same_and_rejected_for_no_meaningful_gain(
    goal: str | None, seed: int
) -> None:
    made = decided(0.0, goal=goal, within=0.003, seed=seed)
    assert made.time is not None
    if made.time.direction == "same":
        assert verdict(made) == ("reject", "no_meaningful_gain", "confirmed")
    assert made.decision.decision != "accept"
    assert made.time.direction not in ("faster", "slower")


def test_a_small_gain_that_may_be_none_is_no_tune_by_the_toss_of_a_coin() -> None:
    found = [decided(0.0, goal=None, within=0.01, seed=seed) for seed in range(6)]
    assert {made.decision.decision for made in found} == {"reject"}
    assert any(made.delta["step_time_ms"] > 0 for made in found)
    # One that is there for sure is a tune.
    made = decided(0.03, goal=None)
    assert verdict(made) == ("tune", "gain_below_thresholds", "confirmed")


def test_a_reject_whose_interval_still_allows_the_gain_asks_for_more_pairs() -> None:
    made = decided(-0.005, within=0.09, seed=2)
    assert made.delta["step_time_pct_high"] > 5.0
    assert verdict(made) == ("tune", "more_pairs_needed", "unconfirmed")
    assert "more pairs" in made.decision.text
    assert not made.decision.rollback


def test_a_machine_too_noisy_for_any_verdict_is_called_unfit() -> None:
    made = decided(0.10, within=0.4, seed=5)
    assert verdict(made) == ("tune", "measurement_unfit", "unfit")
    assert "too noisy" in made.decision.text


@pytest.mark.parametrize("goal", [None, "step_time", "samples_per_s", "peak_mem"])
@pytest.mark.parametrize("saved", [-0.5, -0.01, 0.0, 0.01, 0.3])
@pytest.mark.parametrize("memory", [100.0, 995.0, 1000.0, 3000.0])
@pytest.mark.parametrize("step_ms", [2.0, 100.0])
def test_one_repeat_confirms_nothing_and_two_only_what_counted_memory_shows(
    goal: str | None, saved: float, memory: float, step_ms: float
) -> None:
    for max_cost in ({}, {"max_cost": 60.0}, {"max_cost": 500.0}) if goal else ({},):
        for rounds in (1, 2):
            made = decided(
                saved, goal=goal, rounds=rounds, memory=memory, step_ms=step_ms, thresholds=max_cost
            )
            for one in (made.decision, *made.other_decisions.values()):
                confirmed = one.confidence == "confirmed"
                assert not (confirmed and rounds == 1), one
                # Two repeats give time no interval: an accept is then of counted memory only.
                of_memory = one.policy == "goal" and goal == "peak_mem"
                assert not confirmed or one.decision != "accept" or of_memory, one


# --- costs and memory -----------------------------------------------------------------------------


def test_memory_that_is_the_same_in_every_round_confirms_by_itself() -> None:
    made = decided(0.0, goal="peak_mem", memory=500.0, within=0.05, thresholds={"max_cost": 90.0})
    assert verdict(made) == ("accept", "goal_met", "confirmed")
    assert made.delta["peak_mem_mb_low"] == made.delta["peak_mem_mb_high"] == 500.0


def test_a_cost_that_is_not_confirmed_rejects_nothing() -> None:
    sure = decided(-0.2, goal="peak_mem", memory=500.0)
    assert verdict(sure) == ("reject", "cost_constraint_broken", "confirmed")
    unsure = decided(-0.055, goal="peak_mem", memory=500.0, within=0.03, seed=4)
    assert unsure.decision.decision == "tune"
    assert unsure.decision.confidence == "unconfirmed"


def test_quality_and_failures_are_never_softened() -> None:
    worse = decided(0.3, eval_loss=3.0, within=0.3)
    assert verdict(worse)[:2] == ("reject", "eval_loss_constraint_broken")
    partly = decided(0.3, effect_verified=False)
    assert partly.decision.reason == "change_without_effect"


def test_without_blocks_the_bare_rule_decides_and_nothing_is_confirmed() -> None:
    made = decide_study(study("step_time"), [variant("baseline", time=100.0), variant("t")])
    candidate = made.candidates[0]
    assert verdict(candidate) == ("accept", "goal_met", "unconfirmed")
    assert candidate.time is None
    assert "step_time_pct_low" not in candidate.delta


def test_the_levels_of_several_candidates_and_looks_are_corrected() -> None:
    base = measured(variant("baseline"), np.full((3, 4), 100.0))
    others = [measured(variant(name), np.full((3, 4), 90.0)) for name in ("a", "b")]

    def level(plan: dict[str, Any], candidates: list[VariantValues]) -> float:
        made: Comparison = decide_study(study(plan=plan), [base, *candidates])
        assert made.candidates[0].time is not None
        return made.candidates[0].time.level

    once = {"repeats": 3, "blocks": "auto", "max_time": None}
    assert level(once, others[:1]) == pytest.approx(0.95, abs=1e-4)
    assert level(once, others) == pytest.approx(0.975, abs=1e-4)
    assert level({**once, "max_time": 600.0}, others[:1]) == pytest.approx(0.982, abs=1e-3)


# --- differences that each round measures once ---------------------------------------------------


def rounds_of(name: str, values: list[float], metric: str = "peak_mem_mb") -> VariantValues:
    repeats = tuple(
        RepeatValues(index=index, status=Status.OK, metrics={metric: value})
        for index, value in enumerate(values)
    )
    role: Any = "baseline" if name == "baseline" else "candidate"
    return VariantValues(name=name, role=role, status=Status.OK, repeats=repeats)


def test_values_that_differ_get_the_interval_of_students_t() -> None:
    base = rounds_of("baseline", [100.0, 102.0, 104.0])
    found = saved_by_round(base, rounds_of("t", [90.0, 91.0, 92.0]), "peak_mem_mb")
    assert found is not None
    # Savings 10, 11, 12: mean 11, standard deviation 1, t for 2 degrees of freedom 4.302653.
    assert found == pytest.approx((11.0, 11.0 - 4.302653 / 3**0.5, 11.0 + 4.302653 / 3**0.5))


def test_one_round_of_a_count_is_exact_and_one_of_a_resident_set_says_nothing() -> None:
    pair = rounds_of("baseline", [100.0]), rounds_of("t", [90.0])
    assert saved_by_round(*pair, "peak_mem_mb") == (10.0, 10.0, 10.0)
    assert saved_by_round(*pair, "eval_loss") is None
    rss = (rounds_of(name, [1.0], "host_peak_rss_mb") for name in ("baseline", "t"))
    assert saved_by_round(*rss, "host_peak_rss_mb") is None
