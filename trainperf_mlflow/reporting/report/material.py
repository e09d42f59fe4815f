"""All that a report is made of, gathered by whoever can read it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from trainperf_mlflow.reporting.text import clipped, plain
from trainperf_mlflow.results.comparison import CandidateComparison, Comparison
from trainperf_mlflow.results.record import Status
from trainperf_mlflow.results.study import Study
from trainperf_mlflow.results.values import VariantValues

NAME_CHARS = 64
TEXT_CHARS = 800
Summaries = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class EvidenceFile:
    """A file that the decision stands on."""

    path: str
    of: str | None  # the variant or repeat whose run has it; None: the study's
    sha256: str | None


@dataclass(frozen=True)
class Material:
    """A study as MLflow holds it.

    Attributes:
        phases, profiles: by variant what ``phase`` and ``profile`` showed; empty where
            nobody has looked.
        pictures: artifact path -> PNG.
        environment: of the first repeat that succeeded.
        manifest: ``evidence`` is that of the study's manifest.
    """

    study: Study
    comparison: Comparison
    variants: Sequence[VariantValues]
    phases: Summaries = field(default_factory=dict)
    profiles: Summaries = field(default_factory=dict)
    pictures: Mapping[str, bytes] = field(default_factory=dict)
    environment: Mapping[str, Any] = field(default_factory=dict)
    evidence: Sequence[EvidenceFile] = ()
    manifest: bool = False

    @property
    def imported(self) -> bool:
        return self.study.source is not None

    @property
    def best(self) -> CandidateComparison | None:
        """The candidate that the study's decision is about."""
        best = self.comparison.standing_best
        return next((c for c in self.comparison.candidates if c.variant == best), None)

    @property
    def values(self) -> dict[str, VariantValues]:
        return {variant.name: variant for variant in self.variants}

    @property
    def candidate_names(self) -> str:
        return listed(candidate.variant for candidate in self.comparison.candidates)

    def without_quality(self) -> list[str]:
        """Variants that ran, but whose eval loss is no proof of quality."""
        return [
            variant.name
            for variant in self.variants
            if variant.metrics and not (variant.quality_checked and "eval_loss" in variant.metrics)
        ]


def name(text: str) -> str:
    """A name as it may stand in a line."""
    return clipped(plain(text), NAME_CHARS)


def said(text: str) -> str:
    """A sentence that was recorded."""
    return clipped(plain(text), TEXT_CHARS)


def listed(names: Iterable[str], most: int = 6) -> str:
    """
    >>> listed(["a", "b", "c"], most=2)
    'a, b, ...'
    """
    all_names = [name(item) for item in names]
    return ", ".join([*all_names[:most], *(["..."] if len(all_names) > most else [])])


def of_repeats(values: VariantValues | None, metric: str) -> list[float]:
    """A metric of each repeat that succeeded."""
    repeats = values.repeats if values is not None else ()
    return [r.metrics[metric] for r in repeats if r.status is Status.OK and metric in r.metrics]
