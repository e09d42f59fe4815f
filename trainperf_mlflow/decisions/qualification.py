"""The gates of course project 74's close: which candidates have earned their adoption?

The source calls a helper for the single candidate that it does not show; that
part is a reconstruction. The rule for the study is the source's.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal

from trainperf_mlflow.decisions.memory import BASELINE
from trainperf_mlflow.decisions.numbers import is_number, limit
from trainperf_mlflow.decisions.quality import settled
from trainperf_mlflow.decisions.reasons import REASONS
from trainperf_mlflow.results.record import Record

QUALIFICATION_GATES: MappingProxyType[str, float] = MappingProxyType(
    {
        "minimum_memory_saving_mb": 512.0,
        "minimum_throughput_ratio": 0.70,
        "maximum_loss_delta": 0.01,
    }
)
# A candidate that fails one of these is rejected; one that fails another gate can be tuned.
HARD_GATES = frozenset({"run_status", "loss_delta", "memory_budget", "longer_training"})
# What a longer training showed that keeps a candidate from its adoption; ours, not the source's.
_ENDED_BADLY = ("worse", "diverged")


class CandidateQualification(Record):
    """A candidate against the gates; None is what could not be computed.

    ``failed_gates``: run_status, memory_budget, loss_delta, longer_training (hard),
    memory_saving, throughput_ratio. ``missing_evidence`` names what the gates or the caller lack.
    """

    name: str
    decision: Literal["accept", "tune", "reject"]
    failed_gates: tuple[str, ...]
    missing_evidence: tuple[str, ...]
    memory_saving_mb: float | None
    throughput_ratio: float | None
    loss_delta: float | None  # candidate - baseline: higher is worse
    # The verdict on where it leads; None where nobody asked.
    longer_training: str | None = None


class Qualification(Record):
    """All candidates, and what follows for the study."""

    decision: Literal["accept", "tune", "reject"]
    reason: str
    next_action: str
    qualified_candidates: tuple[str, ...]
    candidate_records: tuple[CandidateQualification, ...]
    gates: dict[str, float]


def qualify_memory_candidates(
    candidates: Sequence[Mapping[str, Any]],
    feasible_names: Collection[str] | None,
    missing_evidence: Mapping[str, Sequence[str]] | None = None,
    gates: Mapping[str, Any] = QUALIFICATION_GATES,
    *,
    phase_report: bool = False,
) -> Qualification:
    """Apply the gates to every candidate, and decide on the study.

    Args:
        candidates: baseline and candidates as in ``summarize_memory_strategies``,
            measured without a profiler; ``longer_training`` is the verdict where there is one.
        feasible_names: who keeps the memory budget; None where no budget was decided.
        missing_evidence: by candidate, what the caller lacks (``profile_trace``, ...).
        gates: the three gates.
        phase_report: whether memory by phase was measured, which the next action depends on.

    Raises:
        ValueError: a gate is missing or invalid, the baseline is missing, or a name
            is missing or given twice.
    """
    limits = {key: limit(gates, key, "gates") for key in QUALIFICATION_GATES}
    names = [item.get("name") for item in candidates]
    if not all(isinstance(name, str) and name for name in names) or len({*names}) < len(names):
        raise ValueError(f"the names are {names!r}; give each candidate a name of its own")
    baseline = next((item for item in candidates if item.get("name") == BASELINE), None)
    if baseline is None:
        raise ValueError(f"no candidate has the name {BASELINE!r}; the gates compare with it")
    records = tuple(
        qualify_candidate(
            baseline,
            item,
            limits,
            feasible=None if feasible_names is None else item.get("name") in feasible_names,
            missing=(missing_evidence or {}).get(str(item.get("name")), ()),
        )
        for item in candidates
        if item.get("name") != BASELINE
    )
    reason = qualification_reason(records)
    next_action = REASONS[reason].next_action
    if REASONS[reason].decision == "tune" and phase_report:
        next_action = "retain_phase_evidence_and_do_not_adopt_at_fixed_workload"
    return Qualification(
        decision=_decision(reason),
        reason=reason,
        next_action=next_action,
        qualified_candidates=tuple(item.name for item in records if item.decision == "accept"),
        candidate_records=records,
        gates=limits,
    )


def qualify_candidate(
    baseline: Mapping[str, Any],
    candidate: Mapping[str, Any],
    gates: Mapping[str, float],
    *,
    feasible: bool | None,
    missing: Sequence[str] = (),
) -> CandidateQualification:
    """One candidate: a failed hard gate rejects it, another one or missing evidence tunes it."""
    failed, lacking = [], list(missing)
    saving = ratio = loss = None
    if baseline.get("status", "ok") != "ok":
        lacking.append("baseline")
    if candidate.get("status", "ok") != "ok":
        failed.append("run_status")
    else:
        memory = _pair(baseline, candidate, "peak_memory_mb")
        rate = _pair(baseline, candidate, "samples_per_s")
        saving = memory[0] - memory[1] if memory else None
        ratio = rate[1] / rate[0] if rate else None
        loss = _loss_delta(baseline, candidate)
        for gate, value, name in (
            ("memory_saving", saving, "peak_memory_mb"),
            ("throughput_ratio", ratio, "samples_per_s"),
            ("loss_delta", loss, "eval_loss"),
        ):
            if value is None:
                lacking.append(name)
            elif not _passes(gate, value, gates):
                failed.append(gate)
    trained = candidate.get("longer_training")
    if trained in _ENDED_BADLY:
        failed.append("longer_training")
    if feasible is None:
        lacking.append("memory_budget")
    elif not feasible:
        failed.append("memory_budget")
    decision: Literal["accept", "tune", "reject"] = "accept"
    if HARD_GATES & set(failed):
        decision = "reject"
    elif failed or lacking:
        decision = "tune"
    return CandidateQualification(
        name=str(candidate.get("name")),
        decision=decision,
        failed_gates=tuple(failed),
        missing_evidence=tuple(dict.fromkeys(lacking)),
        memory_saving_mb=saving,
        throughput_ratio=ratio,
        loss_delta=loss,
        longer_training=trained,
    )


def qualification_reason(records: Sequence[CandidateQualification]) -> str:
    """The study's code: any qualified, else any to tune, else none."""
    if any(item.decision == "accept" for item in records):
        return "at_least_one_candidate_passed_profiling_qualification"
    tuned = [item for item in records if item.decision == "tune"]
    if not tuned:
        return "all_candidates_failed_hard_gates"
    only_memory = all(
        item.failed_gates == ("memory_saving",) and not item.missing_evidence for item in tuned
    )
    if only_memory:
        return "global_peak_memory_saving_below_threshold"
    return "candidate_requires_more_evidence_or_threshold_tuning"


def _decision(reason: str) -> Literal["accept", "tune", "reject"]:
    decision = REASONS[reason].decision
    assert decision != "measure"
    return decision


def _passes(gate: str, value: float, gates: Mapping[str, float]) -> bool:
    settled_value = settled(value)
    if gate == "memory_saving":
        return settled_value >= gates["minimum_memory_saving_mb"]
    if gate == "throughput_ratio":
        return settled_value >= gates["minimum_throughput_ratio"]
    return settled_value <= gates["maximum_loss_delta"]


def _pair(
    baseline: Mapping[str, Any], candidate: Mapping[str, Any], key: str
) -> tuple[float, float] | None:
    before, after = baseline.get(key), candidate.get(key)
    # A peak or a throughput of 0 is what a missing counter reports, never a measurement.
    if not (is_number(before) and is_number(after) and before > 0 and after > 0):
        return None
    return float(before), float(after)


def _loss_delta(baseline: Mapping[str, Any], candidate: Mapping[str, Any]) -> float | None:
    """Of the eval loss, else of the training loss; never of one against the other."""
    for key in ("eval_loss", "loss"):
        before, after = baseline.get(key), candidate.get(key)
        if before is None and after is None:
            continue
        return float(after - before) if is_number(before) and is_number(after) else None
    return None
