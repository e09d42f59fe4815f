"""An assessment in a few lines: verdict, bottleneck, where the cost moved, what to try."""

from __future__ import annotations

from collections.abc import Iterator

from trainperf_mlflow.analysis.explained import percent
from trainperf_mlflow.reporting.text import clipped, plain
from trainperf_mlflow.results.assessment import Assessment, CandidateAssessment, Suggestion

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
        yield f"baseline: {_first(assessment.bottleneck, assessment.peak_phase)}"
    if about is not None and about.time:
        yield f"{_name(about.variant)}: {_relieved(assessment, about)}cost moved: {about.moved}"
    if assessment.next:
        yield _suggestion(assessment, assessment.next[0])
    if assessment.missing:
        yield "; ".join(plain(text) for text in assessment.missing)


def _first(bottleneck: str, peak_phase: str | None) -> str:
    """
    >>> _first("backward", "optimizer")
    "backward takes the most time, optimizer holds the memory's peak"
    """
    if peak_phase is None:
        return f"{bottleneck} takes the most time"
    second = " and" if bottleneck == peak_phase else f", {peak_phase}"
    return f"{bottleneck} takes the most time{second} holds the memory's peak"


def _relieved(assessment: Assessment, about: CandidateAssessment) -> str:
    """Did what took the most time shrink?"""
    change = about.time.get(assessment.bottleneck or "")
    if change is None:
        return ""
    said = {"same": "is the same", "unclear": "is within the spread", "unknown": "is not known"}
    times = f"{change.before:.3g} -> {change.after:.3g} ms"
    return f"{assessment.bottleneck} {said.get(change.trend, change.trend)} ({times}); "


def _suggestion(assessment: Assessment, suggestion: Suggestion) -> str:
    because = next(
        statement.text
        for statement in assessment.statements
        if (statement.code, statement.variant) == (suggestion.code, suggestion.variant)
    )
    of = "the step" if suggestion.win_in == "time" else "the peak"
    return (
        f"try next: {suggestion.text} (up to {percent(suggestion.win)} of {of}; "
        f"{_name(suggestion.variant)}: {because})"
    )


def _name(name: str) -> str:
    return clipped(plain(name), _NAME_CHARS)
