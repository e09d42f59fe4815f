"""From the flags of ``trainperf measure`` to a plan: the same object that a file gives."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from trainperf_mlflow.errors import PlanError
from trainperf_mlflow.plan import Plan, make_plan
from trainperf_mlflow.shortforms import parse_seconds, parse_settings, read_plan

LIST_SEPARATOR = ";"  # one parameter of the MLproject is one string
PLAIN = (
    "study", "task", "workload", "model", "model_source", "device", "isolation", "goal",
    "hypothesis", "policy", "label",
)  # fmt: skip
NUMBERS = ("repeats", "blocks", "warmup", "iters", "seed", "convergence_steps")


def plan_from_flags(
    plan_file: str | None,
    flags: Mapping[str, Any],
    default_candidates: str | None = None,
    *,
    baseline_alone: bool = False,
) -> Plan:
    """Lay the flags over the plan file, where there is one; an empty flag is unset.

    ``baseline_alone``: where no candidate is named, the baseline alone is meant (a probe).

    Raises:
        PlanError: a value cannot be read, the plan is invalid, or nothing is to be compared.
    """
    data: dict[str, Any] = read_plan(Path(plan_file)) if plan_file else {}
    given = {name: value for name, value in flags.items() if value not in (None, "", ())}
    for name in PLAIN:
        if name in given:
            data[name] = given[name]
    for name in NUMBERS:
        if name in given:
            data[name] = _number(name, given[name])
    if "ladder" in given:
        data["ladder"] = _ladder(given["ladder"])
    if "max_time" in given:
        data["max_time"] = _read("max-time", parse_seconds, given["max_time"])
    if "probe" in given:
        data["probe"] = flag("probe", given["probe"])
    for name, parts in (
        ("set", given.get("settings", ())),
        ("baseline", (given.get("baseline", ""),)),
        ("threshold", given.get("thresholds", ())),
    ):
        texts = list(_split(parts))
        if texts and not isinstance(data.get(name, {}), Mapping):
            raise PlanError(f"plan {plan_file!r}: {name} must be a mapping, not {data[name]!r}")
        for text in texts:
            data[name] = {**data.get(name, {}), **_read(name, parse_settings, text)}
    candidates = list(_split(given.get("candidate", ())))
    if candidates:
        data["candidates"] = candidates
    elif not data.get("candidates") and not data.get("probe"):
        data["candidates"] = list(_split((default_candidates or "",)))
        if not data["candidates"] and baseline_alone:
            data["probe"] = True
        elif not data["candidates"]:
            raise PlanError(
                "nothing to compare: name a change with --candidate (e.g. --candidate bf16), "
                "or measure the baseline alone with --probe"
            )
    return make_plan(data, where="measure" if not plan_file else f"plan {plan_file!r}")


def memory_mb(name: str, text: str | None) -> float | None:
    """A memory in MiB; None where the flag is unset.

    Raises:
        PlanError: it is no positive number.
    """
    if not text:
        return None
    with suppress(ValueError):
        value = float(text)
        if 0 < value < float("inf"):
            return value
    raise PlanError(f"--{name}: {text!r} is no memory; give a positive number of MiB, e.g. 12227")


def pairs(name: str, texts: Iterable[str]) -> dict[str, str]:
    """NAME=VALUE texts as a mapping of texts.

    Raises:
        PlanError: one is no such pair, or a name is given twice.
    """
    found: dict[str, str] = {}
    for text in _split(texts):
        key, separator, value = (part.strip() for part in text.partition("="))
        if not key or not value or not separator:
            raise PlanError(f"--{name}: {text!r} is not of the form NAME=VALUE")
        if key in found:
            raise PlanError(f"--{name}: {key!r} is given twice; give it once")
        found[key] = value
    return found


def listed(texts: Iterable[str]) -> list[str]:
    """All texts, of which one may hold several."""
    return list(_split(texts))


def settings(name: str, texts: Iterable[str]) -> dict[str, Any]:
    """K=V texts as a mapping of values.

    Raises:
        PlanError: one cannot be read.
    """
    found: dict[str, Any] = {}
    for text in _split(texts):
        found |= _read(name, parse_settings, text)
    return found


def _ladder(text: str) -> list[Any]:
    name, separator, lengths = text.partition("=")
    if name.strip() != "seq_len" or not separator:
        raise PlanError(
            f"--ladder: {text!r} is not of the form seq_len=N,N,..., e.g. seq_len=64,128,256"
        )
    return [_number("ladder", part.strip()) for part in lengths.split(",")]


def _split(texts: Iterable[str]) -> Iterable[str]:
    for text in texts:
        yield from (part.strip() for part in text.split(LIST_SEPARATOR) if part.strip())


def _number(name: str, text: str) -> int | str:
    """An integer where it is one; the words (auto) are the plan's to judge."""
    try:
        return int(text)
    except ValueError:
        return text


def flag(name: str, text: str) -> bool:
    words = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
    if text.lower() not in words:
        raise PlanError(f"--{name}: {text!r} is neither true nor false")
    return words[text.lower()]


def _read(name: str, parse: Callable[[str], Any], text: str) -> Any:
    try:
        return parse(text)
    except ValueError as error:
        raise PlanError(f"--{name}: {error}") from None
