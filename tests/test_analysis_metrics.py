"""What a repeat measured, as metrics, and what several of them make of a variant."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from recorded_studies import a_failed_repeat, a_repeat, a_study

from trainperf_mlflow.analysis.metrics import (
    break_even_steps,
    effect_verdict,
    is_compiled,
    mean_metrics,
    not_finite,
    repeat_metrics,
    repeat_values,
    variant_status,
    variant_values,
)
from trainperf_mlflow.results.record import Status
from trainperf_mlflow.results.repeats import Block, Effect, Repeat
from trainperf_mlflow.results.study import Variant
from trainperf_mlflow.results.values import RepeatValues


def a_block(index: int, wall_ms: float, *step_ms: float) -> Block:
    losses = (None,) * len(step_ms)
    return Block(index=index, started_at=0.0, wall_ms=wall_ms, step_ms=step_ms, losses=losses)


def test_step_time_is_the_wall_time_of_all_blocks_over_all_steps() -> None:
    blocks = (a_block(0, 120.0, 40.0, 60.0), a_block(1, 60.0, 50.0))
    metrics = repeat_metrics(a_repeat("s", blocks=blocks))
    assert metrics["step_time_ms"] == pytest.approx(60.0)  # 180 ms of wall, not 150 of steps
    assert metrics["step_time_median_ms"] == 50.0
    assert metrics["samples_per_s"] == pytest.approx(2.0 / 0.060)
    assert metrics["tokens_per_s"] == pytest.approx(256.0 / 0.060)


def test_what_was_not_measured_is_absent_and_never_zero() -> None:
    assert repeat_metrics(a_failed_repeat("s", "bf16", 0)) == {}
    cpu = a_repeat("s", peak_mem_mb=0.0, peak_reserved_mb=None, samples_per_step=None)
    assert not {"peak_mem_mb", "peak_reserved_mb", "samples_per_s"} & set(repeat_metrics(cpu))


def test_a_count_of_zero_is_a_measurement() -> None:
    assert repeat_metrics(a_repeat("s", num_alloc_retries=0))["num_alloc_retries"] == 0.0


def test_a_loss_that_is_no_number_is_no_metric_but_is_told() -> None:
    diverged = a_repeat("s", status=Status.DIVERGED, loss=math.nan, eval_loss=math.inf)
    assert not {"loss", "eval_loss"} & set(repeat_metrics(diverged))
    assert set(not_finite(diverged)) == {"loss", "eval_loss"}


def test_only_a_variant_that_compiles_has_a_compile_time() -> None:
    repeat = a_repeat("s", step_ms=50.0, first_step_ms=2050.0)
    assert repeat_metrics(repeat, compiled=True)["compile_s"] == pytest.approx(2.0)
    assert "compile_s" not in repeat_metrics(repeat, compiled=False)


@pytest.mark.parametrize(
    ("setting", "compiled"),
    [("off", False), (None, False), (False, False), ("default", True), (True, True)],
)
def test_a_configuration_compiles_unless_it_says_off(setting: object, compiled: bool) -> None:
    variant = Variant(name="x", role="candidate", config={"compile": setting})
    assert is_compiled(variant) is compiled


def test_means_are_over_ok_repeats_and_metrics_that_all_of_them_have() -> None:
    repeats = [
        RepeatValues(index=0, status=Status.OK, metrics={"step_time_ms": 10.0, "eval_loss": 1.0}),
        RepeatValues(index=1, status=Status.OK, metrics={"step_time_ms": 20.0}),
        RepeatValues(index=2, status=Status.OOM, metrics={"step_time_ms": 99.0}),
    ]
    assert mean_metrics(repeats) == {"step_time_ms": 15.0}


@given(st.permutations(list(Status)))
def test_the_worst_repeat_is_the_variants_status_in_any_order(order: list[Status]) -> None:
    worst_first = ["diverged", "oom", "failed", "timeout", "unsupported", "ok"]
    for length in range(1, len(order) + 1):
        seen = order[:length]
        assert variant_status(seen).value == min((s.value for s in seen), key=worst_first.index)


def test_one_setting_without_effect_makes_the_change_ineffective() -> None:
    def effect(verified: bool | None) -> Effect:
        return Effect(key="checkpoint", wanted=True, verified=verified, detail=f"saw {verified}")

    assert effect_verdict([]) == (None, "")
    assert effect_verdict([effect(True), effect(None)])[0] is None
    verified, detail = effect_verdict([effect(True), effect(False), effect(None)])
    assert verified is False
    assert "saw False" in detail


def test_a_variants_values_keep_every_repeat_visible() -> None:
    _, bf16 = a_study().variants
    repeats = [a_repeat("s", "bf16", 0), a_failed_repeat("s", "bf16", 1)]
    values = variant_values(bf16, [repeat_values(r, compiled=False) for r in repeats])
    assert (values.status, values.error) == (Status.OOM, "out of memory")
    assert [repeat.status for repeat in values.repeats] == [Status.OK, Status.OOM]
    assert values.metrics["step_time_ms"] == 50.0


def test_memory_from_different_sources_has_no_mean() -> None:
    _, bf16 = a_study().variants
    repeats = [repeat_values(a_repeat("s", "bf16", i), compiled=False) for i in range(2)]
    mixed = variant_values(bf16, repeats, sources=["tensor_tracker", "accelerator_allocator"])
    assert mixed.peak_mem_source is None
    assert "peak_mem_mb" not in mixed.metrics
    same = variant_values(bf16, repeats, sources=["tensor_tracker"] * 2)
    assert same.metrics["peak_mem_mb"] == 100.0


def test_quality_counts_as_checked_only_where_every_ok_repeat_checked_it() -> None:
    baseline, _ = a_study().variants
    checked = a_repeat("s").model_copy(update={"quality_checked": True})
    unchecked = a_repeat("s", index=1)
    failed = a_failed_repeat("s", "baseline", 2)

    def quality(*repeats: Repeat) -> bool:
        values = [repeat_values(repeat, compiled=False) for repeat in repeats]
        return variant_values(baseline, values).quality_checked

    assert quality(checked, failed)
    assert not quality(checked, unchecked)
    # A task that claims to check but evaluates nothing has checked nothing.
    assert not quality(checked.model_copy(update={"eval_loss": None}))


def test_a_variant_without_repeats_says_why() -> None:
    _, bf16 = a_study().variants
    assert variant_values(bf16, []).status is Status.FAILED
    told = variant_values(bf16, [], unsupported="no bf16 here")
    assert (told.status, told.error) == (Status.UNSUPPORTED, "no bf16 here")


def test_a_compile_that_gains_nothing_never_pays() -> None:
    assert break_even_steps(10.0, 100.0, 90.0) == pytest.approx(1000.0)
    assert break_even_steps(10.0, 100.0, 100.0) is None
