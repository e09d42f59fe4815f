"""What a report consists of: plain text in a few shapes, which pages lay out as they like.

All text is one line without control characters; nothing of it is markup.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from trainperf_mlflow.decisions.reasons import Language

Tone = Literal["", "good", "bad", "warn", "faint"]


@dataclass(frozen=True)
class Paragraph:
    text: str
    tone: Tone = ""


@dataclass(frozen=True)
class Items:
    """A list; where it is empty there is nothing to say."""

    texts: tuple[str, ...]


@dataclass(frozen=True)
class Facts:
    """Names and what they are."""

    rows: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Cell:
    """A value and, below it, smaller lines about it."""

    text: str
    lines: tuple[str, ...] = ()
    tone: Tone = ""
    numeric: bool = False


@dataclass(frozen=True)
class Table:
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    title: str = ""
    folded: bool = False  # long: shown when it is asked for, and in print


@dataclass(frozen=True)
class Picture:
    png: bytes
    title: str


@dataclass(frozen=True)
class Code:
    """To be copied as it is."""

    text: str


Part = Paragraph | Items | Facts | Table | Picture | Code


@dataclass(frozen=True)
class Section:
    key: str
    title: str
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class Figure:
    """One number of the verdict, in words, and what it rests on."""

    title: str
    value: str
    detail: str
    tone: Tone = ""


@dataclass(frozen=True)
class Verdict:
    """The answer: what a reader sees in the first seconds."""

    decision: Literal["accept", "tune", "reject", "measure"]
    word: str
    headline: str
    sure: str
    reason: str
    settle: str  # what would settle what is open; empty where nothing is
    next: str
    figures: tuple[Figure, ...]
    measured: str = ""  # before the close; empty where the study is open


@dataclass(frozen=True)
class Content:
    """A whole report; ``sections`` in the order of reading."""

    lang: Language
    title: str
    subtitle: str
    question: str
    sizes: str  # what was trained on what, in one line
    verdict: Verdict
    sections: tuple[Section, ...]
    footer: str

    def section(self, key: str) -> Section | None:
        return next((section for section in self.sections if section.key == key), None)
