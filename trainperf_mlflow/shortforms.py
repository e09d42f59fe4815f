"""How a plan is written: K=V, 15m, and YAML that reads a value as the command line does."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import yaml

from trainperf_mlflow.errors import PlanError
from trainperf_mlflow.messages import shown
from trainperf_mlflow.results.record import Setting

MAX_PLAN_BYTES = 1_000_000


def parse_settings(text: str) -> dict[str, Setting]:
    """K=V,K=V as a mapping; a comma separates only where another K= follows.

    Raises:
        ValueError: a part is not of that form, or a key is given twice.

    >>> parse_settings("batch_size=4,compile=off,learning_rate=1e-5")
    {'batch_size': 4, 'compile': 'off', 'learning_rate': 1e-05}
    """
    settings: dict[str, Setting] = {}
    for part in re.split(r",(?=\s*[A-Za-z_][\w.]*\s*=)", text):
        key, separator, value = part.partition("=")
        key = key.strip()
        if not separator or not key:
            raise ValueError(f"{shown(part.strip())} is not of the form KEY=VALUE")
        if key in settings:
            raise ValueError(f"{shown(key)} is given twice; give it once")
        settings[key] = parse_value(value.strip())
    return settings


def parse_value(text: str) -> Setting:
    """A JSON value where it is one, else the text itself.

    >>> [parse_value(text) for text in ("3", "1e-3", "true", "null", "fp32")]
    [3, 0.001, True, None, 'fp32']
    """
    try:
        value: Setting = json.loads(text, parse_constant=lambda name: name)
    except (RecursionError, ValueError):
        return text
    return value


_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "": 1.0}


def parse_seconds(text: str) -> float:
    """A duration as 90, 90s, 15m or 2h, in seconds.

    Raises:
        ValueError: it is none.

    >>> parse_seconds("15m")
    900.0
    """
    match = re.fullmatch(r"\s*(\d{1,12}(?:\.\d{1,12})?)\s*([smh]?)\s*", text)
    if not match:
        raise ValueError(f"{shown(text)} is no duration; write 90s, 15m or 2h")
    return float(match[1]) * _UNITS[match[2]]


def read_plan(path: Path) -> dict[str, Any]:
    """The mapping in a YAML plan file, not yet validated.

    Raises:
        PlanError: the file is missing, too large, no YAML, or no mapping.
    """
    name = shown(Path(path))
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_PLAN_BYTES + 1)
    except (OSError, ValueError) as error:
        cause = error.strerror if isinstance(error, OSError) else str(error)
        raise PlanError(f"plan {name} cannot be read: {cause}") from None
    if len(raw) > MAX_PLAN_BYTES:
        raise PlanError(f"plan {name} is larger than {MAX_PLAN_BYTES} bytes; is it a plan?")
    try:
        data = yaml.load(raw.decode("utf-8-sig"), Loader=_PlanLoader)  # noqa: S506 - a SafeLoader
    except UnicodeDecodeError:
        raise PlanError(f"plan {name} is not UTF-8 text; save it as UTF-8") from None
    except RecursionError:
        raise PlanError(f"plan {name} is nested too deeply") from None
    except (yaml.YAMLError, ValueError) as error:
        raise PlanError(f"plan {name} is not valid YAML: {_where(error)}") from None
    if not isinstance(data, dict):
        held = "nothing" if data is None else shown(data)
        raise PlanError(
            f"plan {name} must be a mapping of keys to values (workload: quick, ...), "
            f"but holds {held}"
        )
    return data


def _where(error: Exception) -> str:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        mark = error.problem_mark
        return f"line {mark.line + 1}, column {mark.column + 1}: {error.problem}"
    return " ".join(str(error).split())


class _PlanLoader(yaml.SafeLoader):
    """YAML 1.2's core schema, so that a file and a flag give the same value.

    PyYAML reads YAML 1.1, where ``off`` is false, ``1e-5`` a text, ``010``
    eight and ``1:30`` ninety. Two more things must not pass silently: a
    repeated key, and an alias, which can stand for gigabytes.
    """

    yaml_implicit_resolvers: ClassVar[dict[str, Any]] = {}  # type: ignore[misc]
    yaml_constructors: ClassVar[dict[str | None, Any]] = {}

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            event = self.get_event()  # type: ignore[no-untyped-call]
            raise yaml.MarkedYAMLError(
                problem="aliases (*name) are not read; write the value out",
                problem_mark=event.start_mark,
            )
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            problem = None
            if not isinstance(key, str):
                problem = f"key {shown(key)} is not a text; put it in quotes"
            elif key in seen:
                problem = f"key {shown(key)} is given twice; give it once"
            if problem:
                raise yaml.MarkedYAMLError(problem=problem, problem_mark=key_node.start_mark)
            seen.add(key)
        return super().construct_mapping(node, deep=deep)


def _unreadable(loader: _PlanLoader, node: yaml.Node) -> None:
    raise yaml.MarkedYAMLError(
        problem=f"the tag {shown(node.tag)} is not read; write a plain value",
        problem_mark=node.start_mark,
    )


_TAG = "tag:yaml.org,2002:"
for _name, _pattern, _first in (
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("int", r"[-+]?[0-9]+", "-+0123456789"),
    (
        "float",
        r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
        "-+0123456789.",
    ),
):
    _PlanLoader.add_implicit_resolver(_TAG + _name, re.compile(f"(?:{_pattern})$"), list(_first))
_CONSTRUCTORS: dict[str, Callable[[Any, Any], Any]] = {
    "bool": lambda loader, node: loader.construct_scalar(node).lower() == "true",
    "null": lambda loader, node: None,
    "int": lambda loader, node: int(loader.construct_scalar(node)),
    "float": yaml.SafeLoader.construct_yaml_float,
    "str": yaml.SafeLoader.construct_yaml_str,
    "seq": yaml.SafeLoader.construct_yaml_seq,
    "map": yaml.SafeLoader.construct_yaml_map,
}
for _name, _construct in _CONSTRUCTORS.items():
    _PlanLoader.add_constructor(_TAG + _name, _construct)
_PlanLoader.yaml_constructors[None] = _unreadable
