"""The studies of a regression, read as workloads: what its contract compares of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any

from pydantic import JsonValue

from trainperf_mlflow.analysis.compare import compare
from trainperf_mlflow.analysis.convergence import judged, with_divergence
from trainperf_mlflow.analysis.explained import Explained
from trainperf_mlflow.analysis.hypothesis import time_changes
from trainperf_mlflow.analysis.side_by_side import contradiction
from trainperf_mlflow.decisions.candidate import candidates_of
from trainperf_mlflow.decisions.evidence import measured_in_blocks
from trainperf_mlflow.decisions.regression import MEMORY
from trainperf_mlflow.decisions.regression_study import (
    RegressionWorkload,
)
from trainperf_mlflow.decisions.study import decide_study
from trainperf_mlflow.errors import MeasurementError, PlanError
from trainperf_mlflow.messages import nearest, shown
from trainperf_mlflow.results.comparison import CandidateComparison
from trainperf_mlflow.results.estimates import ConvergenceCheck
from trainperf_mlflow.results.record import Status
from trainperf_mlflow.results.study import Study, Variant
from trainperf_mlflow.results.values import VariantValues

if TYPE_CHECKING:
    from trainperf_mlflow.tracking.store import Store

_SIZES = ("batch_size", "seq_len")


@dataclass(frozen=True)
class MeasuredWorkload:
    """One workload's study, read: what the contract compares."""

    study: Study
    planned: Variant  # the candidate
    baseline: Explained
    candidate: Explained
    compared: CandidateComparison | None  # None: no repeat of the baseline succeeded
    error: str | None

    def trained(self, margin: float) -> ConvergenceCheck | None:
        """What a longer training showed; None where none was asked for."""
        old, new = self.baseline.values, self.candidate.values
        final = compare(old, new, candidates_of(self.study)).final
        return None if final is None else with_divergence(judged(final, margin), old, new)


def measured_workloads(
    store: Store, items: Sequence[Mapping[str, Any]], candidate: str | None, signed: str | None
) -> list[MeasuredWorkload | None]:
    """Each workload's study; None where the contract has the record itself."""
    order = sorted(range(len(items)), key=lambda place: items[place].get("role") != "primary")
    found: dict[int, MeasuredWorkload | None] = {}
    first: MeasuredWorkload | None = None
    for place in order:
        ref = items[place].get("study")
        if ref is None:
            found[place] = None
            continue
        found[place] = one = _load(store, str(ref), candidate, signed, first)
        first = first or one
        _refuse_other_change(first, one)
    return [found[place] for place in range(len(items))]


def _load(
    store: Store,
    ref: str,
    candidate: str | None,
    signed: str | None,
    first: MeasuredWorkload | None,
) -> MeasuredWorkload:
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
    return MeasuredWorkload(
        study=study,
        planned=planned,
        baseline=Explained(values[base], phases.get(base, {})),
        candidate=Explained(values[planned.name], phases.get(planned.name, {})),
        compared=compared,
        error=error,
    )


def _chosen(study: Study, candidate: str | None, first: MeasuredWorkload | None) -> Variant:
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


def _refuse_other_change(first: MeasuredWorkload, one: MeasuredWorkload) -> None:
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


def leading(
    items: Sequence[Mapping[str, Any]], measured: Sequence[MeasuredWorkload | None]
) -> MeasuredWorkload | None:
    """The primary's study; where the contract has its record, the first that was read."""
    found = [
        (item.get("role") != "primary", one)
        for item, one in zip(items, measured, strict=True)
        if one is not None
    ]
    return min(found, key=lambda pair: pair[0])[1] if found else None


def bottleneck_of(first: MeasuredWorkload | None) -> str | None:
    """What the study was to relieve; else the phase in which its baseline spends most."""
    return None if first is None else first.study.hypothesis or first.baseline.bottleneck


def workload_of(
    item: Mapping[str, Any],
    found: MeasuredWorkload | None,
    first: MeasuredWorkload | None,
    bottleneck: str | None,
    quality_gate: float,
) -> RegressionWorkload:
    """A workload as the contract reads it.

    Args:
        found: None where the contract has the record itself.
        quality_gate: by more than this a longer training must not end worse.
    """
    role, given = str(item.get("role")), item.get("workload_id")
    if found is None:
        name = given if isinstance(given, str) else ""
        return RegressionWorkload(workload_id=name, role=role, record=dict(item))
    name = given if isinstance(given, str) else _workload_id(found.study, found.baseline.values)
    compared = found.compared
    time = compared.time if compared else None
    changes = time_changes(found.baseline, found.candidate)
    trained = found.trained(quality_gate)
    status, error = _status(found, trained)
    return RegressionWorkload(
        workload_id=name,
        role=role,
        record={
            "workload_id": name,
            "role": role,
            "status": status,
            **_record(found, bottleneck, trained),
        },
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
        convergence=trained,
        differs=_differs(first, found),
    )


def _workload_id(study: Study, baseline: VariantValues) -> str:
    """Readable, and the same only for the same workload.

    The digest alone tells workloads apart; the sizes are for people.
    """
    sizes = [f"{key[0]}{baseline.config[key]}" for key in _SIZES if key in baseline.config]
    named = " ".join([study.workload.name, "-".join(sizes)]).strip()
    return f"{named} {study.workload.digest[:8]}"


def _status(found: MeasuredWorkload, trained: ConvergenceCheck | None) -> tuple[str, str | None]:
    """A workload is ok where every repeat of both sides is, and no longer training diverged."""
    if found.compared is None:
        return "failed", found.error
    for side in (found.baseline.values, found.candidate.values):
        if side.status is not Status.OK:
            return side.status.value, f"{side.name}: {side.error or side.status.value}"
    if compare(found.baseline.values, found.candidate.values).step_time_ms is None:
        return "failed", "step_time_ms was not measured on both sides"
    if trained is not None and trained.verdict == "diverged":
        return Status.DIVERGED.value, trained.text
    return "ok", None


def _record(
    found: MeasuredWorkload, bottleneck: str | None, trained: ConvergenceCheck | None
) -> dict[str, JsonValue]:
    """The record of the source's form; the candidate's times are for the baseline's samples."""
    old, new = found.baseline.values, found.candidate.values
    difference = compare(old, new)
    times = difference.step_time_ms or (None, None)
    qualities = _qualities(found, difference.quality_gap is None, trained)
    sides: list[JsonValue] = [
        {
            "step_time_ms": time,
            "peak_mem_mb": None if difference.memory_gap else side.metrics.get("peak_mem_mb"),
            "throughput": side.metrics.get("samples_per_s"),
            "quality": quality,
        }
        for side, time, quality in zip((old, new), times, qualities, strict=True)
    ]
    changes = time_changes(found.baseline, found.candidate)
    known = changes and bottleneck in (*changes, MEMORY, None)
    return {
        "baseline": sides[0],
        "candidate": sides[1],
        "baseline_stages_ms": {k: c.before for k, c in changes.items()} if known else None,
        "candidate_stages_ms": {k: c.after for k, c in changes.items()} if known else None,
    }


def _qualities(
    found: MeasuredWorkload, checked: bool, trained: ConvergenceCheck | None
) -> tuple[float | None, float | None]:
    """The eval losses of both sides; what a longer training shows stands above the short one's."""
    old, new = found.baseline.values, found.candidate.values
    if trained is not None and trained.verdict != "not_shown" and trained.difference is not None:
        before = fmean(r.eval_loss for r in old.convergence if r.eval_loss is not None)
        return before, before + trained.difference
    # A loss on one fixed batch says nothing about quality.
    return (old.metrics.get("eval_loss"), new.metrics.get("eval_loss")) if checked else (None, None)


def _differs(first: MeasuredWorkload | None, found: MeasuredWorkload) -> dict[str, Any]:
    if first is None or first is found:
        return {}
    old, new = first.baseline.values.config, found.baseline.values.config
    return {
        key: (old.get(key), new.get(key))
        for key in dict.fromkeys((*old, *new))
        if old.get(key) != new.get(key)
    }
