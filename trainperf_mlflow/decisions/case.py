"""What a rule set is asked: one candidate against the baseline, and by which numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from trainperf_mlflow.analysis.compare import Difference
from trainperf_mlflow.results import Decision, VariantValues


class GoalMetric(NamedTuple):
    """The metric that a change is for, by its MLflow name, and which way is better."""

    metric: str
    better: Literal["lower", "higher"]


@dataclass(frozen=True)
class Case:
    """A candidate that ran, the baseline it is compared with, and the thresholds in force."""

    baseline: VariantValues
    candidate: VariantValues
    difference: Difference
    thresholds: Mapping[str, float]
    goal: GoalMetric | None = None


@dataclass(frozen=True)
class Policy:
    """A rule set: its name, its thresholds with their defaults, and the rule."""

    name: str
    thresholds: Mapping[str, float]
    decide: Callable[[Case], Decision]
