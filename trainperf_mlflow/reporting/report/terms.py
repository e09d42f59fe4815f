"""The words that a report takes for granted, each explained once."""

from __future__ import annotations

from trainperf_mlflow.reporting.report.parts import Facts, Section
from trainperf_mlflow.reporting.report.texts import Words

_TERMS = (
    "block", "pair", "process_pair", "set_aside", "look", "margin", "confirmed", "unconfirmed",
    "unfit", "tune", "policy", "scope", "net_time",
)  # fmt: skip


def section(words: Words) -> Section:
    rows = tuple((words(f"term.{term}"), words(f"means.{term}")) for term in _TERMS)
    return Section("words", words("words"), (Facts(rows),))
