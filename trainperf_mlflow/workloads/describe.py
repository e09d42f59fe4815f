"""What is trained, on what, before anything is measured: the workload and its digest."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch

from trainperf_mlflow.results.record import Setting
from trainperf_mlflow.results.study import Variant, Workload
from trainperf_mlflow.workloads import data
from trainperf_mlflow.workloads.causal_lm import (
    Content,
    check_sizes,
    parse_config,
    read_content,
    vocab_size,
)
from trainperf_mlflow.workloads.config import CausalLMConfig
from trainperf_mlflow.workloads.device import device_name, resolve_device, use_device
from trainperf_mlflow.workloads.models import (
    ResolvedModel,
    meta_model,
    resolve_model,
    weights_sha256,
)
from trainperf_mlflow.workloads.support import check_compile_mode, unsupported_reason
from trainperf_mlflow.workloads.task import is_custom, load_factory

MODEL_KEYS = frozenset({"model", "model_source"})
# What these settings name is described by its content instead.
BY_CONTENT = MODEL_KEYS | {"data"}


def describe(
    task: str, variants: tuple[Variant, ...], *, seed: int, device: str, name: str
) -> Workload:
    """Resolve device, models and data of all variants, building none of them.

    Models that are not at hand are downloaded here, so that no repeat does it.

    Raises:
        PlanError: the task, a model, data or a setting cannot be had on any device.
        MeasurementError: the device or a model is not to be had here.
    """
    target = resolve_device(device)
    use_device(target)
    changed = frozenset(key for variant in variants for key in variant.changed)
    settings = {key: value for key, value in variants[0].config.items() if key not in changed}
    if is_custom(task):
        load_factory(task)  # its mistakes are told now, not in the first repeat
        described = _Described(source="the task's own")
    else:
        described = _describe_causal_lm(task, variants, changed, target, seed)
        settings = {key: value for key, value in settings.items() if key not in BY_CONTENT}
    identity: dict[str, Any] = {
        "task": task,
        **described.identity,
        "settings": settings,
        "seed": seed,
        "device": {"type": target.type, "name": device_name(target)},
    }
    return Workload(
        digest=digest(identity),
        identity=identity,
        device=str(target),
        name=name,
        source=described.source,
        unsupported=described.unsupported,
        facts=described.facts,
    )


def digest(identity: dict[str, Any]) -> str:
    """SHA-256 of the canonical JSON: sorted keys, no spaces.

    >>> digest({"b": 1, "a": 2}) == digest({"a": 2, "b": 1})
    True
    """
    text = json.dumps(identity, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True)
class _Described:
    """What one kind of task adds to a workload."""

    source: str
    identity: dict[str, Any] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    unsupported: dict[str, str] = field(default_factory=dict)


def _describe_causal_lm(
    task: str,
    variants: tuple[Variant, ...],
    changed: frozenset[str],
    device: torch.device,
    seed: int,
) -> _Described:
    resolve = cache(resolve_model)  # variants mostly share one model and one text
    contents: dict[tuple[Setting, ...], Content] = {}
    unsupported: dict[str, str] = {}
    for variant in variants:
        config = parse_config(task, variant.config)
        check_compile_mode(config.compile)
        resolved = resolve(config.model, config.model_source)
        check_sizes(config, resolved)
        if config.data != data.RANDOM:
            key = (config.data, config.model, config.model_source)
            if key not in contents:
                contents[key] = read_content(config, resolved)
            data.split(contents[key].tokens, config.batch_size, config.seq_len, config.data)
        if reason := unsupported_reason(config, device):
            unsupported[variant.name] = reason

    first = parse_config(task, variants[0].config)
    resolved = resolve(first.model, first.model_source)
    content = contents.get((first.data, first.model, first.model_source))
    identity: dict[str, Any] = {}
    if not changed & MODEL_KEYS:
        identity["model"] = resolved.architecture()
        identity["weights"] = _weights_identity(resolved)
    if "data" not in changed:
        identity["data"] = _data_identity(first, resolved, content, changed, seed)
    return _Described(
        source=_data_in_words(first, content),
        identity=identity,
        facts={
            "parameters": sum(p.numel() for p in meta_model(resolved.config).parameters()),
            "weights": resolved.weights,
            "model_source": resolved.source,
            "data": first.data,
            "data_tokens": first.batch_size * first.seq_len
            if content is None
            else len(content.tokens),
        },
        unsupported=unsupported,
    )


def _weights_identity(resolved: ResolvedModel) -> dict[str, str]:
    if resolved.path is None:
        return {"kind": resolved.weights}
    return {"kind": resolved.weights, "sha256": weights_sha256(resolved.path)}


def _data_identity(
    config: CausalLMConfig,
    resolved: ResolvedModel,
    content: Content | None,
    changed: frozenset[str],
    seed: int,
) -> dict[str, str]:
    """Kind and content; the content is left out where the changed variable changes it."""
    if content is None:
        kind, shaped_by = data.RANDOM, MODEL_KEYS | {"batch_size", "seq_len"}
    else:
        # A text is cut differently by other sizes, but stays the same text.
        kind, shaped_by = data.STDLIB if config.data == data.STDLIB else "file", MODEL_KEYS
    if changed & shaped_by:
        return {"kind": kind}
    tokens = (
        data.random_batch(vocab_size(resolved), config.batch_size, config.seq_len, seed)
        if content is None
        else content.tokens
    )
    return {"kind": kind, "sha256": data.tokens_sha256(tokens)}


def _data_in_words(config: CausalLMConfig, content: Content | None) -> str:
    if content is None:
        return f"one fixed batch of {config.batch_size} x {config.seq_len} random tokens"
    of = "the Python standard library" if config.data == data.STDLIB else config.data
    return f"{len(content.tokens)} {content.unit} of {of}"
