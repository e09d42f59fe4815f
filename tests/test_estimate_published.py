"""Predicted peaks against peaks that were measured on a GPU and published.

The measurements: Qwen2.5-0.5B, batch 1, AdamW, on an RTX 5070 Ti with torch
2.11. Each is the highest allocation of five training steps; where ``phase`` is
evaluation, the measuring program had also run an evaluation pass before it read
the counter.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from trainperf_mlflow.analysis.estimate import PhaseEstimate, explain_peak, training_peak
from trainperf_mlflow.measurement.estimate.predict import causal_lm_step
from trainperf_mlflow.measurement.estimate.target import target_for
from trainperf_mlflow.workloads.config import CausalLMConfig

WITHIN = 0.005

PUBLISHED = [
    # sequence, settings, measured MiB, the phase that holds it
    (768, {}, 9782.74, "backward"),
    (768, {}, 9782.563, "backward"),
    (768, {"precision": "bf16"}, 9477.25, "optimizer"),
    (768, {"checkpoint": True}, 9450.76, "optimizer"),
    (768, {"offload": True}, 9448.33, "optimizer"),
    (768, {"checkpoint": True, "offload": True}, 9454.64, "optimizer"),
    (1024, {"precision": "bf16"}, 10024.58, "backward"),
    (1024, {"precision": "bf16"}, 10037.52, "evaluation"),
    (1024, {"precision": "bf16", "checkpoint": True}, 10010.36, "evaluation"),
    (256, {}, 9474.12, "optimizer"),
    (256, {"precision": "bf16"}, 9466.15, "optimizer"),
]


@cache
def _phases(seq_len: int, settings: tuple[tuple[str, Any], ...]) -> dict[str, PhaseEstimate]:
    config = CausalLMConfig(model="qwen25_small", batch_size=1, seq_len=seq_len, **dict(settings))
    return causal_lm_step(config, target_for("cuda")).phases


def phases_of(seq_len: int, **settings: Any) -> dict[str, PhaseEstimate]:
    return _phases(seq_len, tuple(sorted(settings.items())))


@pytest.fixture(autouse=True)
def default_workspaces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)


@pytest.mark.parametrize(("seq_len", "settings", "measured", "phase"), PUBLISHED)
def test_a_published_peak_is_predicted_within_half_a_percent(
    seq_len: int, settings: dict[str, Any], measured: float, phase: str
) -> None:
    phases = phases_of(seq_len, **settings)
    name, peak = training_peak(phases)
    if phase == "evaluation":
        assert phases["evaluation"].peak_mem_mb > peak
        name, peak = "evaluation", phases["evaluation"].peak_mem_mb
    assert name == phase
    assert peak == pytest.approx(measured, rel=WITHIN)


def test_a_checkpointed_peak_that_was_published_is_not_one_of_a_training_step() -> None:
    phases = phases_of(1024, precision="bf16", checkpoint=True)
    name, peak = training_peak(phases)
    assert name == "optimizer"
    assert peak < 0.96 * 10010.36
    assert "evaluation pass needs more than any training step" in explain_peak(phases)


def test_checkpointing_saves_no_more_than_what_stands_above_the_optimizer_step() -> None:
    without, with_it = phases_of(768), phases_of(768, checkpoint=True)
    saved = training_peak(without)[1] - training_peak(with_it)[1]
    assert saved == pytest.approx(9782.74 - 9450.76, rel=0.05)
    forward = without["forward"].categories, with_it["forward"].categories
    assert forward[1]["activations"] < 0.2 * forward[0]["activations"]
    assert "activation techniques can save at most 33" in explain_peak(without)
    assert "5.0 x parameters), so activation techniques cannot lower it" in explain_peak(with_it)


def test_a_fused_optimizer_lowers_the_peak_as_the_explanation_says() -> None:
    plain, fused = phases_of(256), phases_of(256, fused=True)
    name, peak = training_peak(fused)
    assert name == "backward"
    assert fused["optimizer"].peak_mem_mb == pytest.approx(4 * 1885, rel=0.01)
    assert explain_peak(plain).endswith(f"about {plain['backward'].peak_mem_mb:.0f}")
    assert peak == pytest.approx(plain["backward"].peak_mem_mb, rel=WITHIN)


def test_flops_are_those_of_the_formula() -> None:
    # Qwen2.5-0.5B: 6 x parameters x tokens, and 12 x layers x heads x head size x length^2.
    tokens = 768
    expected = 6 * 494_032_768 * tokens + 12 * 24 * 14 * 64 * tokens**2
    phases = phases_of(tokens)
    assert phases["forward"].flops + phases["backward"].flops == pytest.approx(expected, rel=1e-3)
    again = phases_of(tokens, checkpoint=True)
    recomputed = again["backward"].flops - phases["backward"].flops
    # The head is not recomputed, nor the last product of each layer.
    assert 0.4 < recomputed / phases["forward"].flops < 0.6
