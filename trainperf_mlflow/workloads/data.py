"""What the built-in task reads: one fixed random batch, or real text in fixed windows.

All that is drawn comes from the study's seed, so that every repeat of every
variant sees the same batches in the same order.
"""

from __future__ import annotations

import codecs
import hashlib
import json
import os
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler

from trainperf_mlflow.errors import PlanError

RANDOM = "random"
STDLIB = "stdlib"
SUFFIXES = (".txt", ".jsonl")
# Enough for some thousand windows, and read in some ten milliseconds.
STDLIB_CHARS = 1_500_000
# Longer files are read up to here: a study of steps never sees more.
MAX_TEXT_BYTES = 64 * 2**20
BYTE_VOCAB = 256
# Rows of the validation batch. Random tokens say nothing of quality: two rows are enough of them.
TEXT_VALIDATION_ROWS = 8
RANDOM_VALIDATION_ROWS = 2
LEFT_OUT = frozenset(
    {"site-packages", "dist-packages", "test", "tests", "idle_test", "__pycache__"}
)


class Tokenizer(Protocol):
    """Text to token ids."""

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]: ...


@dataclass(frozen=True)
class Text:
    """Real text as tokens, split into training windows and a held-out tail."""

    windows: Tensor  # [windows, seq_len], not yet int64
    validation: Tensor  # [TEXT_VALIDATION_ROWS, seq_len]


# --- random ------------------------------------------------------------------------------------


def random_batch(vocab_size: int, batch_size: int, seq_len: int, seed: int) -> Tensor:
    """The source's fixed batch: int64 token ids [batch_size, seq_len] on the CPU."""
    generator = torch.Generator(device="cpu").manual_seed(seed)
    return torch.randint(0, vocab_size, (batch_size, seq_len), generator=generator)


def random_validation(vocab_size: int, seq_len: int, seed: int) -> Tensor:
    """A second seeded batch, whose size does not depend on the first one's."""
    return random_batch(vocab_size, RANDOM_VALIDATION_ROWS, seq_len, seed + 1)


# --- text --------------------------------------------------------------------------------------


def read_text(source: str) -> str:
    """The text of ``stdlib``, of a .txt file, or of the field "text" of a .jsonl file.

    Raises:
        PlanError: the file is missing, a folder, empty, binary, or broken.
    """
    if source == STDLIB:
        return _standard_library()
    path = Path(source).expanduser()
    if path.suffix.lower() not in SUFFIXES:
        raise PlanError(
            f"unknown data {source!r}; known: {RANDOM}, {STDLIB}, "
            f"or the path of a {' or '.join(SUFFIXES)} file"
        )
    raw = _read_bytes(path)
    text = _records(path, raw) if path.suffix.lower() == ".jsonl" else _decode(path, raw)
    if not text.strip():
        raise PlanError(f"data file {source!r} holds no text; give a file with text in it")
    return text


def _read_bytes(path: Path) -> bytes:
    if path.is_dir():
        raise PlanError(f"data {str(path)!r} is a folder; give one {' or '.join(SUFFIXES)} file")
    try:
        with path.open("rb") as stream:
            raw = stream.read(MAX_TEXT_BYTES)
    except OSError as error:
        raise PlanError(f"data file {str(path)!r} cannot be read: {error.strerror}") from None
    if not raw:
        raise PlanError(f"data file {str(path)!r} is empty; give a file with text in it")
    return raw


def _decode(path: Path, raw: bytes) -> str:
    if b"\0" in raw:
        raise PlanError(f"data file {str(path)!r} is binary (it holds NUL bytes); give UTF-8 text")
    try:
        # Not final: a character cut in two by the limit is no error.
        return codecs.getincrementaldecoder("utf-8-sig")().decode(raw, len(raw) < MAX_TEXT_BYTES)
    except UnicodeDecodeError as error:
        raise PlanError(
            f"data file {str(path)!r} is not UTF-8 text (byte {error.start}); convert it to UTF-8"
        ) from None


def _records(path: Path, raw: bytes) -> str:
    lines = _decode(path, raw).split("\n")
    if len(raw) == MAX_TEXT_BYTES:  # the last line may be cut
        lines.pop()
    texts = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        where = f"data file {str(path)!r}, line {number}"
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise PlanError(f"{where} is not valid JSON ({error}); repair the line") from None
        if not isinstance(record, dict) or not isinstance(record.get("text"), str):
            raise PlanError(f'{where} has no text field; write {{"text": "..."}} on each line')
        texts.append(record["text"])
    return "\n".join(texts)


def _standard_library() -> str:
    text = ""
    for path in _standard_modules(sysconfig.get_path("stdlib")):
        text += path.read_text(encoding="utf-8", errors="replace")
        if len(text) >= STDLIB_CHARS:
            return text[:STDLIB_CHARS]
    raise PlanError(
        "the source text of the Python standard library is not on this machine; "
        "give a .txt file as data"
    )


def _standard_modules(root: str) -> Iterator[Path]:
    for folder, subfolders, files in os.walk(root):
        # In place, so that the walk goes in this order and never into what is left out.
        subfolders[:] = sorted(set(subfolders) - LEFT_OUT)
        yield from (Path(folder, file) for file in sorted(files) if file.endswith(".py"))


def tokenize(text: str, vocab_size: int, tokenizer: Tokenizer | None, source: str) -> Tensor:
    """Token ids [tokens] on the CPU: the tokenizer's (int32), or without one the bytes (uint8).

    Raises:
        PlanError: the model's vocabulary is too small for them.
    """
    if tokenizer is None:
        tokens = torch.frombuffer(bytearray(text.encode("utf-8", "replace")), dtype=torch.uint8)
        needed = BYTE_VOCAB
    else:
        ids = tokenizer.encode(text, add_special_tokens=False)
        tokens = torch.tensor(ids, dtype=torch.int32)
        needed = max(ids, default=0) + 1
    if needed > vocab_size:
        raise PlanError(
            f"data {source!r} needs a vocabulary of {needed} tokens, the model has {vocab_size}; "
            "take data=random, or a model with its own tokenizer"
        )
    return tokens


def split(tokens: Tensor, batch_size: int, seq_len: int, source: str) -> Text:
    """Cut tokens [tokens] into windows of ``seq_len`` and a held-out tail for validation.

    Raises:
        PlanError: they do not fill one batch and the validation batch.
    """
    needed = (batch_size + TEXT_VALIDATION_ROWS) * seq_len
    if len(tokens) < needed:
        raise PlanError(
            f"data {source!r} has {len(tokens)} tokens; one batch of {batch_size} x {seq_len} and "
            f"{TEXT_VALIDATION_ROWS} validation rows need {needed}; give more text, "
            "or lower batch_size or seq_len"
        )
    rows = tokens[: len(tokens) // seq_len * seq_len].view(-1, seq_len)
    return Text(rows[:-TEXT_VALIDATION_ROWS], rows[-TEXT_VALIDATION_ROWS:].long())


def tokens_sha256(tokens: Tensor) -> str:
    """SHA-256 of the token ids as little-endian int32, whatever type holds them."""
    return hashlib.sha256(tokens.to(torch.int32).numpy().astype("<i4").tobytes()).hexdigest()


# --- batches -----------------------------------------------------------------------------------


class Batches(Protocol):
    """An endless stream of int64 batches [batch_size, seq_len] on the device."""

    num_workers: int
    resident: tuple[Tensor, ...]  # the tensors that live from step to step

    def next(self) -> Tensor: ...

    def close(self) -> None: ...


class FixedBatch:
    """The same resident batch in every step."""

    num_workers = 0

    def __init__(self, batch: Tensor) -> None:
        self.resident: tuple[Tensor, ...] = (batch,)

    def next(self) -> Tensor:
        return self.resident[0]

    def close(self) -> None:
        pass


class TextBatches:
    """Windows in a seeded order, each once per epoch, read here or by workers of a DataLoader."""

    def __init__(
        self, windows: Tensor, batch_size: int, seed: int, device: torch.device, num_workers: int
    ) -> None:
        self.resident: tuple[Tensor, ...] = (windows,)
        self.num_workers = num_workers
        self._device = device
        dataset, order = _Windows(windows), _Order(len(windows), batch_size, seed)
        self._batches: Iterator[Tensor] = (
            iter(
                DataLoader(
                    dataset, batch_sampler=order, num_workers=num_workers, collate_fn=_as_it_is
                )
            )
            if num_workers
            else map(dataset.__getitems__, order)
        )

    def next(self) -> Tensor:
        return next(self._batches).to(self._device, non_blocking=True)

    def close(self) -> None:
        # Dropping the DataLoader's iterator is what ends its workers.
        self._batches = iter(())


class _Windows(Dataset[Tensor]):
    def __init__(self, windows: Tensor) -> None:
        self.windows = windows

    def __getitem__(self, index: int) -> Tensor:
        return self.windows[index].long()

    def __getitems__(self, indices: list[int]) -> Tensor:
        return self.windows[indices].long()


class _Order(Sampler[list[int]]):
    """Batches of window numbers without end: one seeded permutation after the other."""

    def __init__(self, windows: int, batch_size: int, seed: int) -> None:
        self.windows, self.batch_size, self.seed = windows, batch_size, seed

    def __iter__(self) -> Iterator[list[int]]:
        generator = torch.Generator(device="cpu").manual_seed(self.seed)
        while True:
            order = torch.randperm(self.windows, generator=generator).tolist()
            for start in range(0, self.windows - self.batch_size + 1, self.batch_size):
                yield order[start : start + self.batch_size]


def _as_it_is(batch: Any) -> Any:
    return batch
