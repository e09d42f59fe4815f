"""One sentence of the report in both languages."""

from __future__ import annotations

from typing import NamedTuple


class Text(NamedTuple):
    en: str
    zh: str
