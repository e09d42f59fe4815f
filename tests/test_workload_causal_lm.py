from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor
from transformers import Qwen2Config, Qwen2ForCausalLM

from trainperf_mlflow.errors import PlanError
from trainperf_mlflow.workloads.causal_lm import CausalLM, build_causal_lm
from trainperf_mlflow.workloads.config import CausalLMConfig
from trainperf_mlflow.workloads.task import build_task, run_step

CPU = torch.device("cpu")


def build(seed: int = 0, data_seed: int = 42, **settings: Any) -> CausalLM:
    config = {"batch_size": 2, "seq_len": 16, "learning_rate": 1e-3, **settings}
    task = build_task("causal_lm", config, seed, CPU, data_seed)
    assert isinstance(task, CausalLM)
    return task


def train(task: CausalLM, steps: int = 3) -> list[float]:
    losses = [run_step(task) for _ in range(steps)]
    return [float(loss) for loss in losses if isinstance(loss, Tensor)]


def test_training_on_one_batch_lowers_its_loss() -> None:
    losses = train(build(), 5)
    assert losses[0] == pytest.approx(5.545, abs=0.2)  # ln 256: nothing is known yet
    assert losses[-1] < losses[0] - 0.1


def test_the_same_seed_gives_the_same_losses_and_another_seed_others() -> None:
    assert train(build(seed=1)) == train(build(seed=1))
    assert train(build(seed=1)) != train(build(seed=2))


def test_the_data_follow_the_data_seed_and_not_the_repeats() -> None:
    for source in ("random", "stdlib"):
        first, again, other = (
            build(seed=seed, data_seed=data_seed, data=source)
            for seed, data_seed in ((1, 7), (2, 7), (1, 8))
        )
        batch = first.next_batch()
        assert torch.equal(batch, again.next_batch())
        assert not torch.equal(batch, other.next_batch())
        assert torch.equal(first.validation, again.validation)


def test_a_random_batch_stays_while_text_moves_on() -> None:
    fixed, moving = build(data="random"), build(data="stdlib")
    assert fixed.next_batch() is fixed.next_batch()
    assert not torch.equal(moving.next_batch(), moving.next_batch())


def test_only_real_text_checks_quality() -> None:
    assert not build(data="random").quality_checked
    assert build(data="stdlib").quality_checked


@pytest.mark.parametrize(
    "settings",
    [
        {"checkpoint": True},
        {"offload": True},
        {"checkpoint": True, "offload": True},
        {"fused": True},
        {"num_workers": 1},
        {"attention": "eager"},
    ],
)
def test_a_change_of_memory_or_speed_keeps_the_losses(settings: dict[str, Any]) -> None:
    changed = build(data="stdlib", **settings)
    try:
        assert train(changed) == pytest.approx(train(build(data="stdlib")), rel=1e-5)
    finally:
        changed.close()


@pytest.mark.parametrize("precision", ["bf16", "fp16", "amp"])
def test_autocast_keeps_fp32_weights_and_nearly_the_loss(precision: str) -> None:
    task = build(precision=precision)
    assert {p.dtype for p in task.model.parameters()} == {torch.float32}
    assert train(task) == pytest.approx(train(build()), rel=0.02)


def test_fp16_scales_its_loss_and_still_updates() -> None:
    task = build(precision="fp16")
    before = task.model.model.embed_tokens.weight.detach().clone()
    assert task.scaler.get_scale() > 1
    train(task, 4)
    assert not torch.equal(before, task.model.model.embed_tokens.weight)
    assert not build(precision="bf16").scaler.is_enabled()


def test_accumulation_averages_the_gradients_of_its_micro_batches() -> None:
    single, double = build(), build(grad_accumulation=2)
    assert (double.samples_per_step, double.tokens_per_step) == (4.0, 64.0)
    run_step(single)
    run_step(double)  # twice the same fixed batch
    for a, b in zip(single.model.parameters(), double.model.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad, rtol=1e-4, atol=1e-7)


def test_gradients_live_until_the_next_step_begins() -> None:
    task = build()
    run_step(task)
    assert all(p.grad is not None for p in task.model.parameters())
    task.zero_grad()
    assert all(p.grad is None for p in task.model.parameters())


def test_evaluation_does_not_depend_on_the_batch_size_and_leaves_no_trace() -> None:
    losses = []
    for batch_size in (1, 3, 8):
        task = build(data="stdlib", batch_size=batch_size)
        losses.append(task.evaluate())
        assert task.evaluate() == losses[-1]
        assert task.model.training
        assert all(p.grad is None for p in task.model.parameters())
    assert losses == pytest.approx([losses[0]] * 3, rel=1e-5)


def test_state_tensors_hold_weights_optimizer_and_the_resident_batch() -> None:
    task = build()
    weights = sum(p.numel() for p in task.model.parameters())
    before = sum(t.numel() for t in task.state_tensors())
    assert any(t is task.next_batch() for t in task.state_tensors())
    run_step(task)
    grown = sum(t.numel() for t in task.state_tensors()) - before
    assert 2 * weights <= grown < 2.1 * weights  # AdamW's two moments and its counters


@pytest.mark.parametrize(
    ("optimizer", "extra"),
    [("adamw", {}), ("adam", {}), ("sgd", {"momentum": 0.9}), ("sgd", {}), ("adafactor", {})],
)
def test_every_optimizer_trains(optimizer: str, extra: dict[str, Any]) -> None:
    rate = 0.5 if optimizer == "sgd" else 1e-3
    losses = train(build(optimizer=optimizer, learning_rate=rate, **extra), 4)
    assert losses[-1] < losses[0]


def test_building_and_training_warns_of_nothing() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        train(build(checkpoint=True, precision="bf16"), 1)


def test_matmul_precision_is_set_for_every_variant() -> None:
    before = torch.get_float32_matmul_precision()
    try:
        build(matmul_precision="high")
        assert torch.get_float32_matmul_precision() == "high"
        build()
        assert torch.get_float32_matmul_precision() == "highest"
    finally:
        torch.set_float32_matmul_precision(before)


def test_sequences_beyond_the_models_positions_are_refused() -> None:
    with pytest.raises(PlanError, match="seq_len 5000 is more than the 4096 positions"):
        build(seq_len=5000)


def test_an_invalid_setting_is_a_plan_error() -> None:
    with pytest.raises(PlanError, match="batch_size = '0'"):
        build_causal_lm("causal_lm", {"batch_size": 0}, 0, CPU, 0)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"momentum": 0.9}, "momentum 0.9 has no meaning for adamw; set optimizer=sgd"),
        ({"fused": True, "optimizer": "adafactor"}, "adafactor has no fused kernel"),
        ({"num_workers": 2}, "num_workers 2 has nothing to load with data=random"),
        ({"batch_size": 10**6, "seq_len": 10**6}, "more than 16777216 tokens"),
    ],
)
def test_settings_that_would_be_ignored_or_exhaust_the_host_are_refused(
    settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValidationError, match=message):
        CausalLMConfig(**settings)


def local_model(path: Path, vocab_size: int) -> Path:
    config = Qwen2Config(
        hidden_size=16,
        num_hidden_layers=1,
        intermediate_size=32,
        vocab_size=vocab_size,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=64,
    )
    Qwen2ForCausalLM(config).save_pretrained(path)
    return path


def add_tokenizer(path: Path, letters: str) -> None:
    """A byte-level tokenizer as Qwen2 has it, one token a letter."""
    from tokenizers import Tokenizer
    from tokenizers.models import BPE
    from transformers import PreTrainedTokenizerFast

    raw = Tokenizer(BPE({letter: i for i, letter in enumerate(letters)}, []))
    PreTrainedTokenizerFast(tokenizer_object=raw).save_pretrained(path)


@pytest.fixture
def letters(tmp_path: Path) -> Path:
    file = tmp_path / "letters.txt"
    file.write_text("bcda" * 40)
    return file


def test_a_real_model_reads_text_with_its_own_tokenizer(tmp_path: Path, letters: Path) -> None:
    folder = local_model(tmp_path / "model", 8)
    add_tokenizer(folder, "abcd")
    task = build(model=str(folder), data=str(letters), seq_len=4)
    assert task.validation[0].tolist() == [1, 2, 3, 0]
    assert task.quality_checked
    assert len(train(task, 2)) == 2


def test_a_tokenizer_beyond_the_models_vocabulary_is_refused(tmp_path: Path, letters: Path) -> None:
    folder = local_model(tmp_path / "model", 3)
    add_tokenizer(folder, "abcd")
    with pytest.raises(PlanError, match="needs a vocabulary of 4 tokens, the model has 3"):
        build(model=str(folder), data=str(letters), seq_len=4)


def test_a_real_model_without_a_tokenizer_reads_bytes(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("abcd" * 40)
    folder = local_model(tmp_path / "model", 256)
    task = build(model=str(folder), data=str(text), seq_len=4)
    assert task.next_batch()[0].tolist() == [97, 98, 99, 100]


def test_a_broken_tokenizer_is_refused(tmp_path: Path) -> None:
    folder = local_model(tmp_path / "model", 256)
    (folder / "tokenizer.json").write_text("{")
    with pytest.raises(PlanError, match=r"tokenizer in .* cannot be loaded"):
        build(model=str(folder), data="stdlib")
