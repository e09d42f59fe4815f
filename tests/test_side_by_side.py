"""One sign and one basis: where pairs were measured, what is told of time comes from them."""

from __future__ import annotations

import re

import numpy as np
import pytest
from made_studies import study, variant
from paired_blocks import with_blocks

from trainperf_mlflow.analysis.side_by_side import contradiction, told_gains
from trainperf_mlflow.decisions.policies import GOALS
from trainperf_mlflow.decisions.study import decide_study
from trainperf_mlflow.reporting.note import run_note, variant_notes
from trainperf_mlflow.reporting.report.material import Material
from trainperf_mlflow.reporting.report.numbers import results_table
from trainperf_mlflow.reporting.report.texts import Words
from trainperf_mlflow.reporting.report.verdict import question
from trainperf_mlflow.reporting.table import to_text
from trainperf_mlflow.results.comparison import Comparison


def contradicted(
    rounds: int = 1, mean_ms: float = 50.0, goal: str | None = "peak_mem"
) -> Comparison:
    """The plain means say ``100 -> mean_ms``; the pairs, that it costs 18 % more than 60 ms."""
    chance = np.random.default_rng(3)
    statuses = ("ok",) * rounds
    before = 60 * np.exp(chance.normal(0, 0.002, (rounds, 4)))
    base = variant("baseline", time=100.0, statuses=statuses)
    tuned = variant("tuned", time=mean_ms, memory=500.0, statuses=statuses)
    return decide_study(
        study(goal, thresholds={"max_cost": 60.0}),
        [with_blocks(base, before.tolist()), with_blocks(tuned, (before * 1.18).tolist())],
    )


@pytest.mark.parametrize("rounds", [1, 3])
def test_time_in_ms_in_percent_and_as_a_rate_has_the_pairs_sign_everywhere(rounds: int) -> None:
    made = contradicted(rounds)
    item = made.candidates[0]
    told = told_gains(item, made.baseline.metrics if made.baseline else {})
    assert item.delta["step_time_ms"] == 50.0  # the means', as the source's rules read them
    assert told["step_time_ms"] == pytest.approx(-60 * 0.18, rel=0.02)
    assert told["step_time_pct"] == pytest.approx(-18.0, rel=0.02)
    assert told["samples_per_s"] == pytest.approx(20.0 * (1 / 1.18 - 1), rel=0.02)
    for text in (to_text(made), run_note(made), variant_notes(made)["tuned"]):
        assert re.search(r"costs 10\.\d", text)
        assert "saves 50.00" not in text
        assert "-3.05" in text
        assert "+20.00" not in text
        assert "wall time, mean" in text or text == variant_notes(made)["tuned"]
    variants = [v for v in (made.baseline, variant("tuned", time=50.0)) if v is not None]
    rows = str(results_table(Material(study(), made, variants), Words("en")))
    assert "costs 10." in rows
    assert "saves 50.00" not in rows
    assert "'-3.05'" in rows


def test_means_that_say_the_opposite_of_the_pairs_are_a_warning() -> None:
    said = (
        "tuned: the plain means say 50 ms faster, the pairs measured side by side 18 % slower; "
        "the pairs count"
    )
    assert said in contradicted().warnings
    assert said in contradicted(3).warnings
    # The same sign, or one within what is the same, contradicts nothing.
    for mean_ms in (118.0, 99.5, 100.0):
        assert not any("the pairs count" in text for text in contradicted(1, mean_ms).warnings)


def test_without_pairs_there_is_nothing_that_means_could_contradict() -> None:
    assert contradiction((100.0, 50.0), None) is None
    made = decide_study(study("step_time"), [variant("baseline", time=100.0), variant()])
    assert told_gains(made.candidates[0], {}) == made.candidates[0].delta
    assert "side by side" not in to_text(made)


@pytest.mark.parametrize("goal", ["step_time", "samples_per_s", "peak_mem", None])
def test_no_rule_accepts_or_confirms_a_gain_in_time_that_the_pairs_contradict(
    goal: str | None,
) -> None:
    for rounds in (1, 3):
        item = contradicted(rounds, goal=goal).candidates[0]
        for decision in (item.decision, *item.other_decisions.values()):
            assert decision.decision != "accept" or (goal, rounds) == ("peak_mem", 3)


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize("goal", [None, *GOALS])
def test_the_reports_question_is_that_of_the_goal_and_no_rejected_candidate_is_its_best(
    goal: str | None, lang: str
) -> None:
    words = Words(lang)  # type: ignore[arg-type]
    both = [variant("baseline", time=100.0), variant("a", time=200.0, memory=2000.0)]
    made = decide_study(study(goal), [*both, both[1].model_copy(update={"name": "b"})])
    found = Material(study(goal), made, both)
    asked = question(found, words)
    assert "a, b" in asked
    assert goal is None or words(f"goal.{goal}") in asked
    lines = [line for row in results_table(found, words).rows for c in row for line in c.lines]
    assert (words("best") in lines) is (made.decision.decision != "reject")
