"""Differences between two variants."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Difference:
    """What separates a candidate from its baseline."""

    delta: dict[str, float]
