"""What is wrong with a value, and what to do about it, in words for a person."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from pathlib import PurePath
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

_MAX_SHOWN = 80
_MAX_PROBLEMS = 10

# pydantic's error types, as the remedy that a person needs; {names} are pydantic's context.
_REMEDIES = {
    "int_type": "give a whole number",
    "int_from_float": "give a whole number",
    "float_type": "give a number",
    "finite_number": "give a finite number",
    "bool_type": "give true or false",
    "string_type": "give a text",
    "model_type": "give a mapping of keys to values",
    "dict_type": "give a mapping of keys to values",
    "tuple_type": "give a list",
    "invalid-json-value": "give a text, number, true, false, null, list or mapping",
    "greater_than": "give more than {gt}",
    "greater_than_equal": "give {ge} or more",
    "less_than": "give less than {lt}",
    "less_than_equal": "give {le} or less",
    "string_too_long": "give at most {max_length} characters",
    "string_too_short": "give at least {min_length} character(s), or leave the key out",
    "too_long": "give at most {max_length} of them",
}


def encodable(text: str) -> str:
    """Text that can be written as UTF-8: undecodable bytes of a file name or an error as escapes.

    >>> len(encodable("a" + chr(0xDCFF))), encodable("Grüße")
    (7, 'Grüße')
    """
    return text.encode("utf-8", "backslashreplace").decode()


def shown(value: Any) -> str:
    """A value as its author wrote it, cut where it is long; of a path the end stays, its name.

    >>> shown("abc"), len(shown("a" * 10_000)), shown(PurePath("a" * 100, "b.json"))[-8:]
    ("'abc'", 80, "/b.json'")
    """
    if isinstance(value, PurePath):
        path = str(value)
        return repr(path if len(path) <= _MAX_SHOWN else "..." + path[3 - _MAX_SHOWN :])
    # Never the repr of a whole document: an author's mistake may be megabytes long.
    text = repr(value[:_MAX_SHOWN] if isinstance(value, str | bytes) else value)
    cut = len(text) > _MAX_SHOWN or (isinstance(value, str | bytes) and len(value) > _MAX_SHOWN)
    return text[: _MAX_SHOWN - 3] + "..." if cut else text


def plain(text: str) -> str:
    """One line without control, bidirectional or other invisible characters, shown as escapes.

    >>> plain("a\\x1b[31mb\\n\\u202ec")
    'a\\\\x1b[31mb\\\\n\\\\u202ec'
    """
    return "".join(
        character if character.isprintable() else ascii(character)[1:-1] for character in text
    )


def nearest(word: str, known: Iterable[str]) -> str:
    """A hint at the nearest known word, or nothing.

    >>> nearest("chekpoint", ["checkpoint", "offload"])
    " (did you mean 'checkpoint'?)"
    """
    close = difflib.get_close_matches(word[:_MAX_SHOWN], list(known), n=1, cutoff=0.5)
    return f" (did you mean {close[0]!r}?)" if close else ""


def explain(error: ValidationError, model: type[BaseModel]) -> str:
    """All problems of a validation in one line, each with the key, the value and the remedy."""
    problems = list(dict.fromkeys(_problem(item, model) for item in error.errors()))
    more = len(problems) - _MAX_PROBLEMS
    return "; ".join(problems[:_MAX_PROBLEMS]) + (f"; and {more} more" if more > 0 else "")


def _problem(item: Any, model: type[BaseModel]) -> str:
    key = ".".join(str(part)[:_MAX_SHOWN] for part in item["loc"])
    kind, context = item["type"], item.get("ctx", {})
    if kind == "extra_forbidden":
        known = _model_at(model, item["loc"]).model_fields
        hint = nearest(str(item["loc"][-1]), known)
        return f"unknown key {key!r}{hint}; known: {', '.join(known)}"
    if kind == "value_error":
        cause = context["error"]
        message = explain(cause, model) if isinstance(cause, ValidationError) else str(cause)
        return f"{key}: {message}" if key else message
    if kind == "missing":
        return f"{key} is missing; give it"
    return f"{key} = {shown(item.get('input'))}: {_remedy(kind, context, item)}"


def _remedy(kind: str, context: dict[str, Any], item: Any) -> str:
    if kind == "literal_error":
        words = re.findall(r"'([^']*)'", context["expected"])
        return f"choose one of {', '.join(words)}{nearest(str(item.get('input')), words)}"
    if kind in _REMEDIES:
        return _REMEDIES[kind].format(**context)
    message: str = item["msg"]
    return message[:1].lower() + message[1:]


def _model_at(model: type[BaseModel], loc: tuple[int | str, ...]) -> type[BaseModel]:
    """The model that a key belongs to, below lists and mappings."""
    for part in loc[:-1]:
        field = model.model_fields.get(part) if isinstance(part, str) else None
        if field is not None:
            kinds = (field.annotation, *get_args(field.annotation))
            nested = [k for k in kinds if isinstance(k, type) and issubclass(k, BaseModel)]
            model = nested[0] if nested else model
    return model
