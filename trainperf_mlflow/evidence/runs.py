"""Whether two runs trained the same workload, whoever logged them.

A run states its workload by the names that its author chose: each field has the usual
ones. What only one run states cannot be checked, and is told.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

from pydantic import Field, JsonValue

from trainperf_mlflow.evidence.identity import Identity, Mismatch
from trainperf_mlflow.results.record import Record

# Field -> the names under which runs state it; the toolkit's own comes first.
FIELDS: MappingProxyType[str, tuple[str, ...]] = MappingProxyType(
    {
        "model": ("model", "model_id", "model_name", "model_name_or_path", "_name_or_path"),
        "data": ("data", "dataset", "dataset_name", "train_file"),
        "batch_size": ("batch_size", "per_device_train_batch_size", "train_batch_size"),
        "seq_len": ("seq_len", "max_seq_length", "max_length", "sequence_length", "block_size"),
        "dtype": ("precision", "dtype", "torch_dtype", "bf16", "fp16", "matmul_precision", "tf32"),
        "optimizer": ("optimizer", "optim", "optimizer_name"),
        "seed": ("seed", "random_seed"),
        "device": ("device",),
        "peak_mem_source": ("peak_mem_source",),
    }
)
# The same of what may differ between machines, and then has to be allowed.
ENVIRONMENT: MappingProxyType[str, tuple[str, ...]] = MappingProxyType(
    {
        "torch": ("torch", "torch_version"),
        "transformers": ("transformers", "transformers_version"),
        "cuda": ("torch_cuda", "cuda", "cuda_version"),
        "driver": ("driver", "driver_version"),
        "device_name": ("device_name", "gpu_name", "gpu"),
        "threads": ("threads",),
    }
)
_BY_CONTENT = ("model", "data")


class Stated(Record):
    """What a run says of its workload and of the machine.

    ``whole`` says that the configuration has all that matters, as a study's has;
    ``content`` is the digest of model and data, by dotted names.
    """

    config: dict[str, JsonValue]
    environment: dict[str, JsonValue]
    content: dict[str, JsonValue] = Field(default_factory=dict)
    whole: bool = False


def same_run_workload(
    candidate: Stated, baseline: Stated, changed: Collection[str] = ()
) -> Identity:
    """Every mismatch of the workload, and what could not be checked.

    Args:
        changed: the settings (or fields) in which the candidate is meant to differ.
    """
    # Of another model also the weights are others.
    left_out = {*changed, *(("weights",) if "model" in changed else ())}
    fields = {name: names for name, names in FIELDS.items() if name not in changed}
    checks = [
        _check(key, (key,), candidate.content, baseline.content)
        for key in sorted(candidate.content.keys() | baseline.content.keys())
        if _top(key) not in left_out
    ]
    for field, names in fields.items():
        known = field in _BY_CONTENT and any(
            _top(key) == field for key in candidate.content.keys() & baseline.content.keys()
        )
        if not known:
            checks.append(_check(field, names, candidate.config, baseline.config, changed))
    if candidate.whole and baseline.whole:
        seen = {*changed, *(name for names in FIELDS.values() for name in names), "model_source"}
        rest = sorted((candidate.config.keys() & baseline.config.keys()) - seen)
        checks += [_check(key, (key,), candidate.config, baseline.config) for key in rest]
    return _identity(checks)


def same_environment(candidate: Stated, baseline: Stated) -> Identity:
    """What differs between the machines, and what could not be checked."""
    return _identity(
        [
            _check(field, names, candidate.environment, baseline.environment)
            for field, names in ENVIRONMENT.items()
        ]
    )


def other_differences(
    candidate: Stated, baseline: Stated, changed: Collection[str] = ()
) -> tuple[Mismatch, ...]:
    """Settings beyond the workload's fields that differ: nobody knows whether they matter."""
    if candidate.whole and baseline.whole:
        return ()
    seen = {*changed, *(name for names in FIELDS.values() for name in names)}
    rest = sorted((candidate.config.keys() & baseline.config.keys()) - seen)
    return _identity(
        [_check(key, (key,), candidate.config, baseline.config) for key in rest]
    ).mismatches


class _Check(NamedTuple):
    """One field with what each side states of it, by name."""

    field: str
    found: dict[str, JsonValue]
    wanted: dict[str, JsonValue]


def _check(
    field: str,
    names: Collection[str],
    candidate: Mapping[str, JsonValue],
    baseline: Mapping[str, JsonValue],
    changed: Collection[str] = (),
) -> _Check:
    asked = [name for name in names if name not in changed]
    found, wanted = (
        {name: side[name] for name in asked if side.get(name) is not None}
        for side in (candidate, baseline)
    )
    return _Check(field, found, wanted)


def _identity(checks: Collection[_Check]) -> Identity:
    return Identity(
        mismatches=tuple(mismatch for check in checks for mismatch in _mismatches(check)),
        unchecked=tuple(
            f"{check.field} ({_who(check)} states it)"
            for check in checks
            if not check.found or not check.wanted
        ),
    )


def _who(check: _Check) -> str:
    if check.found:
        return "only the candidate"
    return "only the baseline" if check.wanted else "neither run"


def _mismatches(check: _Check) -> Iterator[Mismatch]:
    shared = [name for name in check.found if name in check.wanted]
    pairs = [(name, check.found[name], check.wanted[name]) for name in shared]
    if not shared and check.found and check.wanted:
        # Under different names: the first of each.
        pairs = [(check.field, next(iter(check.found.values())), next(iter(check.wanted.values())))]
    for name, found, wanted in pairs:
        if not same_value(found, wanted, device=check.field == "device"):
            yield Mismatch(field=name, found=found, wanted=wanted)


def same_value(one: JsonValue, other: JsonValue, *, device: bool = False) -> bool:
    """Whether two settings are the same, one of which may have been logged as text.

    >>> same_value(2, "2"), same_value("1e-05", 0.00001), same_value(True, 1)
    (True, True, False)
    >>> same_value("cuda:0", "cuda", device=True)
    True
    """
    texts = [_text(value) for value in (one, other)]
    if device:
        texts = [text.partition(":")[0] for text in texts]
    if texts[0] == texts[1]:
        return True
    try:
        return float(texts[0]) == float(texts[1])
    except ValueError:
        return False


def _text(value: JsonValue) -> str:
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True)
    return text.strip().lower()


def flattened(values: Mapping[str, JsonValue], prefix: str = "") -> dict[str, JsonValue]:
    """Nested mappings by dotted names.

    >>> flattened({"data": {"kind": "text", "sha256": "ab"}, "task": "t"})
    {'data.kind': 'text', 'data.sha256': 'ab', 'task': 't'}
    """
    flat: dict[str, JsonValue] = {}
    for key, value in values.items():
        if isinstance(value, dict):
            flat |= flattened(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def _top(key: str) -> str:
    return key.partition(".")[0]
