"""What a study holds in sentences of its own, in the language of the report."""

from __future__ import annotations

from trainperf_mlflow.decisions.reasons import reason_text
from trainperf_mlflow.reporting.report.material import said
from trainperf_mlflow.reporting.report.sentences import in_chinese, wholly_chinese
from trainperf_mlflow.reporting.report.texts import Words
from trainperf_mlflow.results.decision import Decision


def told(text: str, words: Words) -> str:
    """A sentence that was recorded in English; what is not known in Chinese stays as it is."""
    return said(in_chinese(text) if words.lang == "zh" else text)


def reason_told(decision: Decision, words: Words) -> str:
    """Why it was decided so: in Chinese the sentence itself, else that of its code and numbers."""
    whole = wholly_chinese(decision.text) if words.lang == "zh" else None
    return said(whole or reason_text(decision, words.lang))
