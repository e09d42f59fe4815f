"""A variant's whole configuration, checked, and the one variable by which two of them differ."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from pydantic import ValidationError

from trainperf_mlflow.messages import explain, shown
from trainperf_mlflow.results.record import Setting
from trainperf_mlflow.workloads.config import CausalLMConfig
from trainperf_mlflow.workloads.strategies import strategy_of

MAX_SETTING_CHARS = 2000


def keepable(config: dict[str, Setting], name: str) -> dict[str, Setting]:
    """The configuration, once every key and value of it can be kept and compared.

    Raises:
        ValueError: a key is no plain word, or a value is not finite, not plain or too long.
    """
    for key, value in config.items():
        if not re.fullmatch(r"[A-Za-z_][\w.]{0,99}", key):
            raise ValueError(f"{name}: {shown(key)} is not a usable key; use letters, digits, _")
        try:
            text = _canonical(value)
            json.dumps(value, ensure_ascii=False).encode("utf-8")
        except (ValueError, RecursionError):
            raise ValueError(
                f"{name}: {key} = {shown(value)} cannot be kept; "
                "give a finite, plain value in UTF-8"
            ) from None
        if len(text) > MAX_SETTING_CHARS:
            raise ValueError(f"{name}: the value of {key} is over {MAX_SETTING_CHARS} characters")
    return config


def complete_built_in(config: dict[str, Setting], name: str) -> dict[str, Setting]:
    """The configuration of the built-in task with the defaults of what it leaves out.

    Raises:
        ValueError: a setting is unknown or invalid.
    """
    try:
        return CausalLMConfig.model_validate(keepable(config, name)).model_dump()
    except ValidationError as error:
        raise ValueError(f"{name}: {explain(error, CausalLMConfig)}") from None


def changed_settings(
    base: Mapping[str, Setting], config: Mapping[str, Setting]
) -> dict[str, Setting]:
    """What the second configuration has otherwise than the first."""
    return {
        key: value
        for key, value in config.items()
        if key not in base or _canonical(base[key]) != _canonical(value)
    }


def changed_variable(name: str, changed: Mapping[str, Setting]) -> str:
    """The variable that a candidate changes: a setting, or a strategy that stands for several.

    Raises:
        ValueError: the candidate changes nothing, or several that no strategy stands for.
    """
    if not changed:
        raise ValueError(
            f"candidate {name!r} does not differ from the baseline; change one setting"
        )
    if len(changed) == 1:
        return next(iter(changed))
    strategy = strategy_of(changed)
    if strategy is None:
        raise ValueError(
            f"candidate {name!r} changes {len(changed)} variables ({', '.join(sorted(changed))}), "
            "so no difference could be attributed to one of them; change one, "
            "and put what both share into set or baseline"
        )
    return strategy


def _canonical(value: Setting) -> str:
    """Equal only for the same value of the same type: 1 is neither true nor 1.0."""
    return json.dumps(value, sort_keys=True, allow_nan=False)
