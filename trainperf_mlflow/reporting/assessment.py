"""An assessment in a few lines: verdicts, bottleneck, where the cost moved, what to try."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import get_args

from trainperf_mlflow.analysis.explained import percent
from trainperf_mlflow.reporting.console import columns_of, one_row
from trainperf_mlflow.reporting.text import clipped, plain
from trainperf_mlflow.results.assessment import (
    Assessment,
    CandidateAssessment,
    Suggestion,
    Verdict,
)

_LINE_CHARS = 300
_NAME_CHARS = 60
_INDENT = "  "
_UNSEEN = re.compile(r"^no (\w+) yet(?=:|$)")


def why_lines(assessment: Assessment, width: int | None = None) -> list[str]:
    """Three lines at most, and one for each candidate; the rest is in ``assessment.json``.

    Args:
        width: columns of a terminal, of which the line of one among several candidates takes
            no second row.
    """
    return [clipped(line, _LINE_CHARS) for line in _lines(assessment, width)]


def unseen_lines(assessment: Assessment) -> list[str]:
    """What nobody looked at, and how to: that gives no reason. Then what else is missing."""
    missing = [plain(text) for text in assessment.missing]
    unseen = [_UNSEEN.sub(r"\1", text) for text in missing if _UNSEEN.match(text)]
    others = [text for text in missing if not _UNSEEN.match(text)]
    lines = [*(["not looked at: " + "; ".join(unseen)] if unseen else []), *others]
    return [clipped(line, _LINE_CHARS) for line in lines]


def why_block(assessment: Assessment, width: int) -> list[str]:
    """All of it for a terminal of so many columns, its heading first."""
    why = why_lines(assessment, width)
    return ["why" if why else "why: nothing is known yet", *why, *unseen_lines(assessment)]


def why_text(assessment: Assessment) -> str:
    """The same as one text, indented under its heading."""
    return f"\n{_INDENT}".join(why_block(assessment, columns_of(None) - len(_INDENT)))


def _lines(assessment: Assessment, width: int | None) -> Iterator[str]:
    candidates = assessment.candidates
    alone = candidates[0] if len(candidates) == 1 else None
    verdicts = "; ".join(_verdicts(assessment))
    if verdicts:
        yield f"hypothesis {assessment.hypothesis}: {verdicts}{f': {alone.text}' if alone else ''}"
    if assessment.bottleneck is not None:
        yield f"baseline: {_first(assessment.bottleneck, assessment.peak_phase)}"
    for each in candidates:
        if each.time:
            # Among several the verdict's numbers stand here, and say how the phase changed.
            told = f"{each.text}; " if verdicts and not alone else _relieved(assessment, each)
            line = f"{_name(each.variant)}: {told}cost moved: {each.moved}"
            yield line if alone or width is None else one_row(line, width)
    if assessment.next:
        yield _suggestion(assessment, assessment.next[0])


def _verdicts(assessment: Assessment) -> Iterator[str]:
    """Each verdict on the hypothesis, with the candidates that bear it."""
    for verdict in get_args(Verdict):
        names = [_name(c.variant) for c in assessment.candidates if c.verdict == verdict]
        if names:
            yield f"{verdict.replace('_', ' ')} by {', '.join(names)}"


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
    times = f"({change.before:.3g} -> {change.after:.3g} ms)"
    if change.trend == "unknown":  # nor is the rest, and what follows says why
        return f"whether {assessment.bottleneck} changed {times} or "
    said = {"same": "is the same", "unclear": "changed within the repeats' spread"}
    return f"{assessment.bottleneck} {said.get(change.trend, change.trend)} {times}; "


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
