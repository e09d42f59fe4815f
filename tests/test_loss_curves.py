"""Training losses against each other, and eval losses after a longer training."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from made_studies import study, variant
from paired_blocks import a_block
from scipy import stats

from trainperf_mlflow.analysis.compare import compare
from trainperf_mlflow.analysis.convergence import final_losses, judged
from trainperf_mlflow.analysis.loss_curves import loss_curve
from trainperf_mlflow.analysis.student import quantile
from trainperf_mlflow.analysis.thinning import LOSSES_OF_BLOCK, evenly
from trainperf_mlflow.decisions.study import decide_study
from trainperf_mlflow.results.comparison import CandidateComparison
from trainperf_mlflow.results.estimates import LossCurve
from trainperf_mlflow.results.record import Status
from trainperf_mlflow.results.repeats import Convergence
from trainperf_mlflow.results.study import Variant
from trainperf_mlflow.results.values import RepeatValues, VariantValues

STEPS = 40
MARGIN = 0.05


# --- curves ------------------------------------------------------------------------------------


def with_losses(made: VariantValues, losses: np.ndarray, **fields: Any) -> VariantValues:
    """A variant whose repeats hold these losses [seeds, steps], in two blocks each."""
    half = losses.shape[1] // 2
    repeats = tuple(
        RepeatValues(
            index=index,
            status=Status.OK,
            metrics=made.metrics,
            seed=fields.get("seed", 42) + index,
            data_digest=fields.get("data_digest", "d"),
            blocks=tuple(
                a_block(
                    place,
                    steps=len(part),
                    losses=evenly(tuple(part), LOSSES_OF_BLOCK),
                    samples_per_step=fields.get("samples_per_step", 2.0),
                )
                for place, part in enumerate((own[:half].tolist(), own[half:].tolist()))
            ),
        )
        for index, own in enumerate(losses)
    )
    return made.model_copy(update={"repeats": repeats})


def falling(seeds: int = 3, steps: int = STEPS, spread: float = 0.1, chance: int = 1) -> np.ndarray:
    """Losses that fall alike, each seed's a constant off."""
    offsets = np.random.default_rng(chance).normal(0, spread, (seeds, 1))
    return 5 * np.exp(-np.arange(steps) / 30)[None, :] + offsets


def curve(before: np.ndarray, after: np.ndarray, **fields: Any) -> LossCurve | None:
    return loss_curve(
        with_losses(variant("baseline"), before), with_losses(variant(), after, **fields)
    )


def test_losses_that_are_equal_in_every_step_are_told_as_equal() -> None:
    found = curve(falling(), falling())
    assert found is not None
    assert (found.verdict, found.equal, found.seeds, found.steps) == ("same", True, 3, STEPS)
    assert "equal the baseline's in every step (3 seeds)" in found.text


def test_a_difference_far_below_the_seeds_own_is_the_same_curve_but_not_an_equal_one() -> None:
    found = curve(falling(), falling() + 0.001)
    assert found is not None
    assert (found.verdict, found.equal) == ("same", False)
    assert found.mean_difference == pytest.approx(0.001)


def test_a_curve_that_leaves_the_others_late_differs_and_says_where() -> None:
    after = falling()
    after[:, 30:] += np.linspace(0.1, 2.0, 10)
    found = curve(falling(), after)
    assert found is not None
    assert (found.verdict, found.max_at_step) == ("different", STEPS)
    assert found.max_difference == pytest.approx(2.0)
    assert "by more than what seeds alone cause: +2 at measured step 40" in found.text


@pytest.mark.parametrize(("share", "verdict"), [(0.999, "same"), (1.001, "different")])
def test_the_limit_is_what_two_sets_of_seeds_differ_by(share: float, verdict: str) -> None:
    before = falling()
    spread = math.sqrt(before.var(axis=0, ddof=1).mean())
    limit = 4.302653 * spread * math.sqrt(2 / 3)
    found = curve(before, before - share * limit)
    assert found is not None
    assert found.mean_limit == pytest.approx(limit)
    assert found.verdict == verdict


def test_other_seeds_of_the_same_training_are_rarely_called_another_curve() -> None:
    found = [
        curve(falling(chance=2 * n), falling(chance=2 * n + 1, spread=0.1)) for n in range(200)
    ]
    assert sum(item is not None and item.verdict == "different" for item in found) <= 20


def test_one_seed_shows_equality_but_not_what_seeds_alone_cause() -> None:
    one = falling(seeds=1)
    equal, other = curve(one, one), curve(one, one + 1e-6)
    assert equal is not None
    assert other is not None
    assert (equal.verdict, other.verdict) == ("same", "not_shown")
    assert "--repeats" in other.text


def test_rounding_is_no_difference_where_the_seeds_change_nothing() -> None:
    before = falling(spread=0.0)
    rounded, changed = curve(before, before * (1 + 1e-7)), curve(before, before + 0.01)
    assert rounded is not None
    assert changed is not None
    assert (rounded.verdict, changed.verdict) == ("same", "different")


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"seed": 7}, "the seeds differ"),
        ({"data_digest": "other"}, "the batches differ"),
        ({"samples_per_step": 4.0}, "the samples per step differ"),
    ],
)
def test_losses_of_other_work_are_not_compared(fields: dict[str, Any], why: str) -> None:
    found = curve(falling(), falling(), **fields)
    assert found is not None
    assert found.verdict == "not_shown"
    assert why in found.text


def test_a_step_without_a_loss_and_a_task_without_any_are_no_curve() -> None:
    gaps = falling()
    gaps[1, 3] = np.nan  # a step that returned none is read so
    found = curve(falling(), gaps)
    assert found is not None
    assert found.equal
    assert curve(falling(), np.full((3, STEPS), np.nan)) is None
    assert loss_curve(variant("baseline"), variant()) is None


def test_of_long_blocks_evenly_chosen_steps_keep_their_numbers() -> None:
    before = falling(steps=600)
    after = before.copy()
    after[:, 303] += 50.0
    found = curve(before, after)
    assert found is not None
    assert (found.verdict, found.max_at_step) == ("different", 304)


# --- after a longer training -------------------------------------------------------------------


def trained(made: VariantValues, losses: Sequence[float | None], **fields: Any) -> VariantValues:
    """A variant that reached these eval losses, one a seed; None: it diverged."""
    return made.model_copy(
        update={
            "convergence": tuple(
                Convergence(
                    index=index,
                    seed=42 + index,
                    status=Status.DIVERGED if loss is None else Status.OK,
                    error="the loss became nan in step 7" if loss is None else None,
                    steps=200,
                    eval_loss=loss,
                    **{"quality_checked": True, **fields},
                )
                for index, loss in enumerate(losses)
            )
        }
    )


def verdict(differences: Sequence[float | None], **fields: Any) -> tuple[str, str]:
    base = trained(variant("baseline"), [3.0 + index for index in range(len(differences))])
    after = [None if d is None else 3.0 + index + d for index, d in enumerate(differences)]
    final = final_losses(base, trained(variant(), after, **fields))
    assert final is not None
    check = judged(final, MARGIN)
    return check.verdict, check.text


@pytest.mark.parametrize(
    ("differences", "expected"),
    [
        ((0.0, 0.0, 0.0), "same"),
        ((0.05, 0.05, 0.05), "same"),  # equals the margin
        ((-0.05, -0.05, -0.05), "same"),
        ((0.0501, 0.0501, 0.0501), "worse"),
        ((-0.0501, -0.0501, -0.0501), "better"),
        ((0.01, 0.011, 0.009), "same"),
        ((0.3, 0.31, 0.29), "worse"),
        ((0.0, 0.3, -0.2), "not_shown"),
        ((0.06, 0.3, 0.1), "not_shown"),  # all worse, but by how much is not sure
        ((0.3, 0.31), "not_shown"),  # two seeds
        ((), "not_shown"),
    ],
)
def test_the_whole_interval_decides_against_the_margin(
    differences: tuple[float, ...], expected: str
) -> None:
    if differences:
        assert verdict(differences)[0] == expected
    else:
        assert final_losses(variant("baseline"), variant()) is None


def test_few_seeds_take_students_t_and_six_the_signed_ranks() -> None:
    few = verdict((0.01, 0.02, 0.03))[1]
    assert few.endswith("+0.02 [-0.004843, +0.04484] (95 %, Student's t)")
    ranked = verdict((0.01, 0.02, 0.03, 0.01, 0.02, 0.03))[1]
    assert ranked.endswith("+0.02 [+0.01, +0.03] (95 %, signed ranks)")


@pytest.mark.parametrize("freedom", [1, 2, 3, 8, 19])
def test_students_t_is_scipys_at_every_level(freedom: int) -> None:
    for level in (0.95, 0.975, 0.9875):
        expected = stats.t.ppf((1 + level) / 2, freedom)
        assert quantile(freedom, level) == pytest.approx(expected, rel=1e-6)


def test_candidates_of_one_study_share_the_error_of_five_percent() -> None:
    """Each of several intervals is wider, by Bonferroni, and what was just shown no longer is."""
    base = trained(variant("baseline"), [3.0] * 6)
    tuned = trained(variant(), [3.06, 3.07, 3.08, 3.06, 3.07, 3.08])
    alone, of_three = (final_losses(base, tuned, candidates=n) for n in (1, 3))
    assert alone is not None
    assert of_three is not None
    assert of_three.interval is not None
    # The ranks of six seeds have no interval of 98.3 %.
    assert (alone.method, of_three.method) == ("signed ranks", "Student's t")
    expected = stats.t.interval(1 - 0.05 / 3, 5, 0.07, stats.sem([0.06, 0.07, 0.08] * 2))
    assert of_three.interval[1:] == pytest.approx(expected, rel=1e-4)
    assert (judged(alone, MARGIN).verdict, judged(alone, 0.059).verdict) == ("worse", "worse")
    assert judged(of_three, 0.059).verdict == "not_shown"
    assert "(95 % over 3 candidates, Student's t)" in judged(of_three, MARGIN).text


def test_a_study_of_several_candidates_corrects_each_of_their_checks() -> None:
    base = trained(variant("baseline", time=100.0), [3.0] * 3)
    names = ("one", "two")
    planned = tuple(Variant(name=name, role="candidate", config={}) for name in names)
    made = decide_study(
        study("step_time", variants=planned),
        (base, *(trained(variant(name, time=50.0), [3.0, 3.01, 3.02]) for name in names)),
    )
    for candidate in made.candidates:
        assert candidate.convergence is not None
        assert "over 2 candidates" in candidate.convergence.text


def test_an_interval_within_the_margin_above_is_told_as_not_worse() -> None:
    assert "not worse by more than 0.05" in verdict((-0.02, -0.1, -0.06))[1]


def test_a_loss_on_random_tokens_shows_nothing_of_quality() -> None:
    kind, text = verdict((0.3, 0.3, 0.3), quality_checked=False)
    assert kind == "not_shown"
    assert "not taken on real text" in text


def decided(
    differences: Sequence[float | None], goal: str | None = "step_time", **fields: Any
) -> CandidateComparison:
    base = trained(variant("baseline", time=100.0), [3.0] * len(differences))
    after = [None if d is None else 3.0 + d for d in differences]
    tuned = trained(variant(time=50.0, **fields), after)
    return decide_study(study(goal), (base, tuned)).candidates[0]


def test_a_gain_that_longer_training_shows_to_cost_quality_is_not_accepted() -> None:
    assert decided((0.0, 0.0, 0.0)).decision.decision == "accept"
    worse = decided((0.3, 0.31, 0.29))
    assert worse.convergence is not None
    assert (worse.convergence.verdict, worse.convergence.seeds) == ("worse", 3)
    assert worse.decision.reason == "eval_loss_constraint_broken"
    assert worse.delta["convergence_eval_loss"] == pytest.approx(0.3)
    tuned = decided((0.3, 0.31, 0.29), goal=None, memory=100.0)
    assert tuned.decision.decision == "tune"
    assert "eval loss after 200 steps: worse" in tuned.note


def test_what_longer_training_shows_stands_above_the_eval_loss_after_the_measured_steps() -> None:
    assert decided((0.0, 0.001, 0.0), eval_loss=2.4).decision.decision == "accept"
    assert decided((0.0, 0.4, -0.4), eval_loss=2.4).decision.decision != "accept"


@pytest.mark.parametrize("policy", ["training", "optimization", "memory-budget"])
def test_no_policy_accepts_what_is_confirmed_to_be_worse(policy: str) -> None:
    base = variant("baseline", time=100.0, memory=9000.0, samples=200.0)
    good = variant("ckpt", time=50.0, memory=1000.0, samples=200.0).model_copy(
        update={"changed_variable": "checkpoint", "config": {"checkpoint": True}}
    )
    base = base.model_copy(update={"config": {"checkpoint": False}})
    asked = study(policy=policy)
    found = decide_study(asked, (trained(base, [3.0] * 3), trained(good, [3.0] * 3)))
    worse = decide_study(asked, (trained(base, [3.0] * 3), trained(good, [3.5] * 3)))
    assert (found.decision.decision, worse.decision.decision) == ("accept", "tune")
    assert worse.decision.reason == "eval_loss_worse"


def test_a_candidate_that_diverges_with_one_seed_is_rejected_unless_the_baseline_did_too() -> None:
    alone = decided((0.0, None, 0.0, 0.0))
    assert alone.decision.reason == "candidate_diverged"
    assert "seed 43" in alone.decision.text
    # The other three seeds ended the same, and nothing about it says so.
    assert alone.convergence is not None
    assert alone.convergence.verdict == "diverged"
    assert "eval loss after 200 steps: diverged" in alone.note
    base = trained(variant("baseline", time=100.0), [3.0, None, 3.0, 3.0])
    tuned = trained(variant(time=50.0), [3.0, None, 3.0, 3.0])
    both = decide_study(study("step_time"), (base, tuned)).candidates[0]
    assert both.decision.decision == "accept"
    assert both.convergence is not None
    assert both.convergence.seeds == 3


def test_another_validation_text_is_told_and_an_unasked_check_leaves_no_trace() -> None:
    base = trained(variant("baseline"), [3.0] * 3).model_copy(update={"config": {"seq_len": 8}})
    tuned = trained(variant(), [3.0] * 3).model_copy(update={"config": {"seq_len": 16}})
    final = compare(base, tuned).final
    assert final is not None
    assert final.gap is not None
    assert "another seq_len" in final.gap
    found = decide_study(study(), (variant("baseline"), variant())).candidates[0]
    assert (found.convergence, found.loss_curve) == (None, None)


# --- in words ----------------------------------------------------------------------------------


def test_the_note_says_what_was_shown_or_how_to_ask_for_it() -> None:
    from paired_blocks import with_blocks

    from trainperf_mlflow.reporting.losses import how_to_ask, loss_lines
    from trainperf_mlflow.reporting.note import run_note

    times = np.full((3, 4), 50.0)
    base, tuned = with_blocks(variant("baseline"), times), with_blocks(variant(), times)
    unasked = decide_study(study(), (base, tuned))
    assert "--convergence-steps N" in "".join(how_to_ask(unasked))
    assert "convergence" in run_note(unasked)
    asked = decide_study(study(), (trained(base, [3.0] * 3), trained(tuned, [3.0] * 3)))
    assert how_to_ask(asked) == []
    assert loss_lines(asked) == [
        "tuned: after 200 steps with 3 seeds the eval loss is the same within 0.05: "
        "+0 [+0, +0] (95 %, Student's t)"
    ]
    assert "the same within 0.05" in run_note(asked)


@pytest.mark.parametrize(
    ("differences", "warned"),
    [((0.0, 0.0, 0.0), False), ((-0.02, -0.1, -0.06), False), ((0.0, 0.3, -0.2), True)],
)
def test_a_loss_that_may_have_become_worse_is_a_warning(
    differences: tuple[float, ...], warned: bool
) -> None:
    base = trained(variant("baseline", time=100.0), [3.0] * 3)
    tuned = trained(variant(time=50.0), [3.0 + d for d in differences])
    warnings = decide_study(study("step_time"), (base, tuned)).warnings
    assert any("after 200 steps" in warning for warning in warnings) is warned


def test_another_curve_is_a_warning_and_changes_no_decision() -> None:
    before = with_losses(variant("baseline", time=100.0), falling())
    after = with_losses(variant(time=50.0), falling() + 5.0)
    same = with_losses(variant(time=50.0), falling())
    other = decide_study(study("step_time"), (before, after))
    equal = decide_study(study("step_time"), (before, same))
    assert any("training losses differ" in warning for warning in other.warnings)
    assert not any("training losses" in warning for warning in equal.warnings)
    assert other.decision.reason == equal.decision.reason
    assert "training losses equal the baseline's" in equal.candidates[0].note
