"""Compare any two MLflow runs, also ones that other code logged, and say what was not checked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import trainperf_mlflow
from trainperf_mlflow.decisions.evidence import measured_in_blocks
from trainperf_mlflow.decisions.policies import POLICIES
from trainperf_mlflow.decisions.study import decide_study
from trainperf_mlflow.errors import EvidenceError, PlanError
from trainperf_mlflow.evidence.identity import Identity, Mismatch
from trainperf_mlflow.evidence.runs import (
    Stated,
    flattened,
    other_differences,
    same_environment,
    same_run_workload,
)
from trainperf_mlflow.messages import nearest, shown
from trainperf_mlflow.results.comparison import Comparison
from trainperf_mlflow.results.study import Study, Workload
from trainperf_mlflow.results.values import VariantValues

if TYPE_CHECKING:
    from trainperf_mlflow.tracking.sides import Side


def compare_runs(
    baseline: str,
    candidate: str,
    *,
    metrics: Mapping[str, str] | None = None,
    changed_variable: str | None = None,
    goal: str | None = None,
    allow_environment_difference: bool = False,
    tracking_uri: str | None = None,
    experiment: str | None = None,
) -> Comparison:
    """Decide about one MLflow run against another, if both trained the same workload.

    The runs may be ours or anyone's, so nothing is written to them. Runs of one study were
    measured side by side, and their pairs count; others were not: the bare rule decides, and
    nothing is confirmed. What could not be checked is among the comparison's warnings.

    Args:
        baseline: a run id, a unique prefix of one, or a run's name (the newest of it); a
            study stands for its baseline, as ``candidate`` for its best one.
        candidate: the same of the other run.
        metrics: our name of a metric -> its name in runs that other code logged.
        changed_variable: the setting in which the runs are meant to differ; runs of a study
            declare theirs themselves.
        goal: what the change is for; without one the policy ``training`` decides.

    Raises:
        PlanError: a run, metric or goal is not there, or both runs are the same one.
        EvidenceError: the workloads differ, or the environments do and that is not allowed.
        StoreError: the store cannot be read.
    """
    from trainperf_mlflow.decisions.goal import GOALS
    from trainperf_mlflow.tracking.sides import load_sides
    from trainperf_mlflow.tracking.store import read_store

    if goal is not None and goal not in GOALS:
        raise PlanError(
            f"unknown goal {shown(goal)}{nearest(goal, GOALS)}; known: {', '.join(GOALS)}"
        )
    store = read_store(tracking_uri, experiment)
    before, after = load_sides(store, baseline, candidate, metrics or {})
    if before.values.run_id == after.values.run_id and before.run_id == after.run_id:
        raise PlanError(f"baseline and candidate are both run {before.run_id}; give two runs")
    changed = _changed(before, after, changed_variable)
    old, new = _stated(before), _stated(after)
    workload, machine = same_run_workload(new, old, changed), same_environment(new, old)
    _refuse(workload, machine, allow_environment_difference)
    made = decide_study(_question(before, after, goal), (before.values, _changing(after, changed)))
    paired = measured_in_blocks(before.values) and measured_in_blocks(after.values)
    return made.model_copy(
        update={
            "candidates": made.candidates
            if paired
            else tuple(c.model_copy(update={"pairs": 0}) for c in made.candidates),
            "warnings": (
                *made.warnings,
                *_statements(before, after, paired),
                *_several(after, changed),
                *_differences(machine.mismatches, other_differences(new, old, changed)),
                *_unchecked(workload, machine),
            ),
        }
    )


def _changed(before: Side, after: Side, declared: str | None) -> tuple[str, ...]:
    """The settings that may differ: declared now, or by the studies of the runs."""
    own = [
        key
        for key in dict.fromkeys((*after.changed, *before.changed))
        if before.config.get(key) != after.config.get(key)
    ]
    return tuple(dict.fromkeys([declared, *own] if declared else own))


def _stated(side: Side) -> Stated:
    return Stated(
        config=side.config,
        environment=side.environment,
        content=flattened(side.identity),
        whole=bool(side.identity),
    )


def _refuse(workload: Identity, machine: Identity, allowed: bool) -> None:
    if not workload.matches:
        raise EvidenceError(
            f"the runs are not of the same workload: {_listed(workload.mismatches)}; compare "
            "runs of one workload, or name the setting that was changed on purpose with "
            "--changed-variable"
        )
    if not machine.matches and not allowed:
        raise EvidenceError(
            f"the runs are from different environments: {_listed(machine.mismatches)}; give "
            "--allow-environment-difference to compare them all the same"
        )


def _question(before: Side, after: Side, goal: str | None) -> Study:
    policy = POLICIES["goal" if goal else "training"]
    return Study(
        study_id="",  # it belongs to no study
        name=f"{after.values.name} against {before.values.name}",
        plan={},
        policy=policy.name,
        goal=goal,
        thresholds=dict(policy.thresholds),
        variants=(),
        workload=Workload(
            digest="", identity={}, device=after.device or "", name="two runs", source=""
        ),
        command="",
        created_at=0.0,
        toolkit_version=trainperf_mlflow.__version__,
    )


def _changing(after: Side, changed: Sequence[str]) -> VariantValues:
    return after.values.model_copy(update={"changed_variable": ", ".join(changed) or None})


def _listed(mismatches: Sequence[Mismatch]) -> str:
    return "; ".join(f"{m.field} is {shown(m.wanted)} and {shown(m.found)}" for m in mismatches)


def _statements(before: Side, after: Side, paired: bool) -> Iterator[str]:
    if not paired:
        yield "the runs were not measured in pairs, so nothing is confirmed by an interval"
    for side in (before, after):
        yield from (f"{side.values.name}: {note}" for note in side.notes)


def _several(after: Side, changed: Sequence[str]) -> Iterator[str]:
    # A strategy of several settings is one change of the candidate's own.
    if len(changed) > 1 and not set(changed) <= set(after.changed):
        yield (
            f"{len(changed)} settings were changed ({', '.join(changed)}), so no difference can "
            "be attributed to one of them"
        )


def _differences(machine: Sequence[Mismatch], others: Sequence[Mismatch]) -> Iterator[str]:
    if machine:
        yield f"different environments (baseline and candidate): {_listed(machine)}"
    if others:
        yield f"other settings that differ (baseline and candidate): {_listed(others)}"


def _unchecked(workload: Identity, machine: Identity) -> Iterator[str]:
    fields = (*workload.unchecked, *(f"environment: {name}" for name in machine.unchecked))
    if fields:
        yield f"not checked: {', '.join(fields)}"
