"""The checks of the source's own template (course project 73), on our functions."""

from __future__ import annotations

import pytest

import trainperf_mlflow as tp


class Counter:
    def __init__(self) -> None:
        self.steps = 0

    def __call__(self) -> None:
        self.steps += 1


def test_a_step_is_run_as_often_as_asked_and_told_in_two_rounded_fields() -> None:
    step = Counter()
    result = tp.measure_train_step(step, warmup=0, iters=2)
    assert step.steps == 2
    assert set(result) == {"step_time_ms", "peak_mem_mb"}
    assert all(value >= 0.0 and value == round(value, 2) for value in result.values())


def test_warmup_steps_run_but_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([100.0, 100.5])
    monkeypatch.setattr("time.perf_counter", lambda: next(clock))
    step = Counter()
    result = tp.measure_train_step(step, warmup=3, iters=4)
    assert step.steps == 7
    assert result["step_time_ms"] == 125.0


def test_the_defaults_are_two_warmup_and_eight_measured_steps() -> None:
    step = Counter()
    tp.measure_train_step(step)
    assert step.steps == 10


@pytest.mark.parametrize(("warmup", "iters"), [(-1, 2), (0, 0), (0, -3)])
def test_impossible_counts_are_refused(warmup: int, iters: int) -> None:
    with pytest.raises(ValueError, match="need warmup >= 0 and iters >= 1"):
        tp.measure_train_step(Counter(), warmup=warmup, iters=iters)


def test_the_templates_example_is_summed_up_and_accepted() -> None:
    baseline = {"step_time_ms": 120.0, "peak_mem_mb": 8192.0}
    tuned = {"step_time_ms": 98.0, "peak_mem_mb": 6144.0}
    summary = tp.summarize_training_result(baseline, tuned)
    assert summary == {
        "step_time_delta_ms": 22.0,
        "peak_mem_delta_mb": 2048.0,
        "time_improved": True,
        "memory_improved": True,
    }
    assert tp.recommend_training_decision(summary)["decision"] == "accept"


@pytest.mark.parametrize(
    ("time_ms", "memory_mb", "time_improved", "memory_improved", "decision"),
    [(6.0, 256.0, True, True, "tune"), (-4.0, 0.0, False, False, "reject")],
)
def test_weak_and_absent_gains_are_tuned_and_rejected(
    time_ms: float, memory_mb: float, time_improved: bool, memory_improved: bool, decision: str
) -> None:
    summary = {
        "step_time_delta_ms": time_ms,
        "peak_mem_delta_mb": memory_mb,
        "time_improved": time_improved,
        "memory_improved": memory_improved,
    }
    made = tp.recommend_training_decision(
        summary, min_time_delta_ms=10.0, min_memory_delta_mb=512.0
    )
    assert made["decision"] == decision
    assert set(made) == {"decision", "reason"}
