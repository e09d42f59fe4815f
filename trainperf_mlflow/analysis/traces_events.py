"""The events in the text of a trace, decoded block by block, past what is damaged."""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any

import msgspec

from trainperf_mlflow.analysis.traces_unpacking import CHUNK
from trainperf_mlflow.errors import PlanError
from trainperf_mlflow.messages import shown

# One event, or what stands before the events, is far smaller in every real trace.
MAX_PIECE = 16 << 20
# More is kept of nothing that follows the events.
MAX_TAIL = 1 << 20
# How many closing braces may be mistaken for the end of an event.
MAX_TRIES = 8
MAX_UNREADABLE = 1000

_GIVE = "give a file that export_chrome_trace or tensorboard_trace_handler has written"
_EVENTS_BEGIN = re.compile(rb'"traceEvents"\s*:\s*\[')
_BETWEEN = re.compile(rb"\}\s*,\s*\{")
_EVENTS_END = re.compile(rb"\}\s*\]")
# Written by the profiler where it divides by zero; no JSON.
_NO_NUMBER = re.compile(rb"(:\s*)[+-]?(?:inf|nan|Infinity|NaN)\b", re.IGNORECASE)


_Number = int | float | str | None


class Args(msgspec.Struct, gc=False):
    """What an event says about itself, as far as it is used."""

    correlation: int = -1
    sequence: int = msgspec.field(name="Sequence number", default=-1)
    forward_thread: int = msgspec.field(name="Fwd thread id", default=-1)


class Event(msgspec.Struct, gc=False):
    """An event of the Chrome trace format."""

    ph: str = ""
    cat: str | None = None
    name: _Number = None
    pid: _Number = None
    tid: _Number = None
    ts: float = 0.0
    dur: float = 0.0
    id: _Number = None
    args: Args | None = None


NO_ARGS = Args()
_decode: Callable[[bytes], list[Event]] = msgspec.json.Decoder(list[Event], strict=False).decode


class Surroundings:
    """What stands around the events, found while they are read."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.metadata: dict[str, Any] = {}
        self.problems: list[str] = []
        self.read = 0
        self.unreadable = 0

    def lost_one(self) -> None:
        self.unreadable += 1
        if self.unreadable > MAX_UNREADABLE:
            raise PlanError(
                f"{self.name} is no trace of torch.profiler, or is damaged: more than "
                f"{MAX_UNREADABLE} of its events cannot be read; record it again"
            )


def blocks_of_events(chunks: Iterator[bytes], around: Surroundings) -> Iterator[list[Event]]:
    """The events, some thousand at a time.

    Raises:
        PlanError: the list of events does not begin, or does not end.
    """
    text = _after_head(chunks, around)
    for chunk in chain(chunks, [b""]):
        text += chunk
        while len(text) >= CHUNK or not chunk:
            before = len(text)
            events, text, ended = _next_events(text, around, last=not chunk)
            around.read += len(events)
            yield events
            if ended:
                _read_tail(text, chunks, around)
                return
            if len(text) == before:
                break
        if len(text) > MAX_PIECE:
            raise PlanError(
                f"{around.name} is no trace: one event of more than {MAX_PIECE >> 20} MiB; "
                "give a file that torch.profiler has written"
            )
    if stranger := _no_event(text):
        raise PlanError(
            f"{around.name} is no trace of torch.profiler: its list holds {stranger}, and an "
            f"event is a JSON object; {_GIVE}"
        )
    raise PlanError(
        f"{around.name} is cut off after {around.read} complete events: "
        "copy it again in full, or record it again"
    )


def _after_head(chunks: Iterator[bytes], around: Surroundings) -> bytes:
    """Reads up to the list of events; returns what has been read of the list already."""
    head = b""
    for chunk in chunks:
        head += chunk
        if head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] == b"[":  # a list alone is a trace, too
            return head[head.index(b"[") + 1 :]
        if found := _EVENTS_BEGIN.search(head):
            around.metadata |= _object(head[: found.start()].rstrip(b", \t\r\n") + b"}") or {}
            return head[found.end() :]
        if len(head) > MAX_PIECE:
            break
    if not head.strip():
        raise PlanError(f"{around.name} is empty: export the trace again")
    raise PlanError(
        f"{around.name} is no trace of torch.profiler: it has no list named traceEvents; {_GIVE}"
    )


def _no_event(text: bytes) -> str | None:
    """What stands in a list that does end, where an event belongs; None where it is cut off."""
    try:
        found, _ = json.JSONDecoder().raw_decode("[" + text.decode(errors="replace"))
    except (ValueError, RecursionError):
        return None
    return next((shown(item) for item in found if not isinstance(item, dict)), None)


def _next_events(
    text: bytes, around: Surroundings, *, last: bool
) -> tuple[list[Event], bytes, bool]:
    """Events that are complete in a text, the rest, and whether the list ended there."""
    read = _readable_start(text)
    if read is None:
        text = _NO_NUMBER.sub(rb"\1null", text)
        read = _readable_start(text)
    if read is None:
        read = _around_unreadable(text, around, last=last)
    return read


def _readable_start(text: bytes) -> tuple[list[Event], bytes, bool] | None:
    """The same where all events of the text can be read.

    Whether a brace ends an event or stands inside of one, only decoding tells.
    """
    for end, begin in _last_boundaries(text):
        events = _decoded(text[:end])
        if events is not None:
            return events, text[begin:], False
    for found in _EVENTS_END.finditer(text):
        events = _decoded(text[: found.start() + 1])
        if events is not None:
            return events, text[found.end() :], True
    if text.lstrip()[:1] == b"]":
        return [], text.lstrip()[1:], True
    return None


def _last_boundaries(text: bytes) -> Iterator[tuple[int, int]]:
    """Where an event seems to end and the next one to begin, the last ones first."""
    brace, tries = len(text), 0
    while tries < MAX_TRIES and (brace := text.rfind(b"}", 0, brace)) >= 0:
        if found := _BETWEEN.match(text, brace):
            tries += 1
            yield brace + 1, found.end() - 1


def _around_unreadable(
    text: bytes, around: Surroundings, *, last: bool
) -> tuple[list[Event], bytes, bool]:
    """The same where an event cannot be read: the events before it, and the rest after it."""
    bounds = [(found.start() + 1, found.end() - 1) for found in _BETWEEN.finditer(text)]
    good = bisect_left(bounds, True, key=lambda bound: _decoded(text[: bound[0]]) is None)
    if good:
        end, begin = bounds[good - 1]
        return _decoded(text[:end]) or [], text[begin:], False
    for end, begin in bounds[:MAX_TRIES]:  # braces in it may look like the end of it
        if (events := _decoded(text[:end])) is not None:
            return events, text[begin:], False
    if bounds:
        around.lost_one()
        return [], text[bounds[0][1] :], False
    if last and (found := _EVENTS_END.search(text)):
        around.lost_one()
        return [], text[found.end() :], True
    return [], text, False


def _decoded(text: bytes) -> list[Event] | None:
    try:
        return _decode(b"[" + text + b"]")
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


def _object(text: bytes) -> dict[str, Any] | None:
    try:
        found = msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    return found if isinstance(found, dict) else None


def _read_tail(text: bytes, chunks: Iterator[bytes], around: Surroundings) -> None:
    """What follows the events: more about the trace, or garbage, which is told."""
    size = len(text)
    for chunk in chunks:
        size += len(chunk)
        if len(text) < MAX_TAIL:
            text += chunk
    text = text.strip()
    if not text:
        return
    found = _object(b"{" + text.lstrip(b",")) if size <= MAX_TAIL else None
    if found is None:
        around.problems.append(
            f"what follows the events is no JSON ({size} bytes): it was left out"
        )
    else:
        around.metadata |= found
