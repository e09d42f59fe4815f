"""Which model is trained, where it comes from, and how it is built.

Weights are read from safetensors only and no code of a model is ever run:
both would let a download decide what this process does.
"""

from __future__ import annotations

import difflib
import hashlib
import importlib.util
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from threading import Thread
from types import MappingProxyType
from typing import Any, Literal

import torch
import transformers
from huggingface_hub import HfApi, hf_hub_download, snapshot_download, try_to_load_from_cache
from huggingface_hub.errors import GatedRepoError, LocalEntryNotFoundError, RepositoryNotFoundError
from huggingface_hub.utils import disable_progress_bars
from safetensors import SafetensorError, safe_open
from transformers import AutoConfig, AutoModelForCausalLM, PretrainedConfig, PreTrainedModel
from transformers.utils import logging as transformers_logging

from trainperf_mlflow.errors import MeasurementError, PlanError

TINY = "tiny"
# Profile -> hub id. Their true configurations ship with us, in configs/.
PROFILES: MappingProxyType[str, str | None] = MappingProxyType(
    {
        TINY: None,
        "qwen25_small": "Qwen/Qwen2.5-0.5B-Instruct",
        "deepseek_r1_small": "deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B",
    }
)
# A hub that does not answer its first question within this time is not there.
HUB_ANSWERS_WITHIN_S = 8.0
# The source's cache folder, for ModelScope; Hugging Face has its own.
MODELSCOPE_CACHE = "model_cache"
DOWNLOADED = ("*.json", "*.safetensors", "*.txt", "*.model")
PICKLED = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl")
# Not part of what is computed: where it came from, who wrote it, how it is stored.
VOLATILE = frozenset(
    {"_name_or_path", "architectures", "dtype", "torch_dtype", "transformers_version", "use_cache"}
)

Source = Literal["auto", "huggingface", "modelscope", "local", "config"]


@dataclass(frozen=True)
class ResolvedModel:
    """A model that is known and at hand, but not built."""

    name: str  # as it was asked for
    source: Literal["huggingface", "modelscope", "local", "config"]  # where it came from
    config: PretrainedConfig
    path: Path | None  # the folder with its weights; None for random ones
    weights: Literal["random", "pretrained"]

    @property
    def max_positions(self) -> int | None:
        value = getattr(self.config, "max_position_embeddings", None)
        return value if isinstance(value, int) else None

    def architecture(self) -> dict[str, Any]:
        """The configuration without what does not change the computation, JSON-ready."""
        raw = json.loads(self.config.to_json_string(use_diff=True))
        return {k: v for k, v in raw.items() if k not in VOLATILE and v is not None}


def resolve_model(name: str, source: Source) -> ResolvedModel:
    """Find a model by profile, hub id or folder, downloading it where that is needed.

    ``auto`` takes a local folder of that name, then the cache, then Hugging
    Face, then ModelScope where it is installed; ``config`` takes the true
    architecture with random weights and never needs a network.

    Raises:
        PlanError: the model is unknown, or its folder is not fit to be loaded.
        MeasurementError: it cannot be reached from here.
    """
    folder = Path(name).expanduser()
    is_folder = name not in PROFILES and folder.is_dir()
    if name == TINY or (source == "config" and not is_folder):
        return ResolvedModel(name, "config", _known_config(name), None, "random")
    if source == "config":
        return ResolvedModel(name, "config", _read_config(folder), None, "random")
    if source == "local" or (source == "auto" and is_folder):
        if not is_folder:
            raise PlanError(
                f"there is no model folder {name!r}; give the path of a folder with config.json "
                "and *.safetensors, or another model source"
            )
        return _from_folder(name, "local", folder)
    return _from_hubs(name, source, _hub_id(name))


# --- folders -----------------------------------------------------------------------------------


def _from_folder(
    name: str, source: Literal["huggingface", "modelscope", "local"], folder: Path
) -> ResolvedModel:
    config = _read_config(folder)
    _check_weights(folder)
    return ResolvedModel(name, source, config, folder, "pretrained")


def _read_config(folder: Path) -> PretrainedConfig:
    file = folder / "config.json"
    if not file.is_file():
        raise PlanError(
            f"model folder {str(folder)!r} has no config.json; "
            "give a folder written by save_pretrained"
        )
    return _parse_config(folder, str(file))


def _parse_config(where: Path, shown: str) -> PretrainedConfig:
    _quiet()
    try:
        config = AutoConfig.from_pretrained(where, local_files_only=True, trust_remote_code=False)
    except Exception as error:
        raise PlanError(
            f"{shown} is no configuration that transformers {transformers.__version__} knows "
            f"without running code of the model: {_one_line(error)}"
        ) from None
    if type(config) not in transformers.MODEL_FOR_CAUSAL_LM_MAPPING:
        raise PlanError(
            f"{shown} describes {config.model_type!r}, which is no causal language model; "
            "choose a model for text generation, or measure it with a task of your own (--task)"
        )
    return config


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files that transformers would load; those of an index may not exist."""
    index = folder / "model.safetensors.index.json"
    if not index.is_file():
        return sorted(folder.glob("*.safetensors"))
    names = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
    return sorted(folder / name for name in names)


def weights_sha256(folder: Path) -> str:
    """The content of all weight files."""
    digest = hashlib.sha256()
    for file in weight_files(folder):
        with file.open("rb") as stream:
            digest.update(hashlib.file_digest(stream, "sha256").digest())
    return digest.hexdigest()


def _check_weights(folder: Path) -> None:
    try:
        files = weight_files(folder)
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
        raise PlanError(
            f"the index of the weights in {str(folder)!r} is broken ({_one_line(error)}); "
            "copy or download the model again"
        ) from None
    if not files:
        pickled = sorted(file.name for kind in PICKLED for file in folder.glob(kind))
        if pickled:
            raise PlanError(
                f"model folder {str(folder)!r} has only pickled weights ({pickled[0]}), which can "
                "run code when they are loaded; convert them to safetensors "
                "(save_pretrained does), or measure random weights with --model-source config"
            )
        raise PlanError(
            f"model folder {str(folder)!r} has no *.safetensors; add the weights, "
            "or measure random ones with --model-source config"
        )
    for file in files:
        try:
            with safe_open(file, framework="pt"):
                pass
        except (SafetensorError, OSError) as error:
            raise PlanError(
                f"weights {str(file)!r} cannot be read ({_one_line(error)}); "
                "copy or download the model again"
            ) from None


# --- profiles and hubs -------------------------------------------------------------------------


def _hub_id(name: str) -> str:
    hub_id = PROFILES.get(name) or name
    if re.fullmatch(r"[\w-][\w.-]*/[\w.-]+", hub_id):
        return hub_id
    if "/" in name or "\\" in name or name.startswith((".", "~")):
        raise PlanError(
            f"there is no model folder {name!r}, and it is no hub id of the form owner/name"
        )
    raise PlanError(
        f"unknown model {name!r}{_nearest(name)}; known: {', '.join(PROFILES)}, "
        "a hub id (owner/name), or the path of a local folder"
    )


def _nearest(name: str) -> str:
    close = difflib.get_close_matches(name, PROFILES, n=1, cutoff=0.5)
    return f" (did you mean {close[0]!r}?)" if close else ""


def resolve_architecture(name: str, source: Source) -> ResolvedModel:
    """As ``resolve_model``, but never its weights, so that they need not be anywhere.

    A network is used only where a hub is named as the source, and for the configuration alone.

    Raises:
        PlanError: no configuration of it is at hand.
        MeasurementError: the hub that was named cannot be reached from here.
    """
    ships = name in PROFILES or name in PROFILES.values()
    if source in ("huggingface", "modelscope") and not (ships or Path(name).expanduser().is_dir()):
        hub_id = _hub_id(name)
        if _cached_config(hub_id) is None:
            _fetch_config(hub_id, source)
    return resolve_model(name, "config")


def _known_config(name: str) -> PretrainedConfig:
    """The configuration that ships with us, or that a hub's cache holds."""
    hub_ids = {hub_id: profile for profile, hub_id in PROFILES.items() if hub_id}
    hub_id = name if name in PROFILES else _hub_id(name)
    profile = name if name in PROFILES else hub_ids.get(hub_id)
    if profile is not None:
        shipped = resources.files(__package__) / "configs" / f"{profile}.json"
        with resources.as_file(shipped) as file:
            return _parse_config(file, file.name)
    cached = _cached_config(hub_id)
    if cached is None:
        raise PlanError(
            f"the configuration of {name!r} does not ship with the toolkit, as those of "
            f"{', '.join([*PROFILES, *hub_ids])} do, and no hub's cache holds it; fetch it with "
            f"'hf download {hub_id} config.json', or give a folder with its config.json"
        )
    return _parse_config(cached, str(cached / "config.json"))


def _cached_config(hub_id: str) -> Path | None:
    """The folder of a hub's cache that holds the model's config.json; no network is used."""
    file = try_to_load_from_cache(hub_id, "config.json")
    if isinstance(file, str):
        return Path(file).parent
    # ModelScope writes dots in names in another way.
    folders = [Path(MODELSCOPE_CACHE) / name for name in (hub_id, hub_id.replace(".", "___"))]
    return next((folder for folder in folders if (folder / "config.json").is_file()), None)


def _fetch_config(hub_id: str, source: Literal["huggingface", "modelscope"]) -> None:
    def fetch() -> None:
        if source == "huggingface":
            hf_hub_download(hub_id, "config.json")
        else:
            from modelscope import snapshot_download as download

            download(hub_id, cache_dir=MODELSCOPE_CACHE, allow_file_pattern=["config.json"])

    try:
        _within(fetch)
    except GatedRepoError:
        raise PlanError(
            f"model {hub_id!r} is gated; accept its terms and log in (hf auth login) first"
        ) from None
    except RepositoryNotFoundError:
        raise PlanError(f"there is no public model {hub_id!r} on Hugging Face") from None
    except Exception as error:
        raise MeasurementError(
            f"the configuration of {hub_id!r} cannot be had from {source} ({_one_line(error)}); "
            "check the network, or give the path of a folder with its config.json"
        ) from None


def _from_hubs(name: str, source: Source, hub_id: str) -> ResolvedModel:
    tried: list[str] = []
    hubs: dict[Literal["huggingface", "modelscope"], Callable[[str], Path]] = {
        "huggingface": _from_huggingface,
        "modelscope": _from_modelscope,
    }
    for hub, fetch in hubs.items():
        if source not in ("auto", hub):
            continue
        try:
            return _from_folder(name, hub, fetch(hub_id))
        except _UnreachableError as error:
            tried.append(f"{hub}: {error}")
    ships = hub_id in PROFILES.values()
    raise MeasurementError(
        f"model {hub_id!r} cannot be had ({'; '.join(tried)}); check the network, or give the path "
        "of a local folder"
        + (", or measure random weights of its architecture: --model-source config" * ships)
    )


class _UnreachableError(Exception):
    """A hub that cannot serve the model just now, with the reason."""


def _from_huggingface(hub_id: str) -> Path:
    _quiet()
    cached = _cached(lambda: snapshot_download(hub_id, local_files_only=True))
    if cached is not None:
        return cached
    try:
        _within(lambda: HfApi().model_info(hub_id, timeout=HUB_ANSWERS_WITHIN_S))
        return Path(snapshot_download(hub_id, allow_patterns=list(DOWNLOADED)))
    except GatedRepoError:
        raise PlanError(
            f"model {hub_id!r} is gated; accept its terms and log in (hf auth login) first"
        ) from None
    except RepositoryNotFoundError:
        raise PlanError(
            f"there is no public model {hub_id!r} on Hugging Face{_nearest(hub_id)}"
        ) from None
    except Exception as error:
        raise _UnreachableError(f"not in the cache, and {_one_line(error)}") from None


def _from_modelscope(hub_id: str) -> Path:
    if importlib.util.find_spec("modelscope") is None:
        raise _UnreachableError("not installed (pip install trainperf-mlflow[modelscope])")
    from modelscope import HubApi
    from modelscope import snapshot_download as download

    cached = _cached(lambda: download(hub_id, cache_dir=MODELSCOPE_CACHE, local_files_only=True))
    if cached is not None:
        return cached
    try:
        _within(lambda: HubApi().get_model(hub_id))
        return Path(
            download(hub_id, cache_dir=MODELSCOPE_CACHE, allow_file_pattern=list(DOWNLOADED))
        )
    except Exception as error:
        raise _UnreachableError(f"not in the cache, and {_one_line(error)}") from None


def _cached(find: Callable[[], str]) -> Path | None:
    """The snapshot in a hub's cache, if it is there and whole."""
    try:
        folder = Path(find())
        files = weight_files(folder)
    except (LocalEntryNotFoundError, OSError, ValueError, KeyError):
        return None
    whole = bool(files) and all(file.is_file() for file in (folder / "config.json", *files))
    return folder if whole else None


def _within(call: Callable[[], object]) -> None:
    """Run a hub's first question; its client may retry for minutes, so it is left behind then."""
    outcome: list[Exception | None] = []

    def run() -> None:
        try:
            call()
            outcome.append(None)
        except Exception as error:
            outcome.append(error)

    thread = Thread(target=run, daemon=True)
    thread.start()
    thread.join(HUB_ANSWERS_WITHIN_S)
    if not outcome:
        raise TimeoutError(f"no answer within {HUB_ANSWERS_WITHIN_S:.0f} s")
    if outcome[0] is not None:
        raise outcome[0]


# --- building ----------------------------------------------------------------------------------


def build_model(resolved: ResolvedModel, seed: int, attention: str) -> PreTrainedModel:
    """The model on the CPU, in fp32, in train mode, without a key-value cache.

    Random weights depend on the seed alone.

    Raises:
        PlanError: weights are missing or do not fit the configuration.
    """
    _quiet()
    torch.manual_seed(seed)
    if resolved.path is None:
        model = _random_model(resolved.config, attention)
    else:
        model = _pretrained_model(resolved.path, attention)
    model.config.use_cache = False
    return model.train()


def _random_model(config: PretrainedConfig, attention: str) -> PreTrainedModel:
    # Constructors fill weights that are overwritten at once; from meta they are filled just once.
    model = meta_model(config, attention)
    model.to_empty(device="cpu")
    model.tie_weights()
    model.init_weights()
    return model


def meta_model(config: PretrainedConfig, attention: str = "sdpa") -> PreTrainedModel:
    """The model without storage: shapes and counts only."""
    with torch.device("meta"):
        model: PreTrainedModel = AutoModelForCausalLM.from_config(
            config, dtype=torch.float32, attn_implementation=attention, trust_remote_code=False
        )
        model.tie_weights()  # not every release ties on meta by itself
    return model


def _pretrained_model(folder: Path, attention: str) -> PreTrainedModel:
    try:
        model, info = AutoModelForCausalLM.from_pretrained(
            folder,
            dtype=torch.float32,
            attn_implementation=attention,
            use_safetensors=True,
            trust_remote_code=False,
            local_files_only=True,
            output_loading_info=True,
        )
    except (OSError, RuntimeError, ValueError, SafetensorError) as error:
        raise PlanError(f"model folder {str(folder)!r}: {_one_line(error)}") from None
    missing = sorted(info["missing_keys"])
    if missing:
        raise PlanError(
            f"model folder {str(folder)!r} lacks {len(missing)} of the weights, such as "
            f"{missing[0]}, which would be random; copy or download the model again"
        )
    return model


def _one_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0][:200]}"


@cache
def _quiet() -> None:
    """Progress bars and advice of the libraries would be drawn over our own."""
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    disable_progress_bars()
