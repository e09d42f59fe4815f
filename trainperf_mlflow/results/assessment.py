"""Why the variants took what they took: statements, suggestions, the verdict on a hypothesis."""

from __future__ import annotations

from typing import Literal

from trainperf_mlflow.results.record import Record

# Beyond the repeats' own spread; ``unknown``: too few repeats to have one.
Trend = Literal["shrank", "grew", "same", "unclear", "unknown"]
Verdict = Literal["supported", "refuted", "not_shown"]


class Suggestion(Record):
    """What to try next, and the statement that it follows from."""

    code: str  # of the statement
    variant: str
    text: str
    win: float  # the most it could save: a share of the step's time or of the peak, 0 to 1
    win_in: Literal["time", "memory"]
    setting: str | None = None  # the key of the configuration that would change


class Statement(Record):
    """One thing that a variant's evidence shows, and why it matters."""

    code: str  # stable, snake_case
    variant: str
    text: str
    evidence: str  # the artifact of the variant's run that has the numbers
    numbers: dict[str, float]
    threshold: float | None  # what the first of the numbers crossed; None: a plain fact
    source: str  # of the threshold
    suggestion: Suggestion | None = None


class PhaseChange(Record):
    """One phase of baseline and candidate: ms for the same samples, or MiB."""

    before: float
    after: float
    trend: Trend

    @property
    def saved(self) -> float:
        """Baseline - candidate: positive is better."""
        return self.before - self.after


class CandidateAssessment(Record):
    """Where a candidate's time and memory went, compared with the baseline's."""

    variant: str
    verdict: Verdict | None  # on the study's hypothesis; None where it has none
    text: str  # the verdict in words, with its numbers
    bottleneck: str | None  # the phase that takes the most time
    peak_phase: str | None  # the phase that holds the memory's peak
    relieved: Trend | None  # how the phase changed that takes the most time of the baseline
    time: dict[str, PhaseChange]  # by phase
    memory: dict[str, PhaseChange]
    moved_to: str | None  # the phase to which cost moved
    moved: str  # the same in words


class Assessment(Record):
    """What holds a study's variants back: ``assessment.json``. It explains, it never decides."""

    schema_version: Literal["trainperf-assessment/v1"] = "trainperf-assessment/v1"
    study_id: str
    hypothesis: str | None
    bottleneck: str | None  # the baseline's
    peak_phase: str | None
    about: str | None  # the candidate whose verdict is the study's: the best, else the first
    verdict: Verdict | None
    candidates: tuple[CandidateAssessment, ...]
    statements: tuple[Statement, ...]
    next: tuple[Suggestion, ...]  # the largest win first
    missing: tuple[str, ...]  # what could not be told, and how to find out
