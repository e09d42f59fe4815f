"""JSON from somebody else: read strictly, or refused with the file and the field's path.

Python's own reader keeps the last of two equal keys, takes NaN for a number and dies
on deep nesting; a hash or a decision on such a file would mean something else elsewhere.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainperf_mlflow.errors import PlanError
from trainperf_mlflow.messages import shown

MAX_BYTES = 32 * 2**20
MAX_DEPTH = 64
BOM = "\ufeff"
REPORT = "a published report"
_CHUNK = 2**20
_MAX_PATH = 200
_STRUCTURE = re.compile(rb'"(?:[^"\\]|\\.)*+"|[\[{]|[\]}]', re.DOTALL)

Json = dict[str, Any]
Place = tuple[str | int, ...]


@dataclass(frozen=True)
class Document:
    """A JSON object as a file holds it."""

    name: str  # the file's, for messages
    text: str  # encodes to the file's very bytes
    sha256: str  # of the bytes
    content: Json


class _Twice(dict[str, Any]):
    """An object with a key that it has twice."""

    key = ""


def read_document(path: Path, *, max_bytes: int = MAX_BYTES, wanted: str = REPORT) -> Document:
    """A file's JSON object.

    Args:
        wanted: what the file should be, for the messages.

    Raises:
        PlanError: the file is missing, unreadable or larger than ``max_bytes``, is empty, not
            UTF-8, cut off or no JSON, nested deeper than 64, no object, or holds a key
            twice, a NaN, an infinite number or text that no encoding has.
    """
    data = _read(path, max_bytes, wanted)
    return parse_document(data, str(path), wanted)


def parse_document(data: bytes, name: str, wanted: str = REPORT) -> Document:
    """The same of bytes that were read already; ``name`` is for the messages."""
    where = shown(Path(name))
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise PlanError(f"{where} is no UTF-8 (byte {error.start}); save it as UTF-8") from None
    _refuse_depth(data, name)
    if not text.removeprefix(BOM).strip():
        raise PlanError(f"{where} is empty; give {wanted}")
    try:
        content = json.loads(text.removeprefix(BOM), object_pairs_hook=_object)
    except json.JSONDecodeError as error:
        what, remedy = _wrong(error, text, wanted)
        raise PlanError(
            f"{where} {what}, line {error.lineno} column {error.colno}; {remedy}"
        ) from None
    except ValueError:  # Python reads no integer of more than 4300 digits
        raise PlanError(f"{where} holds an integer of thousands of digits") from None
    if not isinstance(content, dict):
        raise PlanError(f"{where} holds {_kind(content)}, no JSON object; give {wanted}")
    for place, problem in _problems(content):
        raise PlanError(f"{where}: {path_of(place)}: {problem}")
    return Document(name, text, hashlib.sha256(data).hexdigest(), content)


def _wrong(error: json.JSONDecodeError, text: str, wanted: str) -> tuple[str, str]:
    """What is wrong with a text that is no JSON, and what to do about it."""
    begun = text.removeprefix(BOM).lstrip()
    if error.msg == "Extra data":
        return "goes on after its JSON ends", f"leave one JSON object in it: give {wanted}"
    if begun[:1] not in "{[":
        return f"is no JSON (it begins with {shown(begun[:20])})", f"give {wanted}"
    if error.pos >= len(text.removeprefix(BOM).rstrip()) or error.msg.startswith("Unterminated"):
        return "ends too early", f"get {wanted} again, whole"
    return f"is no JSON ({error.msg})", "correct it there, or get the file again"


def _kind(content: object) -> str:
    kinds = {list: "a list", str: "a text", bool: "a truth value", int: "a number"}
    kind = "nothing but null" if content is None else kinds.get(type(content), "a number")
    return kind if content is None else f"{kind} ({shown(content)})"


def path_of(place: Place) -> str:
    """A field's path as people write it.

    >>> path_of(("candidates", 2, "peak_memory_mb"))
    'candidates[2].peak_memory_mb'
    """
    parts = [f"[{part}]" if isinstance(part, int) else f".{part}" for part in place]
    path = "".join(parts).removeprefix(".")
    return path if len(path) <= _MAX_PATH else path[:_MAX_PATH] + "..."


def _read(path: Path, max_bytes: int, wanted: str) -> bytes:
    # Both checks: a pipe or a device has no size, and a file may grow.
    found = bytearray()
    try:
        size = path.stat().st_size
        if size <= max_bytes:
            with path.open("rb") as file:
                while len(found) <= max_bytes and (chunk := file.read(_CHUNK)):
                    found += chunk
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        why = getattr(error, "strerror", None) or str(error)
        raise PlanError(
            f"{shown(Path(path))} cannot be read ({why}); give the path of {wanted}"
        ) from None
    if max(size, len(found)) > max_bytes:
        raise PlanError(
            f"{shown(Path(path))} has more than {max_bytes // 2**20} MiB; "
            "a report has far less, so give the report itself, not a trace or a log"
        )
    return bytes(found)


def _refuse_depth(data: bytes, name: str) -> None:
    """Before parsing: Python's reader recurses, and its limit depends on who calls."""
    depth = 0
    for match in _STRUCTURE.finditer(data):
        mark = match[0]
        if mark in (b"[", b"{"):
            depth += 1
        elif mark in (b"]", b"}"):
            depth -= 1
        if depth > MAX_DEPTH:
            raise PlanError(
                f"{shown(Path(name))} is nested deeper than {MAX_DEPTH} (byte {match.start()}); "
                "no report is, so give another file"
            )


def _object(pairs: list[tuple[str, Any]]) -> Json:
    made = dict(pairs)
    if len(made) == len(pairs):
        return made
    seen: set[str] = set()
    twice = _Twice(made)
    twice.key = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
    return twice


def _problems(value: Any, place: Place = ()) -> Iterator[tuple[Place, str]]:
    """Each field that is not what JSON allows, where it stands."""
    if isinstance(value, dict):
        if isinstance(value, _Twice):
            yield (*place, value.key), "is given twice; remove one of them"
        for key, item in value.items():
            if not _encodable(key):
                yield place, f"the key {shown(key)} is no text that can be written as UTF-8"
            yield from _problems(item, (*place, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _problems(item, (*place, index))
    elif isinstance(value, str) and not _encodable(value):
        yield place, f"{shown(value)} is no text that can be written as UTF-8"
    elif isinstance(value, float) and not math.isfinite(value):
        word = "NaN" if math.isnan(value) else "an infinite value"
        yield place, f"{word} is no finite number; leave the field out where nothing was measured"
    elif isinstance(value, int) and abs(value) > 10**300:
        yield place, f"an integer of {value.bit_length()} bits is no usable number"


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
