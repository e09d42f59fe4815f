"""Values from reports and callers: only finite numbers and true flags are ever compared."""

from __future__ import annotations

import math
from collections.abc import Mapping
from numbers import Real
from typing import Any, TypeGuard

_MAX_SHOWN = 80


def is_number(value: Any) -> TypeGuard[float]:
    """Whether this is a finite number; True and False are none.

    >>> is_number(3), is_number(True), is_number("3"), is_number(float("nan")), is_number(10**400)
    (True, False, False, False, False)
    """
    if isinstance(value, bool) or not isinstance(value, Real):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer beyond the largest float
        return False


def number(values: Mapping[str, Any], key: str, where: str = "") -> float:
    """A field's value.

    Raises:
        ValueError: it is missing or no finite number.
    """
    value = _field(values, key, where)
    if not is_number(value):
        raise ValueError(f"{_at(where)}{key} is {_shown(value)}; give a finite number")
    return float(value)


def optional_number(values: Mapping[str, Any], key: str, where: str = "") -> float | None:
    """The same, but None where it says None; a field that is missing is still refused."""
    return None if _field(values, key, where) is None else number(values, key, where)


def limit(values: Mapping[str, Any], key: str, where: str = "") -> float:
    """A threshold: a finite number, 0 or more.

    Raises:
        ValueError: it is something else.
    """
    value = number(values, key, where)
    if value < 0:
        raise ValueError(f"{_at(where)}{key} is {value:g}; give a finite number, 0 or more")
    return value


def flag(values: Mapping[str, Any], key: str, where: str = "") -> bool:
    """A field that is True or False.

    Raises:
        ValueError: it is missing or something else.
    """
    value = _field(values, key, where)
    if not isinstance(value, bool):
        raise ValueError(f"{_at(where)}{key} is {_shown(value)}; give True or False")
    return value


def mapping(values: Mapping[str, Any], key: str, where: str = "") -> Mapping[str, Any]:
    """A field that holds fields.

    Raises:
        ValueError: it is missing or something else.
    """
    value = _field(values, key, where)
    if not isinstance(value, Mapping):
        raise ValueError(f"{_at(where)}{key} is {_shown(value)}; give a mapping of names to values")
    return value


def _field(values: Mapping[str, Any], key: str, where: str) -> Any:
    if key not in values:
        held = ", ".join(map(str, values)) or "nothing"
        raise ValueError(f"{_at(where)}{key} is missing; it holds {held[:_MAX_SHOWN]}")
    return values[key]


def _at(where: str) -> str:
    return f"{where}: " if where else ""


def _shown(value: Any) -> str:
    try:
        text = repr(value)
    except ValueError:  # an integer with more digits than Python writes
        text = f"an integer of {value.bit_length()} bits"
    return text if len(text) <= _MAX_SHOWN else text[: _MAX_SHOWN - 3] + "..."
