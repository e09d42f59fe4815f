"""The regression contract over several studies: one change, a primary and adjacent workloads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError

from trainperf_mlflow.api.regression_workloads import (
    MeasuredWorkload,
    bottleneck_of,
    leading,
    measured_workloads,
    workload_of,
)
from trainperf_mlflow.decisions.regression import GATES, RegressionContract
from trainperf_mlflow.decisions.regression_study import (
    Regression,
    RegressionWorkload,
    contract_problems,
    decide_regression,
)
from trainperf_mlflow.errors import PlanError
from trainperf_mlflow.evidence.reading import read_document
from trainperf_mlflow.messages import explain, nearest, shown
from trainperf_mlflow.reporting.regression import regression_note

if TYPE_CHECKING:
    from trainperf_mlflow.tracking.store import Store

_ROLES = ("primary", "adjacent")
_CONTRACT = "a contract: a JSON object with any of baseline_id, candidate_id, workloads, ..."


class ContractFile(BaseModel):
    """A contract as a file holds it; what it leaves out is taken from the studies."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    baseline_id: str | None = None
    candidate_id: str | None = None
    changed_variable: str | None = None
    original_bottleneck: str | None = None
    gates: dict[str, float] = Field(default_factory=dict)
    # ``role`` and ``study`` (a reference), or a whole record of the source's form.
    workloads: list[dict[str, JsonValue]] = Field(default_factory=list)


def regress(
    primary: str | None = None,
    adjacent: Sequence[str] = (),
    *,
    candidate: str | None = None,
    contract: str | Path | Mapping[str, Any] | None = None,
    thresholds: Mapping[str, float] | None = None,
    name: str | None = None,
    tracking_uri: str | None = None,
    experiment: str | None = None,
) -> Regression:
    """Decide whether a change holds on its own workload and on those near it, and record that.

    A run of kind ``regression`` in the primary study's experiment links the studies and
    bears the decision; the studies stay as they are.

    Args:
        primary: the study of the workload that the change is for.
        adjacent: studies of workloads near it, at least one.
        candidate: the variant that is judged, where a study has several.
        contract: a JSON file or mapping with any of ``baseline_id``, ``candidate_id``,
            ``changed_variable``, ``original_bottleneck``, ``gates`` and ``workloads``.
        thresholds: gates that differ from the source's.

    Raises:
        PlanError: the contract does not hold: its problems by their codes, with the remedies.
        MeasurementError: a study has no measured baseline.
        StoreError: the store cannot be read or written.
    """
    from trainperf_mlflow.tracking.store import open_store, read_store

    agreed = _contract(contract)
    gates = _gates({**agreed.gates, **(thresholds or {})})
    items = _items(agreed, primary, adjacent)
    store = read_store(tracking_uri, experiment)
    measured = measured_workloads(store, items, candidate or None, agreed.candidate_id)
    first = leading(items, measured)
    bottleneck = agreed.original_bottleneck or bottleneck_of(first)
    quality_gate = gates.get("max_quality_delta", GATES["max_quality_delta"])
    workloads = [
        workload_of(item, found, first, bottleneck, quality_gate)
        for item, found in zip(items, measured, strict=True)
    ]
    signed = _signed(agreed, first, workloads)
    try:
        made = decide_regression(
            _name(name, signed, workloads), signed, workloads, bottleneck, gates
        )
    except ValueError as error:
        raise PlanError(f"the contract does not hold: {error}") from None
    home = open_store(tracking_uri, experiment or _experiment(store, first))
    return _recorded(home, made)


# --- the contract ------------------------------------------------------------------------------


def _contract(given: str | Path | Mapping[str, Any] | None) -> ContractFile:
    if given is None:
        return ContractFile()
    where = "the contract" if isinstance(given, Mapping) else shown(Path(given))
    content = (
        given
        if isinstance(given, Mapping)
        else read_document(Path(given), wanted=_CONTRACT).content
    )
    try:
        return ContractFile.model_validate(dict(content))
    except ValidationError as error:
        raise PlanError(f"{where}: {explain(error, ContractFile)}") from None


def _gates(given: Mapping[str, float]) -> dict[str, float]:
    for key in given:
        if key not in GATES:
            raise PlanError(
                f"unknown threshold {shown(key)} of a regression{nearest(key, GATES)}; "
                f"known: {', '.join(GATES)}"
            )
    return dict(given)


def _items(
    agreed: ContractFile, primary: str | None, adjacent: Sequence[str]
) -> list[dict[str, Any]]:
    """The workloads that are named, each once: by the flags, or by the contract."""
    named = [{"role": "primary", "study": primary}] if primary else []
    named += [{"role": "adjacent", "study": ref} for ref in adjacent]
    if named and agreed.workloads:
        raise PlanError(
            "the contract names its workloads already; leave out --primary and --adjacent"
        )
    return named or [dict(item) for item in agreed.workloads]


def _signed(
    agreed: ContractFile, first: MeasuredWorkload | None, workloads: Sequence[RegressionWorkload]
) -> RegressionContract:
    """The contract, completed from the primary's study.

    Raises:
        PlanError: it does not hold.
    """
    own = {
        "baseline_id": first.baseline.name if first else None,
        "candidate_id": first.candidate.name if first else None,
        "changed_variable": first.planned.changed_variable if first else None,
    }
    given = agreed.model_dump(include=set(own), exclude_none=True)
    whole: dict[str, Any] = {**own, **given}
    problems = contract_problems(
        whole, [{"workload_id": w.workload_id, "role": w.role} for w in workloads]
    )
    if problems:
        raise PlanError(f"the contract does not hold: {'; '.join(problems)}")
    return RegressionContract(**whole)


# --- the record of it --------------------------------------------------------------------------


def _name(
    name: str | None, signed: RegressionContract, workloads: Sequence[RegressionWorkload]
) -> str:
    primary = next(w for w in workloads if w.role == "primary")
    return name or f"regression: {signed.candidate_id} on {primary.study or primary.workload_id}"


def _experiment(store: Store, first: MeasuredWorkload | None) -> str | None:
    from trainperf_mlflow.tracking.queries import experiment_of

    return None if first is None else experiment_of(store, first.study.study_id)


def _recorded(store: Store, made: Regression) -> Regression:
    from trainperf_mlflow.tracking import names
    from trainperf_mlflow.tracking.gathering import (
        create_gathering_run,
        finish_gathering_run,
        links_to,
        stop_gathering_run,
    )

    ids: dict[str, list[str]] = {role: [] for role in _ROLES}
    for workload in made.workloads:
        if workload.study_id is not None:
            ids[workload.role].append(workload.study_id)
    links = links_to(store, [study_id for found in ids.values() for study_id in found])
    evidence = made.evidence
    tags: dict[str, str | None] = {
        names.CHANGED_VARIABLE: made.contract.changed_variable,
        names.BEST_CANDIDATE: made.contract.candidate_id,
        names.HYPOTHESIS: made.original_bottleneck,
        names.CANDIDATE_BOTTLENECK: evidence.candidate_bottleneck,
        names.PRIMARY_STUDY: ",".join(ids["primary"]) or None,
        names.ADJACENT_STUDIES: ",".join(ids["adjacent"]) or None,
    }
    run_id = create_gathering_run(store, "regression", made.name, tags)
    made = made.model_copy(update={"study_id": run_id})
    try:
        primary = next(w for w in made.workloads if w.role == "primary")
        finish_gathering_run(
            store,
            run_id,
            {names.REGRESSION_FILE: made.to_json()},
            made.decision,
            regression_note(made, links),
            {names.delta_metric(key): value for key, value in primary.delta.items()},
            {},
        )
    except BaseException as error:
        stop_gathering_run(store, run_id, "FAILED", str(error) or repr(error))
        raise
    return made
