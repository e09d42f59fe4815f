"""The regression contract over several studies: one change, a primary and adjacent workloads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError

from trainperf_mlflow.analysis.compare import compare
from trainperf_mlflow.analysis.explained import Explained
from trainperf_mlflow.analysis.hypothesis import time_changes
from trainperf_mlflow.analysis.side_by_side import contradiction
from trainperf_mlflow.decisions.evidence import measured_in_blocks
from trainperf_mlflow.decisions.regression import GATES, MEMORY, RegressionContract
from trainperf_mlflow.decisions.regression_study import (
    Regression,
    RegressionWorkload,
    contract_problems,
    decide_regression,
)
from trainperf_mlflow.decisions.study import decide_study
from trainperf_mlflow.errors import MeasurementError, PlanError
from trainperf_mlflow.evidence.reading import read_document
from trainperf_mlflow.messages import explain, nearest, shown
from trainperf_mlflow.reporting.regression import regression_note
from trainperf_mlflow.results.comparison import CandidateComparison
from trainperf_mlflow.results.record import Status
from trainperf_mlflow.results.study import Study, Variant
from trainperf_mlflow.results.values import VariantValues

if TYPE_CHECKING:
    from trainperf_mlflow.tracking.store import Store

_ROLES = ("primary", "adjacent")
_SIZES = ("batch_size", "seq_len")


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


@dataclass(frozen=True)
class _Measured:
    """One workload's study, read: what the contract compares."""

    study: Study
    planned: Variant  # the candidate
    baseline: Explained
    candidate: Explained
    compared: CandidateComparison | None  # None: no repeat of the baseline succeeded
    error: str | None


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
    measured = _measured(store, items, candidate or None, agreed)
    first = _leading(items, measured)
    bottleneck = agreed.original_bottleneck or _bottleneck(first)
    workloads = [
        _workload(item, found, first, bottleneck)
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
    where = "the contract" if isinstance(given, Mapping) else shown(str(given))
    content = given if isinstance(given, Mapping) else read_document(Path(given)).content
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
    agreed: ContractFile, first: _Measured | None, workloads: Sequence[RegressionWorkload]
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


# --- the workloads -----------------------------------------------------------------------------


def _measured(
    store: Store, items: Sequence[Mapping[str, Any]], candidate: str | None, agreed: ContractFile
) -> list[_Measured | None]:
    """Each workload's study; None where the contract has the record itself."""
    order = sorted(range(len(items)), key=lambda place: items[place].get("role") != "primary")
    found: dict[int, _Measured | None] = {}
    first: _Measured | None = None
    for place in order:
        ref = items[place].get("study")
        if ref is None:
            found[place] = None
            continue
        found[place] = one = _load(store, str(ref), candidate, agreed.candidate_id, first)
        first = first or one
        _refuse_other_change(first, one)
    return [found[place] for place in range(len(items))]


def _load(
    store: Store, ref: str, candidate: str | None, signed: str | None, first: _Measured | None
) -> _Measured:
    from trainperf_mlflow.tracking import queries
    from trainperf_mlflow.tracking.explaining import load_summaries, study_files

    study_id = queries.find_study(store, ref)
    study = queries.load_study(store, study_id)
    variants = queries.load_variants(store, study_id, study)
    if candidate is None and signed in {variant.name for variant in study.variants}:
        candidate = signed
    planned = _chosen(study, candidate, first)
    phases, _ = load_summaries(store, study_files(store, study_id), variants)
    values = {variant.name: variant for variant in variants}
    base = next((v.name for v in study.variants if v.role == "baseline"), None)
    if base is None:
        raise PlanError(
            f"study {study.name!r} is a probe without a baseline; measure it with a candidate"
        )
    if not values[base].repeats:
        raise MeasurementError(
            f"study {study.name!r} has no measured baseline, so nothing is known of its workload; "
            "measure it again"
        )
    compared, error = None, None
    try:
        comparison = decide_study(study, variants)
        compared = next(c for c in comparison.candidates if c.variant == planned.name)
    except MeasurementError as failure:
        error = str(failure)
    return _Measured(
        study=study,
        planned=planned,
        baseline=Explained(values[base], phases.get(base, {})),
        candidate=Explained(values[planned.name], phases.get(planned.name, {})),
        compared=compared,
        error=error,
    )


def _chosen(study: Study, candidate: str | None, first: _Measured | None) -> Variant:
    """The variant that is judged: named, the only one, or the primary's change."""
    candidates = {v.name: v for v in study.variants if v.role == "candidate"}
    if candidate in candidates:
        return candidates[candidate]
    same = [v for v in candidates.values() if first and v.changed == first.planned.changed]
    if len(same) == 1 and first is not None and first.planned.changed:
        return same[0]
    if len(candidates) == 1 and candidate is None:
        return next(iter(candidates.values()))
    names = ", ".join(candidates) or "none"
    if candidate is None:
        raise PlanError(
            f"study {study.name!r} has the candidates {names}; say which with --candidate NAME"
        )
    raise PlanError(
        f"study {study.name!r} has no candidate "
        f"{shown(candidate)}{nearest(candidate, candidates)}; it has {names}"
    )


def _refuse_other_change(first: _Measured, one: _Measured) -> None:
    """One change on all workloads, or no gain could be attributed to it."""
    old, new = first.planned, one.planned
    same = (
        old.changed == new.changed
        if old.changed and new.changed
        else old.changed_variable == new.changed_variable
    )
    if not same:
        raise PlanError(
            f"the contract does not hold: changed_variable_differs: {old.name!r} changes "
            f"{shown(old.changed or old.changed_variable)} in study {first.study.name!r}, and "
            f"{new.name!r} {shown(new.changed or new.changed_variable)} in {one.study.name!r}; "
            "give studies of the same change"
        )


def _leading(
    items: Sequence[Mapping[str, Any]], measured: Sequence[_Measured | None]
) -> _Measured | None:
    """The primary's study; where the contract has its record, the first that was read."""
    found = [
        (item.get("role") != "primary", one)
        for item, one in zip(items, measured, strict=True)
        if one is not None
    ]
    return min(found, key=lambda pair: pair[0])[1] if found else None


def _bottleneck(first: _Measured | None) -> str | None:
    """What the study was to relieve; else the phase in which its baseline spends most."""
    return None if first is None else first.study.hypothesis or first.baseline.bottleneck


def _workload(
    item: Mapping[str, Any],
    found: _Measured | None,
    first: _Measured | None,
    bottleneck: str | None,
) -> RegressionWorkload:
    role, given = str(item.get("role")), item.get("workload_id")
    if found is None:
        name = given if isinstance(given, str) else ""
        return RegressionWorkload(workload_id=name, role=role, record=dict(item))
    name = given if isinstance(given, str) else _workload_id(found.study, found.baseline.values)
    compared = found.compared
    time = compared.time if compared else None
    changes = time_changes(found.baseline, found.candidate)
    status, error = _status(found)
    return RegressionWorkload(
        workload_id=name,
        role=role,
        record={"workload_id": name, "role": role, "status": status, **_record(found, bottleneck)},
        study_id=found.study.study_id,
        study=found.study.name,
        error=error,
        delta=compared.delta if compared else {},
        pairs=compared.pairs if compared else 0,
        paired=measured_in_blocks(found.candidate.values),
        contradicted=contradiction(
            compare(found.baseline.values, found.candidate.values).step_time_ms, time
        ),
        saved_ms_low=time.saved_ms_low if time else None,
        saved_ms_high=time.saved_ms_high if time else None,
        bottleneck_trend=changes[bottleneck].trend if bottleneck in changes else None,
        effect_verified=found.candidate.values.effect_verified,
        differs=_differs(first, found),
    )


def _workload_id(study: Study, baseline: VariantValues) -> str:
    """Readable, and the same only for the same workload.

    The digest alone tells workloads apart; the sizes are for people.
    """
    sizes = [f"{key[0]}{baseline.config[key]}" for key in _SIZES if key in baseline.config]
    named = " ".join([study.workload.name, "-".join(sizes)]).strip()
    return f"{named} {study.workload.digest[:8]}"


def _status(found: _Measured) -> tuple[str, str | None]:
    """A workload is ok where every repeat of both sides is."""
    if found.compared is None:
        return "failed", found.error
    for side in (found.baseline.values, found.candidate.values):
        if side.status is not Status.OK:
            return side.status.value, f"{side.name}: {side.error or side.status.value}"
    if compare(found.baseline.values, found.candidate.values).step_time_ms is None:
        return "failed", "step_time_ms was not measured on both sides"
    return "ok", None


def _record(found: _Measured, bottleneck: str | None) -> dict[str, JsonValue]:
    """The record of the source's form; the candidate's times are for the baseline's samples."""
    old, new = found.baseline.values, found.candidate.values
    difference = compare(old, new)
    times = difference.step_time_ms or (None, None)
    checked = difference.quality_gap is None
    sides: list[JsonValue] = [
        {
            "step_time_ms": time,
            "peak_mem_mb": None if difference.memory_gap else side.metrics.get("peak_mem_mb"),
            "throughput": side.metrics.get("samples_per_s"),
            # A loss on one fixed batch says nothing about quality.
            "quality": side.metrics.get("eval_loss") if checked else None,
        }
        for side, time in zip((old, new), times, strict=True)
    ]
    changes = time_changes(found.baseline, found.candidate)
    known = changes and bottleneck in (*changes, MEMORY, None)
    return {
        "baseline": sides[0],
        "candidate": sides[1],
        "baseline_stages_ms": {k: c.before for k, c in changes.items()} if known else None,
        "candidate_stages_ms": {k: c.after for k, c in changes.items()} if known else None,
    }


def _differs(first: _Measured | None, found: _Measured) -> dict[str, Any]:
    if first is None or first is found:
        return {}
    old, new = first.baseline.values.config, found.baseline.values.config
    return {
        key: (old.get(key), new.get(key))
        for key in dict.fromkeys((*old, *new))
        if old.get(key) != new.get(key)
    }


# --- the record of it --------------------------------------------------------------------------


def _name(
    name: str | None, signed: RegressionContract, workloads: Sequence[RegressionWorkload]
) -> str:
    primary = next(w for w in workloads if w.role == "primary")
    return name or f"regression: {signed.candidate_id} on {primary.study or primary.workload_id}"


def _experiment(store: Store, first: _Measured | None) -> str | None:
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
