from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
import torch
from huggingface_hub.errors import LocalEntryNotFoundError, RepositoryNotFoundError
from safetensors.torch import load_file, save_file
from transformers import Qwen2Config, Qwen2ForCausalLM

from trainperf_mlflow.errors import MeasurementError, PlanError
from trainperf_mlflow.workloads import models
from trainperf_mlflow.workloads.models import (
    build_model,
    meta_model,
    resolve_architecture,
    resolve_model,
)

QWEN = "Qwen/Qwen2.5-0.5B-Instruct"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A tiny Qwen2 as save_pretrained writes it."""
    config = Qwen2Config(
        hidden_size=16,
        num_hidden_layers=1,
        intermediate_size=32,
        vocab_size=300,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=64,
    )
    torch.manual_seed(5)
    path = tmp_path / "model"
    Qwen2ForCausalLM(config).save_pretrained(path)
    return path


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def nothing_cached(*args: Any, **kwargs: Any) -> str:
        raise LocalEntryNotFoundError("not here")

    class Dead:
        def model_info(self, *args: Any, **kwargs: Any) -> None:
            raise ConnectionError("Name or service not known")

    monkeypatch.setattr(models, "snapshot_download", nothing_cached)
    monkeypatch.setattr(models, "HfApi", Dead)


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("qwen25_small", 494_032_768),
        (QWEN, 494_032_768),
        ("deepseek_r1_small", 1_777_088_000),
    ],
)
def test_shipped_configurations_have_the_published_parameter_counts(
    name: str, parameters: int
) -> None:
    resolved = resolve_model(name, "config")
    assert sum(p.numel() for p in meta_model(resolved.config).parameters()) == parameters
    assert (resolved.weights, resolved.path, resolved.source) == ("random", None, "config")


@pytest.mark.parametrize("source", ["auto", "huggingface", "config", "local"])
def test_tiny_never_needs_anything_but_its_configuration(source: Any) -> None:
    resolved = resolve_model("tiny", source)
    assert resolved.source == "config"
    assert resolved.architecture()["vocab_size"] == 256


def test_random_weights_depend_on_the_seed_alone() -> None:
    resolved = resolve_model("tiny", "config")
    first, again, other = (build_model(resolved, seed, "sdpa") for seed in (1, 1, 2))
    for (name, a), b in zip(first.state_dict().items(), again.state_dict().values(), strict=True):
        assert torch.equal(a, b), name
        assert a.isfinite().all(), name
    embedding = first.model.embed_tokens.weight
    assert not torch.equal(embedding, other.model.embed_tokens.weight)
    assert float(embedding.detach().std()) == pytest.approx(0.02, rel=0.02)


def test_random_weights_are_what_the_models_own_constructor_gives_in_kind() -> None:
    resolved = resolve_model("tiny", "config")
    built = build_model(resolved, 0, "sdpa")
    torch.manual_seed(0)
    plain = Qwen2ForCausalLM(resolved.config)
    assert built.lm_head.weight is built.model.embed_tokens.weight
    for (name, a), b in zip(built.named_parameters(), plain.parameters(), strict=True):
        assert a.shape == b.shape
        assert a.dtype is torch.float32
        if a.dim() > 1:
            assert float(a.detach().std()) == pytest.approx(float(b.detach().std()), rel=0.05), name
        else:
            assert torch.equal(a, b), name
    for a, b in zip(built.buffers(), plain.buffers(), strict=True):
        assert torch.equal(a, b)


def test_a_built_model_is_ready_to_train_without_a_cache() -> None:
    model = build_model(resolve_model("tiny", "config"), 0, "eager")
    assert model.training
    assert model.config.use_cache is False
    assert model.config._attn_implementation == "eager"


def test_a_local_folder_is_loaded_with_its_weights(folder: Path) -> None:
    for source in ("auto", "local"):
        resolved = resolve_model(str(folder), source)
        assert (resolved.source, resolved.weights) == ("local", "pretrained")
    model = build_model(resolved, 99, "sdpa")
    saved = load_file(folder / "model.safetensors")
    assert torch.equal(model.model.embed_tokens.weight, saved["model.embed_tokens.weight"])
    assert model.training


def test_a_local_folder_with_source_config_gets_random_weights(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    resolved = resolve_model(str(folder), "config")
    assert (resolved.weights, resolved.config.hidden_size) == ("random", 16)
    build_model(resolved, 0, "sdpa")


def test_the_architecture_leaves_out_what_changes_nothing(folder: Path) -> None:
    before = resolve_model(str(folder), "local").architecture()
    raw = json.loads((folder / "config.json").read_text())
    raw |= {"transformers_version": "5.0.0", "dtype": "bfloat16", "use_cache": False}
    (folder / "config.json").write_text(json.dumps(raw))
    assert resolve_model(str(folder), "local").architecture() == before
    (folder / "config.json").write_text(json.dumps(raw | {"rms_norm_eps": 0.1}))
    assert resolve_model(str(folder), "local").architecture() != before


def test_the_hash_of_the_weights_follows_their_content(folder: Path) -> None:
    before = models.weights_sha256(folder)
    weights = load_file(folder / "model.safetensors")
    weights["model.norm.weight"] += 1
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    assert models.weights_sha256(folder) != before


def _pickled(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def _without_config(folder: Path) -> None:
    (folder / "config.json").unlink()


def _without_weights(folder: Path) -> None:
    (folder / "model.safetensors").unlink()


def _broken_config(folder: Path) -> None:
    (folder / "config.json").write_text("{")


def _remote_code(folder: Path) -> None:
    (folder / "config.json").write_text(
        '{"model_type": "mine", "auto_map": {"AutoConfig": "code.MyConfig"}}'
    )
    (folder / "code.py").write_text("raise SystemExit('code of a model was run')")


def _no_causal_lm(folder: Path) -> None:
    (folder / "config.json").write_text('{"model_type": "vit"}')


def _broken_weights(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(b"not safetensors at all")


def _missing_shard(folder: Path) -> None:
    index = {"weight_map": {"lm_head.weight": "model-00001-of-00002.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def _broken_index(folder: Path) -> None:
    (folder / "model.safetensors.index.json").write_text("[]")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (_pickled, r"only pickled weights \(pytorch_model.bin\).*save_pretrained"),
        (_without_config, "has no config.json"),
        (_without_weights, r"has no \*.safetensors"),
        (_broken_config, "config.json is no configuration"),
        (_remote_code, "without running code of the model"),
        (_no_causal_lm, "describes 'vit', which is no causal language model"),
        (_broken_weights, "cannot be read"),
        (_missing_shard, "model-00001-of-00002.safetensors' cannot be read"),
        (_broken_index, "index of the weights .* is broken"),
    ],
)
def test_a_folder_that_is_not_fit_is_refused_with_the_remedy(
    folder: Path, damage: Callable[[Path], None], message: str
) -> None:
    damage(folder)
    with pytest.raises(PlanError, match=message):
        resolve_model(str(folder), "auto")


def test_weights_that_are_missing_are_never_replaced_by_random_ones(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    del weights["model.layers.0.mlp.up_proj.weight"]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(PlanError, match=r"lacks 1 of the weights, such as .*up_proj"):
        build_model(resolve_model(str(folder), "local"), 0, "sdpa")


def test_weights_of_another_shape_are_refused(folder: Path) -> None:
    raw = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(raw | {"hidden_size": 32}))
    with pytest.raises(PlanError, match="model folder"):
        build_model(resolve_model(str(folder), "local"), 0, "sdpa")


@pytest.mark.parametrize(
    ("name", "source", "message"),
    [
        ("qwen25_smal", "auto", r"unknown model .*did you mean 'qwen25_small'"),
        ("qwen25_smal", "config", "did you mean 'qwen25_small'"),
        ("./models/mine", "auto", "no model folder './models/mine'"),
        ("a/b/c", "huggingface", "no hub id of the form owner/name"),
        ("some/model", "config", "configuration of 'some/model' does not ship"),
        ("qwen25_small", "local", "there is no model folder 'qwen25_small'"),
    ],
)
def test_a_model_that_is_not_known_is_a_plan_error(name: str, source: Any, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        resolve_model(name, source)


@pytest.mark.usefixtures("no_network")
@pytest.mark.parametrize("kept", ["huggingface", "modelscope"])
def test_an_architecture_is_known_from_a_hubs_cache_without_weights_or_network(
    kept: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "model_cache" / "some" / "model-1___5"
    if kept == "huggingface":
        cache = tmp_path / "hub"
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(cache))
        repository = cache / "models--some--model-1.5"
        folder = repository / "snapshots" / "abc"
        (repository / "refs").mkdir(parents=True)
        (repository / "refs" / "main").write_text("abc")
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(resolve_model("tiny", "config").config.to_json_string())
    for source in ("auto", "huggingface", "modelscope"):
        found = resolve_architecture("some/model-1.5", source)
        assert (found.source, found.weights, found.path) == ("config", "random", None)


@pytest.mark.usefixtures("no_network")
def test_an_architecture_is_fetched_only_where_a_hub_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreachable(*args: Any, **kwargs: Any) -> str:
        raise ConnectionError("Name or service not known")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(models, "hf_hub_download", unreachable)
    monkeypatch.setitem(sys.modules, "modelscope", None)
    with pytest.raises(PlanError, match=r"hf download some/model config\.json"):
        resolve_architecture("some/model", "auto")
    with pytest.raises(MeasurementError, match="cannot be had from huggingface"):
        resolve_architecture("some/model", "huggingface")
    with pytest.raises(MeasurementError, match="cannot be had from modelscope"):
        resolve_architecture("some/model", "modelscope")


@pytest.mark.usefixtures("no_network")
def test_without_a_network_auto_says_what_was_tried_and_the_remedy() -> None:
    with pytest.raises(MeasurementError) as caught:
        resolve_model("qwen25_small", "auto")
    message = str(caught.value)
    assert "huggingface: not in the cache" in message
    assert "Name or service not known" in message
    assert "modelscope: " in message
    assert "--model-source config" in message


@pytest.mark.usefixtures("no_network")
def test_the_config_remedy_is_offered_only_where_a_configuration_ships() -> None:
    with pytest.raises(MeasurementError) as caught:
        resolve_model("some/model", "huggingface")
    assert "--model-source config" not in str(caught.value)
    assert "modelscope" not in str(caught.value)


@pytest.mark.usefixtures("no_network")
def test_a_hub_that_never_answers_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    class Silent:
        def model_info(self, *args: Any, **kwargs: Any) -> None:
            time.sleep(30)

    monkeypatch.setattr(models, "HfApi", Silent)
    monkeypatch.setattr(models, "HUB_ANSWERS_WITHIN_S", 0.01)
    with pytest.raises(MeasurementError, match="no answer within"):
        resolve_model("qwen25_small", "huggingface")


@pytest.mark.usefixtures("no_network")
def test_a_model_that_the_hub_does_not_have_is_a_plan_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Empty:
        def model_info(self, *args: Any, **kwargs: Any) -> None:
            raise RepositoryNotFoundError("404", response=MagicMock())

    monkeypatch.setattr(models, "HfApi", Empty)
    with pytest.raises(PlanError, match="no public model 'qwen/nothing'"):
        resolve_model("qwen/nothing", "huggingface")


def test_a_whole_cached_copy_is_taken_without_asking_the_hub(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Unasked:
        def __init__(self) -> None:
            raise AssertionError("the hub was asked")

    asked: list[dict[str, Any]] = []

    def cached(hub_id: str, **options: Any) -> str:
        asked.append(options)
        return str(folder)

    monkeypatch.setattr(models, "HfApi", Unasked)
    monkeypatch.setattr(models, "snapshot_download", cached)
    resolved = resolve_model("qwen25_small", "auto")
    assert (resolved.source, resolved.weights, resolved.path) == (
        "huggingface",
        "pretrained",
        folder,
    )
    assert asked == [{"local_files_only": True}]


def test_a_cached_copy_that_lacks_weights_is_downloaded_again(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    partial = tmp_path / "partial"
    partial.mkdir()
    (partial / "config.json").write_text("{}")

    class Answers:
        def model_info(self, *args: Any, **kwargs: Any) -> None: ...

    def download(hub_id: str, *, local_files_only: bool = False, **options: Any) -> str:
        return str(partial if local_files_only else folder)

    monkeypatch.setattr(models, "HfApi", Answers)
    monkeypatch.setattr(models, "snapshot_download", download)
    assert resolve_model("qwen25_small", "huggingface").path == folder
