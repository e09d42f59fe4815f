"""A sentence of the product as a pattern in English, and the same sentence in Chinese.

Patterns are written as the product's own f-strings: ``{share:n} of a step waits for data``. What
a gap may hold is its kind:

- none: a name, which never holds "; " or ": ";
- ``n``: a number with its unit, where it has one;
- ``code``: a code, the name of a metric, or a path; ``codes``: several;
- ``any``: whatever it is;
- ``t``: a sentence that is known itself, and is translated; ``text``: several;
- ``counts``: how many runs ended how, which is translated, too;
- ``s``: sentences, which stay as they are where they are not known;
- else a vocabulary.

A ``|`` marks where the product puts two strings together; its sentences have none of their own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from string import Formatter

SEAM = "|"
# Names are bounded, so that a long text with many places to break it is soon given up.
_NAME = r"(?:(?!; |: |\), ).){1,100}"
_KINDS = {
    "": _NAME,
    "n": r"[-+]?(?:\d[\d.]*(?:e[-+]?\d+)?|inf|nan)(?: ?(?:%|ms|MiB))?",
    "code": r"[\w./-]+",
    "codes": r"\w+(?:(?:, | and )\w+)*",
    "counts": r"\d+ [a-z]+(?:, \d+ [a-z]+)*",
    "any": ".+",
    "t": ".+",
    "text": ".+",
    "s": ".+",
}
_ENDLESS = ("", "any", "t", "text", "s")
_SENTENCE, _SENTENCES = ("t", "counts"), ("text", "s")

Vocabulary = Mapping[str, str]
Translate = Callable[[str], str | None]


class Pattern:
    """One sentence in both languages."""

    def __init__(self, english: str, chinese: str, vocabularies: Mapping[str, Vocabulary]) -> None:
        self.chinese = chinese
        self._words = vocabularies
        parts = list(Formatter().parse(english.replace(SEAM, "")))
        self._kinds = {field: kind or "" for _, field, kind, _ in parts if field is not None}
        # Looked for first: most patterns are another sentence's.
        self._fixed = max((literal for literal, *_ in parts), key=len)
        # Where what stands between two gaps occurs several times, the first or the last is meant.
        self._expressions = [
            re.compile(
                "".join(
                    re.escape(literal)
                    + ("" if field is None else f"(?P<{field}>{self._gap(kind or '', lazy)})")
                    for literal, field, kind, _ in parts
                ),
                re.DOTALL,
            )
            for lazy in ("?", "")
        ]

    def _gap(self, kind: str, lazy: str) -> str:
        if kind in self._words:
            words = (word.replace(SEAM, "") for word in self._words[kind])
            return "|".join(map(re.escape, sorted(words, key=len, reverse=True)))
        return _KINDS[kind] + (lazy if kind in _ENDLESS else "")

    def translated(self, text: str, one: Translate, several: Translate) -> str | None:
        """The sentence in Chinese, or None where it is another one.

        Args:
            one: gives a known sentence in Chinese, and None for others.
            several: the same of sentences between semicolons.
        """
        if self._fixed not in text:
            return None
        for expression in self._expressions:
            match = expression.fullmatch(text)
            if match is None:
                return None
            gaps = {
                field: self._filled(self._kinds[field], value, one, several)
                for field, value in match.groupdict().items()
            }
            if None not in gaps.values():
                return self.chinese.format(**gaps)
        return None

    def _filled(self, kind: str, value: str, one: Translate, several: Translate) -> str | None:
        if kind in _SENTENCE:
            return one(value)
        if kind in _SENTENCES:
            known = several(value)
            return value if known is None and kind == "s" else known
        if kind == "codes":
            return value.replace(" and ", ", ")
        words = self._words.get(kind)
        if words is None:
            return value
        return next(chinese for word, chinese in words.items() if word.replace(SEAM, "") == value)
