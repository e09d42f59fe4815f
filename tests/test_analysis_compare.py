from __future__ import annotations

import pytest
from made_studies import variant

from trainperf_mlflow.analysis.compare import compare, describe, relative_gain, samples_per_step
from trainperf_mlflow.results.values import RepeatValues


def test_time_and_memory_saved_are_positive_throughput_and_loss_are_candidate_minus_baseline():
    base = variant("baseline", time=50.0, memory=1000.0, loss=2.0, eval_loss=2.1)
    fast = variant(time=40.0, memory=900.0, loss=2.25, eval_loss=2.0)
    delta = compare(base, fast).delta
    assert delta["step_time_ms"] == 10.0
    assert delta["step_time_pct"] == pytest.approx(20.0)
    assert delta["speedup"] == pytest.approx(1.25)
    assert delta["peak_mem_mb"] == 100.0
    assert delta["peak_mem_pct"] == pytest.approx(10.0)
    assert delta["samples_per_s"] == pytest.approx(50 - 40)
    assert delta["loss"] == pytest.approx(0.25)
    assert delta["eval_loss"] == pytest.approx(-0.1)


def test_differences_in_units_come_from_rounded_means_and_are_rounded():
    delta = compare(variant("baseline", time=50.0004), variant(time=40.0056)).delta
    assert delta["step_time_ms"] == round(50.0 - 40.006, 2) == 9.99
    assert delta["step_time_pct"] == pytest.approx((50.0004 - 40.0056) / 50.0004 * 100)


def test_what_one_side_did_not_measure_has_no_difference():
    base = variant("baseline", metrics={"tokens_per_s": 100.0})
    delta = compare(base, variant(memory=None, eval_loss=None)).delta
    assert not {"peak_mem_mb", "peak_mem_pct", "eval_loss", "tokens_per_s"} & delta.keys()
    assert "step_time_ms" in delta


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1.7976931348623157e308])
def test_nan_infinity_and_the_stores_stand_in_for_infinity_are_not_measured(value):
    delta = compare(variant("baseline"), variant(loss=value, eval_loss=value)).delta
    assert "loss" not in delta
    assert "eval_loss" not in delta


def test_memory_from_different_sources_is_never_subtracted():
    difference = compare(variant("baseline"), variant(memory=1.0, peak_mem_source="reported"))
    assert "peak_mem_mb" not in difference.delta
    assert "tensor_tracker" in difference.memory_gap
    assert "reported" in difference.memory_gap


def test_a_larger_batch_is_compared_per_sample():
    difference = compare(variant("baseline", time=50.0, samples=2), variant(time=80.0, samples=4))
    assert difference.per_sample
    assert difference.step_time_ms == pytest.approx((50.0, 40.0))
    assert difference.delta["step_time_ms"] == 10.0
    assert difference.delta["speedup"] == pytest.approx(1.25)


def test_samples_per_step_do_not_depend_on_how_much_repeats_differ():
    repeats = tuple(
        RepeatValues(
            index=index,
            status="ok",
            metrics={"step_time_ms": time, "samples_per_s": 2 / time * 1000},
        )
        for index, time in enumerate((10.0, 30.0))
    )
    # The means over these repeats: 20 ms, and 133.3 samples/s instead of 100.
    means = {"step_time_ms": 20.0, "samples_per_s": (200 + 2000 / 30) / 2}
    noisy = variant(repeats=repeats).model_copy(update={"metrics": means})
    assert samples_per_step(noisy) == pytest.approx(2.0)
    assert not compare(variant("baseline"), noisy).per_sample


def test_pairs_are_the_rounds_in_which_both_succeeded():
    base = variant("baseline", statuses=("ok", "failed", "ok"))
    assert compare(base, variant(statuses=("ok", "ok", "oom"))).pairs == 1


def test_relative_gain_of_nothing_has_no_meaning():
    assert relative_gain(0.0, 1.0, "lower") is None


def test_the_note_names_gain_and_cost():
    base = variant("baseline", time=50.0, memory=1000.0, eval_loss=2.0)
    assert describe(compare(base, variant(time=41.0, eval_loss=2.02))) == (
        "saves 18 % of time, but eval loss is higher by 0.02"
    )
    assert describe(compare(base, variant(time=62.0, memory=390.0))) == (
        "saves 61 % of peak memory, but costs 24 % in time"
    )
    assert describe(compare(base, variant())) == "time and peak memory differ by less than 0.5 %"


def test_the_note_says_per_sample_and_what_was_not_comparable():
    base = variant("baseline", time=50.0, samples=2)
    note = describe(compare(base, variant(time=80.0, samples=4, memory=None)))
    assert note == "saves 20 % of time per sample; peak memory was not measured (tuned)"


def test_without_real_text_the_note_speaks_of_the_training_loss():
    base = variant("baseline", quality_checked=False)
    note = describe(compare(base, variant(loss=2.239, eval_loss=9.0, quality_checked=False)))
    assert note == "loss is higher by 0.239"


def test_a_candidate_without_numbers_has_nothing_to_compare():
    difference = compare(variant("baseline"), variant(statuses=("oom",)))
    assert difference.delta == {}
    assert "nothing to compare" in describe(difference)


@pytest.mark.parametrize("key", ["data", "seq_len", "model", "model_source"])
def test_losses_on_another_validation_text_are_not_compared(key):
    base = variant("baseline", config={key: "one"})
    made = compare(base, variant(eval_loss=0.1, config={key: "another"}))
    assert "eval_loss" not in made.delta
    assert made.quality_gap == f"another {key} means another validation text"
    assert "eval loss" not in describe(made)
    # On random data just as well, although its losses are told otherwise.
    unchecked = {"quality_checked": False}
    base = variant("baseline", config={key: "one"}, **unchecked)
    made = compare(base, variant(eval_loss=0.1, config={key: "another"}, **unchecked))
    assert "eval_loss" not in made.delta
