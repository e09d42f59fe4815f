"""An assessment in a few lines: verdict, bottleneck, where the cost moved, what to try."""

from __future__ import annotations

from collections.abc import Iterator

from trainperf_mlflow.reporting.text import clipped, plain
from trainperf_mlflow.results import Assessment, Suggestion

_LINE_CHARS = 300
_NAME_CHARS = 60


def why_lines(assessment: Assessment) -> list[str]:
    """At most six lines; the rest is in ``assessment.json``."""
    return [clipped(line, _LINE_CHARS) for line in _lines(assessment)]


def why_text(assessment: Assessment) -> str:
    """The same with a heading, for a terminal."""
    return "\n".join(["why", *(f"  {line}" for line in why_lines(assessment))])


def _lines(assessment: Assessment) -> Iterator[str]:
    about = next((c for c in assessment.candidates if c.variant == assessment.about), None)
    if about is not None and about.verdict is not None:
        verdict = about.verdict.replace("_", " ")
        yield (
            f"hypothesis {assessment.hypothesis}: {verdict} by {_name(about.variant)}: {about.text}"
        )
    if assessment.bottleneck is not None:
        peak = assessment.peak_phase
        yield f"baseline: {assessment.bottleneck} takes the most time" + (
            f", {peak} holds the memory's peak" if peak else ""
        )
    if about is not None and about.time:
        yield f"{_name(about.variant)}, the cost moved: {about.moved}"
    if assessment.next:
        yield _suggestion(assessment, assessment.next[0])
    if assessment.missing:
        yield "; ".join(plain(text) for text in assessment.missing)


def _suggestion(assessment: Assessment, suggestion: Suggestion) -> str:
    because = next(
        statement.text
        for statement in assessment.statements
        if (statement.code, statement.variant) == (suggestion.code, suggestion.variant)
    )
    of = "the step" if suggestion.win_in == "time" else "the peak"
    return (
        f"try next: {suggestion.text} (up to {suggestion.win:.0%} of {of}; "
        f"{_name(suggestion.variant)}: {because})"
    )


def _name(name: str) -> str:
    return clipped(plain(name), _NAME_CHARS)
