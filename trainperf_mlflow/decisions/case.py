"""What a rule set is asked: one candidate against the baseline, and by which numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from trainperf_mlflow.analysis.compare import Difference
from trainperf_mlflow.results.decision import Decision, Evaluation
from trainperf_mlflow.results.values import VariantValues


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


class Choice(NamedTuple):
    """What a rule over all variants at once says.

    ``best`` may be the baseline, or None where no variant is eligible;
    ``evaluations`` has one for each variant, by its name.
    """

    best: str | None
    decision: Decision
    evaluations: Mapping[str, Evaluation]


@dataclass(frozen=True)
class Policy:
    """A rule set: its name, its thresholds with their defaults, and the rule.

    Attributes:
        decide: the rule on one candidate.
        optional: thresholds that have no default of their own.
        choose: for a rule set in which the variants compete, baseline
            included: the rule on a study. Without it the best candidate decides.
        needs_goal: it decides nothing without a goal.
        reads_time: it cannot judge a candidate without a step time.
        aside: its verdict is also worth telling where another policy decides.
    """

    name: str
    thresholds: Mapping[str, float]
    decide: Callable[[Case], Decision]
    optional: tuple[str, ...] = ()
    choose: Callable[[Sequence[Case]], Choice] | None = None
    needs_goal: bool = False
    reads_time: bool = True
    aside: bool = True

    @property
    def threshold_names(self) -> tuple[str, ...]:
        return (*self.thresholds, *self.optional)
