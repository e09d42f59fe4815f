"""Every sentence of the report's own in both languages, by name."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from trainperf_mlflow.decisions.reasons import Language
from trainperf_mlflow.reporting.report.texts.checking import CHECKING
from trainperf_mlflow.reporting.report.texts.grounds import GROUNDS
from trainperf_mlflow.reporting.report.texts.measured import MEASURED
from trainperf_mlflow.reporting.report.texts.steps import STEPS
from trainperf_mlflow.reporting.report.texts.terms import TERMS
from trainperf_mlflow.reporting.report.texts.text import Text
from trainperf_mlflow.reporting.report.texts.verdict import VERDICT

TEXTS: Mapping[str, Text] = MappingProxyType(
    {**VERDICT, **MEASURED, **GROUNDS, **CHECKING, **STEPS, **TERMS}
)


class Words:
    """The report's sentences in one language."""

    def __init__(self, lang: Language) -> None:
        self.lang = lang

    def __call__(self, name: str, **values: object) -> str:
        """A sentence, its gaps filled.

        Raises:
            KeyError: there is no such sentence.
        """
        text: str = getattr(TEXTS[name], self.lang)
        return text.format(**values) if values else text

    def of(self, kind: str, code: str) -> str:
        """The words for a code, or the code itself where nobody knows it.

        >>> Words("zh").of("decision", "accept"), Words("en").of("phase", "loading")
        ('采纳', 'loading')
        """
        name = f"{kind}.{code}"
        return self(name) if name in TEXTS else code
