"""The sentences that a study holds in English, for readers of Chinese.

Reasons, notes, warnings and statements are stored as the English sentences that were made of
them. They are known by their patterns; what no pattern knows stays as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, lru_cache
from types import MappingProxyType

from trainperf_mlflow.reporting.report.sentences.decided import DECIDED
from trainperf_mlflow.reporting.report.sentences.differences import DIFFERENCES
from trainperf_mlflow.reporting.report.sentences.explained import EXPLAINED
from trainperf_mlflow.reporting.report.sentences.pattern import Pattern
from trainperf_mlflow.reporting.report.sentences.trusted import TRUSTED
from trainperf_mlflow.reporting.report.sentences.vocabularies import VOCABULARIES

# What joins sentences and names, tried where no sentence of its own is known.
_JOINED = {
    "{one:phase}, {others:t}": "{one}、{others}",
    "{one:phase} and {other:phase}": "{one}与{other}",
    "{phase:phase}": "{phase}",
    "{one:t}, {other:t}": "{one}，{other}",
    "{one:t}: {other:t}": "{one}：{other}",
    "{variant}: {counts:counts}|: {error:s}": "{variant}：{counts}：{error}",
    "{variant}: {text:t}": "{variant}：{text}",
}
SENTENCES: Mapping[str, str] = MappingProxyType(
    {**DECIDED, **DIFFERENCES, **EXPLAINED, **TRUSTED, **_JOINED}
)
# Nothing that the product says is longer, has more clauses or is nested more deeply.
_MOST_CHARS = 4000
_MOST_CLAUSES = 40
_MOST_DEPTH = 6
_BETWEEN = "; "


def in_chinese(text: str) -> str:
    """A stored sentence in Chinese; clauses that are not known stay as they are.

    >>> in_chinese("measure again; zzz")
    '请重新测量；zzz'
    """
    clauses = _clauses(text, 0)
    return _joined(clauses) if any(known is not None for _, known in clauses) else text


def wholly_chinese(text: str, depth: int = 0) -> str | None:
    """A stored sentence in Chinese; None where a part of it is not known.

    Args:
        depth: of how many other sentences it is a part.

    >>> wholly_chinese("measure again"), wholly_chinese("measure again; zzz")
    ('请重新测量', None)
    """
    clauses = _clauses(text, depth)
    return _joined(clauses) if all(known is not None for _, known in clauses) else None


Clause = tuple[str, str | None]  # as it is stored, and in Chinese where it is known


def _joined(clauses: tuple[Clause, ...]) -> str:
    return "；".join(text if known is None else known for text, known in clauses)


def _clauses(text: str, depth: int) -> tuple[Clause, ...]:
    """What stands between semicolons; sentences that have semicolons of their own are whole."""
    parts = text.split(_BETWEEN)
    if len(text) > _MOST_CHARS or len(parts) > _MOST_CLAUSES:
        return ((text, None),)
    found: list[Clause] = []
    begin = 0
    while begin < len(parts):
        for end in range(len(parts), begin, -1):
            span = _BETWEEN.join(parts[begin:end])
            known = _sentence(span, depth)
            if known is not None or end == begin + 1:
                found.append((span, known))
                begin = end
                break
    return tuple(found)


@lru_cache(maxsize=8192)
def _sentence(text: str, depth: int) -> str | None:
    if depth > _MOST_DEPTH:
        return None
    made = (
        pattern.translated(
            text,
            lambda part: _sentence(part, depth + 1),
            lambda part: wholly_chinese(part, depth + 1),
        )
        for pattern in _patterns()
    )
    return next((chinese for chinese in made if chinese is not None), None)


@cache
def _patterns() -> tuple[Pattern, ...]:
    return tuple(Pattern(en, zh, VOCABULARIES) for en, zh in SENTENCES.items())
