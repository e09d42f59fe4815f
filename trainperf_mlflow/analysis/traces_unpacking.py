"""The text of a plain or gzipped file in chunks, without trusting the file."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from trainperf_mlflow.errors import PlanError

CHUNK = 4 << 20
MAX_BYTES = 2 << 30
# Real traces shrink 10 to 40 times; deflate can at most 1030 times.
MAX_RATIO = 250
RATIO_FROM = 64 << 20

_GZIP = b"\x1f\x8b"


def unpacked(path: Path) -> Iterator[bytes]:
    """The file's text, at most CHUNK bytes at a time.

    Raises:
        PlanError: no such file, a damaged archive, or too much text.
    """
    try:
        with path.open("rb") as file:
            packed = file.read(2) == _GZIP
            file.seek(0)
            size = path.stat().st_size
            total = 0
            for chunk in _gunzipped(file, path.name) if packed else _plain(file):
                total += len(chunk)
                _check_size(path.name, total, size)
                yield chunk
    except OSError as error:
        raise PlanError(f"cannot read {path}: {error.strerror}; give a trace's path") from None


def _check_size(name: str, total: int, packed: int) -> None:
    if total > RATIO_FROM and total > MAX_RATIO * packed:
        raise PlanError(
            f"{name} expands more than {MAX_RATIO} times, as no trace does: refused; "
            "unpack it yourself if you trust it"
        )
    if total > MAX_BYTES:
        raise PlanError(
            f"{name} holds more than {MAX_BYTES >> 30} GiB of text: record fewer active steps"
        )


def _plain(file: BinaryIO) -> Iterator[bytes]:
    while chunk := file.read(CHUNK):
        yield chunk


def _gunzipped(file: BinaryIO, name: str) -> Iterator[bytes]:
    """All members of the archive; what follows the last one is left out, as gzip does."""
    packed = b""
    first = True
    while packed := packed or file.read(CHUNK):
        if not first and not packed.startswith(_GZIP):
            return
        member = zlib.decompressobj(wbits=31)
        while not member.eof:
            try:
                chunk = member.decompress(packed, CHUNK)
            except zlib.error as error:
                raise PlanError(
                    f"{name} is damaged: {error}; copy it again, or record it again"
                ) from None
            if chunk:
                yield chunk
            packed = member.unconsumed_tail
            if not packed and not member.eof and not (packed := file.read(CHUNK)):
                raise PlanError(f"{name} is cut off: copy it again in full, or record it again")
        packed = member.unused_data
        first = False
