"""The rule of course project 74 on a single change, with the source's own checks."""

from __future__ import annotations

import math
import sys
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_studies import study, variant

import trainperf_mlflow as tp
from trainperf_mlflow.decisions.reasons import REASONS, reason_text
from trainperf_mlflow.decisions.study import decide_study

GAINS = st.floats(min_value=-5000, max_value=5000).map(lambda value: round(value, 2))
RANK = {"reject": 0, "tune": 1, "accept": 2}


def metrics(time: object = 120.0, memory: object = 8192.0, rate: object = 80.0) -> dict:
    return {"step_time_ms": time, "peak_mem_mb": memory, "throughput": rate}


def summary(time: float, memory: float, rate: float) -> dict:
    return {
        "step_time_delta_ms": time,
        "peak_mem_delta_mb": memory,
        "throughput_delta": rate,
        "time_improved": time > 0,
        "memory_improved": memory > 0,
        "throughput_improved": rate > 0,
    }


def decision_on(time: float, memory: float, rate: float) -> str:
    return tp.recommend_optimization_decision(summary(time, memory, rate))["decision"]


def test_an_optimization_is_summed_up_in_the_sources_six_fields() -> None:
    assert tp.summarize_optimization_result(metrics(), metrics(96.0, 7168.0, 100.0)) == summary(
        24.0, 1024.0, 20.0
    )


def test_optimization_deltas_are_rounded_and_their_flags_are_not() -> None:
    made = tp.summarize_optimization_result(metrics(), metrics(119.996, 8192.004, 80.001))
    assert made == summary(0.0, -0.0, 0.0) | {"time_improved": True, "throughput_improved": True}


@pytest.mark.parametrize(
    ("time", "memory", "rate", "decision"),
    [
        (24.0, 1024.0, 20.0, "accept"),
        (12.0, 768.0, 0.0, "accept"),
        (10.0, 512.0, -9.0, "accept"),
        (10.0, -9.0, 5.0, "accept"),
        (12.0, 128.0, 2.0, "tune"),
        (10.0, 511.99, 4.99, "tune"),
        (10.0, 0.0, 0.01, "tune"),
        (12.0, 0.0, 0.0, "reject"),
        (9.99, 4096.0, 50.0, "reject"),
        (-3.0, 64.0, 1.0, "reject"),
    ],
)
def test_the_optimization_rule_acts_at_its_thresholds(time, memory, rate, decision) -> None:
    assert decision_on(time, memory, rate) == decision


@given(st.tuples(GAINS, GAINS, GAINS), st.tuples(*[st.floats(0, 5000)] * 3))
@settings(max_examples=60, deadline=None)
def test_a_better_optimization_never_gets_a_worse_decision(gains, more) -> None:
    better = [round(gain + extra, 2) for gain, extra in zip(gains, more, strict=True)]
    assert RANK[decision_on(*better)] >= RANK[decision_on(*gains)]


@given(GAINS, GAINS, GAINS)
@settings(max_examples=60, deadline=None)
def test_no_resource_makes_up_for_a_time_gain_that_is_too_small(time, memory, rate) -> None:
    assert (decision_on(time, memory, rate) == "reject") >= (time < 10.0)


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf, True, "12", None, 10**400])
def test_an_optimizations_wrong_numbers_are_refused_by_name(wrong) -> None:
    with pytest.raises(ValueError, match=r"tuned_metrics: throughput is .*finite number"):
        tp.summarize_optimization_result(metrics(), metrics(rate=wrong))
    with pytest.raises(ValueError, match=r"summary: throughput_delta is .*finite number"):
        tp.recommend_optimization_decision(summary(1, 1, 1) | {"throughput_delta": wrong})
    with pytest.raises(ValueError, match=r"min_throughput_delta is .*finite number"):
        tp.recommend_optimization_decision(summary(1, 1, 1), min_throughput_delta=wrong)


@pytest.mark.parametrize("key", list(summary(1, 1, 1)))
def test_an_optimization_summary_without_a_field_is_refused(key) -> None:
    short = {name: value for name, value in summary(1, 1, 1).items() if name != key}
    with pytest.raises(ValueError, match=f"summary: {key} is missing"):
        tp.recommend_optimization_decision(short)
    with pytest.raises(ValueError, match=f"summary: {key} is missing"):
        tp.format_optimization_report(short, "backward", "stop")


def test_the_report_is_written_in_english_and_in_chinese() -> None:
    made = summary(24.0, 1024.0, -2.5)
    english = tp.format_optimization_report(made, "backward takes most", "look at the optimizer")
    assert english.splitlines() == [
        "| metric | change | verdict |",
        "| --- | --- | --- |",
        "| step time | 24.0 ms | improved |",
        "| peak memory | 1024.0 MB | improved |",
        "| throughput | -2.5 | not improved |",
        "Bottleneck: backward takes most. Next: look at the optimizer.",
    ]
    chinese = tp.format_optimization_report(made, "反向占比高", "检查优化器", lang="zh")
    assert "| 指标 | 变化 | 判断 |" in chinese
    assert "| throughput | -2.5 | 未改善 |" in chinese
    assert "反向占比高" in chinese
    assert "检查优化器" in chinese
    with pytest.raises(ValueError, match="lang is 'fr'"):
        tp.format_optimization_report(made, "", "", lang="fr")


def test_a_function_is_called_as_often_as_asked_and_timed_in_ms(monkeypatch) -> None:
    calls: list[int] = []
    assert tp.benchmark_fn(lambda: calls.append(1), warmup=0, iters=2) >= 0.0
    assert len(calls) == 2
    tp.benchmark_fn(lambda: calls.append(1))
    assert len(calls) == 2 + 3 + 10
    clock = iter([5.0, 5.5])
    monkeypatch.setattr("time.perf_counter", lambda: next(clock))
    assert tp.benchmark_fn(calls.clear, warmup=1, iters=4) == 125.0


def test_a_timed_function_is_waited_for_on_a_device_in_use(monkeypatch) -> None:
    waits: list[str] = []
    cuda = SimpleNamespace(is_initialized=lambda: True, synchronize=lambda: waits.append("wait"))
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    tp.benchmark_fn(lambda: waits.append("call"), warmup=1, iters=2)
    assert waits == ["call", "wait", "call", "call", "wait"]


@pytest.mark.parametrize(("warmup", "iters"), [(-1, 2), (0, 0), (0, -1), (True, 2), (0, 1.5)])
def test_impossible_counts_of_calls_are_refused(warmup, iters) -> None:
    calls: list[int] = []
    with pytest.raises(ValueError, match="need warmup >= 0 and iters >= 1"):
        tp.benchmark_fn(lambda: calls.append(1), warmup=warmup, iters=iters)
    assert calls == []


# --- on a measured study -----------------------------------------------------------------------

BASE = variant("baseline", time=100.0, memory=4000.0)


def decided(candidate, **thresholds):
    made = decide_study(
        study(policy="optimization", thresholds=thresholds),
        [BASE, candidate],
    )
    return made.candidates[0].decision


def test_a_study_is_decided_by_the_optimization_policy_with_its_numbers() -> None:
    decision = decided(variant("fast", time=60.0, memory=3488.0))
    assert (decision.decision, decision.reason) == ("accept", "time_and_resource_gains_met")
    assert (decision.policy, decision.next_action) == ("optimization", "keep_change")
    assert "time gain 40.00 ms (at least 10 wanted), memory gain 512.00 MiB" in decision.text
    assert decision.numbers["throughput_delta"] == 13.33
    assert decided(variant("slow", time=95.0)).reason == "no_stable_end_to_end_gain"


def test_an_optimizations_threshold_is_the_studys() -> None:
    gain = variant("gain", time=80.0, memory=4000.0)  # 25 instead of 20 samples/s
    assert decided(gain).decision == "accept"
    assert decided(gain, min_throughput_delta=5.01).decision == "tune"
    assert decided(gain, min_time_delta_ms=20.01).decision == "reject"


def test_a_worse_eval_loss_keeps_an_optimization_from_being_accepted() -> None:
    assert decided(variant("fast", time=60.0, eval_loss=2.05)).decision == "accept"
    assert decided(variant("fast", time=60.0, eval_loss=2.051)).reason == "eval_loss_worse"


def test_memory_that_was_not_compared_is_no_optimization_gain() -> None:
    other = variant("other", time=90.0, samples=1.8, memory=100.0, peak_mem_source="reported")
    decision = decided(other)
    assert decision.decision == "reject"
    assert "which counts as no gain" in decision.text


def test_the_optimization_verdict_is_told_beside_another_policys() -> None:
    made = decide_study(study("step_time"), [BASE, variant("fast", time=60.0)])
    assert set(made.candidates[0].other_decisions) == {"training", "optimization"}


# --- texts -------------------------------------------------------------------------------------


def test_every_reason_has_a_sentence_in_both_languages() -> None:
    for code, reason in REASONS.items():
        assert code.replace("_", "").isalnum()
        assert code == code.lower()
        assert reason.en.isascii()
        assert any("\u4e00" <= character <= "\u9fff" for character in reason.zh), code


def test_a_decision_is_told_in_chinese_with_its_numbers() -> None:
    decision = decided(variant("fast", time=60.0, memory=3488.0))
    told = reason_text(decision, "zh")
    assert told.startswith(REASONS[decision.reason].zh)
    assert "step_time_delta_ms = 40" in told
    assert "min_time_delta_ms = 10" in told
    assert reason_text(decision) == decision.text
    own = decision.model_copy(update={"reason": "someone_elses", "text": "as it was published"})
    assert reason_text(own, "zh") == "as it was published"
