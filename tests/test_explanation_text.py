"""Phases on the terminal: what was counted and what stopped, in words that read one way only."""

from __future__ import annotations

from typing import Any

from trainperf_mlflow.reporting.explanation import NOT_FOR_ADOPTION, phases_text


def report(*candidates: dict[str, Any], **saved: float) -> dict[str, Any]:
    savings = {"allocated_memory_saving_mb_by_candidate": {"bf16": saved} if saved else {}}
    return {"candidates": list(candidates), "summary": savings}


def measured(name: str, peak_mb: float, **memory_mb: float) -> dict[str, Any]:
    found = {"time_ms": 1.0, "peak_allocated_mb": peak_mb, "memory_mb": memory_mb}
    return {
        "name": name,
        "status": "ok",
        "phase_metrics": {"forward": found},
        "step_time_ms": 1.0,
        "global_peak_phase": "forward",
    }


def stopped(name: str, error: str) -> dict[str, Any]:
    return {"name": name, "status": "unsupported", "error": error, "phase_metrics": {}}


def test_a_change_of_the_peak_has_the_sign_that_it_changes_by() -> None:
    text = phases_text(report(measured("bf16", 20.0), forward=-2.0, backward=1.25, optimizer=0.0))
    said = "bf16 against the baseline, peak MiB: forward +2.0, backward -1.2, optimizer 0.0"
    assert said in text.splitlines()


def test_small_sizes_have_tenths_and_large_ones_none() -> None:
    text = phases_text(
        report(measured("small", 25.41, activations=3.8e-06), measured("large", 9793.2))
    )
    assert "25.4" in text
    assert "9793" in text
    assert "e-06" not in text


def test_a_reason_is_told_once_with_all_that_it_stopped() -> None:
    text = phases_text(report(stopped("a", "no phases"), stopped("b", "too large"),
                              stopped("c", "no phases")))  # fmt: skip
    lines = text.splitlines()
    assert "a, c: unsupported, no phases" in lines
    assert "b: unsupported, too large" in lines
    assert lines[-1] == NOT_FOR_ADOPTION
