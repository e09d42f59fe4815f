"""What was trained, how large, and on what: one line."""

from __future__ import annotations

from collections.abc import Iterator

from trainperf_mlflow.reporting.report.material import Material, listed, name
from trainperf_mlflow.reporting.report.texts import Words

_SETTINGS = ("batch_size", "seq_len")


def sizes(material: Material, words: Words) -> str:
    """Workload, sizes and device, as far as the study has them."""
    workload = material.study.workload
    found = [words(f"size.{key}", value=value) for key, value in _sizes(material)]
    shared = {"workload": name(workload.name), "device": _device(material)}
    if not found:
        return words("sizes.none", **shared)
    return words("sizes", sizes=words("comma").join(found), **shared)


def _sizes(material: Material) -> Iterator[tuple[str, str]]:
    models = _settings(material, "model")
    if models:
        yield "model", models
    parameters = material.study.workload.facts.get("parameters")
    if isinstance(parameters, int):
        yield "parameters", _count(parameters)
    for key in _SETTINGS:
        if values := _settings(material, key):
            yield key, values


def _settings(material: Material, key: str) -> str:
    """A setting's value; where variants differ in it, all of them."""
    configs = [variant.config for variant in material.study.variants]
    return listed(dict.fromkeys(str(config[key]) for config in configs if key in config))


def _count(parameters: int) -> str:
    """
    >>> _count(1510016), _count(494_032_768), _count(7_600_000_000), _count(850)
    ('1.51 M', '494 M', '7.6 B', '850')
    """
    for unit, size in (("B", 1e9), ("M", 1e6)):
        if parameters >= size:
            return f"{parameters / size:.3g} {unit}"
    return str(parameters)


def _device(material: Material) -> str:
    workload = material.study.workload
    identity = workload.identity.get("device")
    known = identity.get("name") if isinstance(identity, dict) else None
    device = name(workload.device)
    return f"{device} ({name(known)})" if isinstance(known, str) and known != device else device
