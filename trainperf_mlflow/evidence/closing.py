"""The closing report ``profiling-optimization-benchmark/v1``: what a study's evidence is worth.

Two questions are answered apart and never for one another: whether the full training may
adopt a candidate, and whether checkpointing helps where activations fill the memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from pydantic import JsonValue

from trainperf_mlflow.analysis.compare import compare
from trainperf_mlflow.analysis.side_by_side import contradiction
from trainperf_mlflow.decisions.activation_scope import (
    ActivationScope,
    assess_activation_memory_scope,
)
from trainperf_mlflow.decisions.qualification import (
    CandidateQualification,
    Qualification,
    qualification_reason,
    qualify_memory_candidates,
)
from trainperf_mlflow.decisions.reasons import REASONS
from trainperf_mlflow.errors import EvidenceError
from trainperf_mlflow.evidence.exported import Exported, candidate_item, rounded_means
from trainperf_mlflow.evidence.identity import MIN_RUNS, same_under_pressure
from trainperf_mlflow.evidence.imported import BASELINE, exported_block
from trainperf_mlflow.evidence.manifest import SEMANTIC_ID, Entry, Manifest, Sha256
from trainperf_mlflow.evidence.reading import Json
from trainperf_mlflow.results.assessment import Assessment
from trainperf_mlflow.results.decision import Decision
from trainperf_mlflow.results.record import Record, Status
from trainperf_mlflow.results.values import VariantValues

SCHEMA: Final = "profiling-optimization-benchmark/v1"
POLICY = "qualification"
BUDGET_POLICIES = frozenset({"memory-strategy", "memory-budget"})
_OPEN_REASONS = frozenset({"gain_not_confirmed", "more_pairs_needed"})
# Only what was measured without a profiler is ever weighed.
EVIDENCE_ROLES = {
    "adoption_metrics": "unprofiled_repeated_measurements",
    "profiler_metrics": "bottleneck_attribution_only",
    "activation_scope_metrics": "scope_limited_unprofiled_repeated_measurements",
}


class PhaseMemory(Record):
    status: Literal["collected", "not_collected"]
    report: Entry | None = None
    timing_for_adoption: Literal[False] = False


class Profile(Record):
    """Which traces and phases there are; they say where time goes, never what to adopt."""

    status: Literal["collected", "not_collected"]
    tool: Literal["torch.profiler"] | None
    trace_dir: str | None
    trace_files: tuple[str, ...]
    expected_strategies: tuple[str, ...]
    missing_strategies: tuple[str, ...]
    trace_files_by_strategy: dict[str, tuple[str, ...]]
    measurement_role: Literal["bottleneck_attribution_only"] = "bottleneck_attribution_only"
    timing_for_adoption: Literal[False] = False
    report: Entry | None
    top_operators: dict[str, list[JsonValue]]
    phase_memory: PhaseMemory


class Pressure(Record):
    """The same training with a longer sequence, where it was measured."""

    status: Literal["collected", "not_collected"]
    reason: str | None = None
    study_id: str | None = None
    artifact: Entry | None = None
    config: dict[str, JsonValue] | None = None


class Regression(Record):
    """The acceptance over several workloads, where there is one."""

    status: Literal["collected", "not_collected"]
    study_id: str | None = None
    candidate: str | None = None  # None: of the study as a whole
    decision: str | None = None
    reason: str | None = None


class ScopeBoundary(Record):
    top_level_decision_scope: Literal["full_training_adoption"] = "full_training_adoption"
    activation_scope_promotable_to_full_training: Literal[False] = False


class Validation(Record):
    """What was checked, and against what."""

    workload_identity: dict[str, JsonValue]
    pressure_validation: Pressure
    regression: tuple[Regression, ...]
    manifest_sha256: Sha256
    source_artifacts: dict[str, Entry]
    evidence_roles: dict[str, str]
    scope_boundary: ScopeBoundary


class Verdict(Record):
    decision: Literal["accept", "tune", "reject"]
    reason: str
    next_action: str


class FullTrainingScope(Verdict):
    scope: Literal["full_training_adoption"] = "full_training_adoption"
    optimizer: str | None
    seq_len: int | None


class NoActivationScope(Record):
    """No ladder was given, so nothing is said within that scope."""

    scope: Literal["activation_memory_isolation"] = "activation_memory_isolation"
    decision: Literal["not_collected"] = "not_collected"
    reason: Literal["optional_scope_study_not_given"] = "optional_scope_study_not_given"
    promotable_to_full_training: Literal[False] = False


class DecisionScopes(Record):
    full_training_adoption: FullTrainingScope
    activation_memory_mechanism: ActivationScope | NoActivationScope


class ClosingReport(Record):
    """``evidence/closing.json``."""

    schema_version: Literal["profiling-optimization-benchmark/v1"] = SCHEMA
    semantic_id: Literal["PERF-PROFILING-CLOSURE"] = SEMANTIC_ID
    run_label: str
    project: str = "74"
    stage: Literal["profiling_driven_optimization"] = "profiling_driven_optimization"
    study_id: str
    config: dict[str, JsonValue]
    experiment: dict[str, JsonValue]
    gates: dict[str, float]
    candidates: tuple[CandidateQualification, ...]
    profile: Profile
    bottleneck: Assessment | None
    validation: Validation
    decision: Verdict
    decision_scopes: DecisionScopes
    standard_metrics: dict[str, dict[str, JsonValue]]
    missing_evidence: tuple[str, ...]
    limitations: tuple[str, ...]
    trainperf: dict[str, JsonValue]  # what an import needs to make the same study of it

    @property
    def accepted(self) -> tuple[str, ...]:
        return tuple(item.name for item in self.candidates if item.decision == "accept")


@dataclass(frozen=True)
class Closable:
    """A study and all that a close reads of it, besides the manifest."""

    exported: Exported
    profiles: Mapping[str, Mapping[str, Any]]  # by variant: its trace's summary
    phases: Mapping[str, Mapping[str, Any]]  # by variant: its phases' summary
    scope: Mapping[str, Any] | None = None  # the ladder's report
    pressure: tuple[str, Json] | None = None  # its study and configuration
    regressions: Sequence[Regression] = field(default=())


def close_study(found: Closable, manifest: Manifest, manifest_sha256: str) -> ClosingReport:
    """Weigh a study's evidence by the gates, for the full training and for the scope apart.

    Raises:
        EvidenceError: the ladder or the pressure run is not of the same workload, with every
            mismatch, or the ladder has too few repeats.
    """
    exported = found.exported
    config = exported.config()
    scope = _scope(found, manifest, config)
    pressure = _pressure(found, manifest, config)
    qualification = _qualify(found)
    profile = _profile(found, manifest)
    verdict = Verdict(
        decision=qualification.decision,
        reason=qualification.reason,
        next_action=qualification.next_action,
    )
    length = config.get("seq_len")
    return ClosingReport(
        run_label=manifest.run_label,
        study_id=exported.study.study_id,
        config=config,
        experiment={**config, "backend": "torch"},
        gates=qualification.gates,
        candidates=qualification.candidate_records,
        profile=profile,
        bottleneck=exported.comparison.assessment,
        validation=Validation(
            workload_identity={
                **exported.study.workload.identity,
                "workload_digest": exported.study.workload.digest,
            },
            pressure_validation=pressure,
            regression=tuple(found.regressions) or (Regression(status="not_collected"),),
            manifest_sha256=manifest_sha256,
            source_artifacts=manifest.source_artifacts,
            evidence_roles=EVIDENCE_ROLES,
            scope_boundary=ScopeBoundary(),
        ),
        decision=verdict,
        decision_scopes=DecisionScopes(
            full_training_adoption=FullTrainingScope(
                **verdict.model_dump(),
                optimizer=config.get("optimizer"),
                seq_len=length if isinstance(length, int) else None,
            ),
            activation_memory_mechanism=scope,
        ),
        standard_metrics=_standard_metrics(exported),
        missing_evidence=tuple(_missing(found, qualification)),
        limitations=tuple(_limitations(found, manifest)),
        trainperf=exported_block(exported.study),
    )


def decision_of(report: ClosingReport, confidence: Any) -> Decision:
    """The close's decision on the study, as its run is tagged with it."""
    verdict = report.decision
    accepted = ", ".join(report.accepted) or "none"
    return Decision(
        **verdict.model_dump(),
        text=f"{REASONS[verdict.reason].en}; qualified: {accepted}",
        rollback=verdict.decision == "reject",
        policy=POLICY,
        numbers=report.gates,
        confidence=confidence,
    )


def decision_on(record: CandidateQualification, gates: Mapping[str, float]) -> Decision:
    """The close's decision on one candidate."""
    reason = qualification_reason([record])
    values = ("memory_saving_mb", "throughput_ratio", "loss_delta")
    known = {key: value for key in values if (value := getattr(record, key)) is not None}
    return Decision(
        decision=record.decision,
        reason=reason,
        text=gates_text(record),
        next_action=REASONS[reason].next_action,
        rollback=record.decision == "reject",
        policy=POLICY,
        numbers={**gates, **known},
    )


def gates_text(record: CandidateQualification) -> str:
    """What a candidate failed and lacks, in words."""
    parts = [
        f"{title} {', '.join(names)}"
        for title, names in (
            ("fails", record.failed_gates),
            ("lacks", record.missing_evidence),
        )
        if names
    ]
    return "; ".join(parts) or "passes every gate, with all evidence"


# --- the gates ---------------------------------------------------------------------------------


def _qualify(found: Closable) -> Qualification:
    exported = found.exported
    baseline = next(v for v in exported.variants if v.role == "baseline")
    lacking = {
        variant.name: tuple(_lacking(found, baseline, variant))
        for variant in exported.variants
        if variant.role == "candidate"
    }
    feasible = None
    if exported.comparison.policy in BUDGET_POLICIES:
        feasible = {
            candidate.variant
            for candidate in exported.comparison.candidates
            if candidate.evaluation is not None and candidate.evaluation.status == "feasible"
        }
    items = [_judged(variant, baseline) for variant in exported.variants]
    return qualify_memory_candidates(
        items, feasible, lacking, phase_report=bool(_with_phases(found))
    )


def _judged(variant: VariantValues, baseline: VariantValues) -> Json:
    """A variant as the gates read it; memory that was measured in another way is not compared."""
    item = candidate_item(variant, "peak_memory_mb")
    if variant is baseline:
        return {**item, "name": BASELINE}
    if variant.peak_mem_source != baseline.peak_mem_source:
        item.pop("peak_memory_mb", None)
    return item


def _lacking(found: Closable, baseline: VariantValues, variant: VariantValues) -> Iterable[str]:
    pair = {baseline.name, variant.name}
    if min(_ok_repeats(baseline), _ok_repeats(variant)) < MIN_RUNS:
        yield "three_repeats"
    if variant.effect_verified is False:
        yield "change_in_effect"
    if _unconfirmed(found, variant) or _contradicted(found, baseline, variant):
        yield "confirmed_gain"
    if not pair <= _with_traces(found):
        yield "profile_trace"
    if not pair <= _with_phases(found):
        yield "phase_memory"
    about = [r for r in found.regressions if r.candidate in (None, variant.name)]
    if not about:
        yield "regression"
    elif any(r.decision != "accept" for r in about):
        yield "regression_acceptance"


def _unconfirmed(found: Closable, variant: VariantValues) -> bool:
    """Whether the budget's own rule would accept the candidate, but its interval does not.

    An imported study has no intervals, and is decided by its point values.
    """
    comparison = found.exported.comparison
    if comparison.policy not in BUDGET_POLICIES:
        return False
    decided = next((c.decision for c in comparison.candidates if c.variant == variant.name), None)
    return decided is not None and (
        decided.reason in _OPEN_REASONS or decided.confidence == "unfit"
    )


def _contradicted(found: Closable, baseline: VariantValues, variant: VariantValues) -> bool:
    """Whether the pairs say the opposite of the mean rates that the throughput gate reads."""
    item = next(
        (c for c in found.exported.comparison.candidates if c.variant == variant.name), None
    )
    times = compare(baseline, variant).step_time_ms
    return item is not None and contradiction(times, item.time) is not None


def _ok_repeats(variant: VariantValues) -> int:
    return sum(repeat.status is Status.OK for repeat in variant.repeats)


def _with_traces(found: Closable) -> set[str]:
    return {n for n, s in found.profiles.items() if s.get("status") == "ok" and s.get("trace_file")}


def _with_phases(found: Closable) -> set[str]:
    return {name for name, s in found.phases.items() if s.get("status") == "ok"}


def _missing(found: Closable, qualification: Qualification) -> Iterable[str]:
    records = qualification.candidate_records
    yield from dict.fromkeys(name for record in records for name in record.missing_evidence)
    if found.scope is None:
        yield "activation_memory_scope"
    if found.pressure is None:
        yield "pressure_validation"


def _limitations(found: Closable, manifest: Manifest) -> Iterable[str]:
    exported = found.exported
    yield "decision_holds_for_the_fixed_workload_only"
    yield "profiled_and_phase_times_are_never_used_for_adoption"
    yield "activation_scope_does_not_establish_full_training_adoption"
    if exported.study.source is not None:
        yield "runs_were_imported_and_not_paired"
    if any(v.peak_mem_source == "tensor_tracker" for v in exported.variants):
        yield "memory_is_that_of_tracked_tensors_and_not_of_an_accelerator"
    if not all(v.quality_checked for v in exported.variants):
        yield "quality_was_not_checked_on_held_out_text"
    baseline = next(v for v in exported.variants if v.role == "baseline")
    if any(_contradicted(found, baseline, v) for v in exported.variants if v is not baseline):
        yield "mean_throughput_is_contradicted_by_pairs_measured_side_by_side"
    if any(artifact.fixed_at == "close" for artifact in manifest.artifacts):
        yield "some_artifacts_were_first_hashed_at_the_close"


# --- the parts ---------------------------------------------------------------------------------


def _scope(
    found: Closable, manifest: Manifest, config: Mapping[str, Any]
) -> ActivationScope | NoActivationScope:
    if found.scope is None:
        return NoActivationScope()
    try:
        scope = assess_activation_memory_scope(found.scope, config)
    except ValueError as error:
        raise EvidenceError(f"--scope-study: {error}") from None
    entry = manifest.source_artifacts["activation_memory_scope"]
    return scope.model_copy(update={"evidence": entry.model_dump()})


def _pressure(found: Closable, manifest: Manifest, config: Mapping[str, Any]) -> Pressure:
    if found.pressure is None:
        return Pressure(status="not_collected", reason="optional_pressure_study_not_given")
    study_id, own = found.pressure
    identity = same_under_pressure({"config": own}, config)
    if not identity.matches:
        raise EvidenceError(
            f"--pressure-study: {'; '.join(map(str, identity.mismatches))}; it must be the same "
            "training with a longer sequence"
        )
    return Pressure(
        status="collected",
        study_id=study_id,
        artifact=manifest.source_artifacts["pressure_validation"],
        config=own,
    )


def _profile(found: Closable, manifest: Manifest) -> Profile:
    names = [variant.name for variant in found.exported.variants]
    runs = {variant.name: variant.run_id for variant in found.exported.variants}
    traces = {
        artifact.run_id: f"{artifact.run_id}/{artifact.path}"
        for artifact in manifest.artifacts
        if artifact.part == "study" and artifact.role == "trace"
    }
    files = {
        name: (traces[run],) if (run := runs[name]) in traces and run is not None else ()
        for name in names
    }
    report = manifest.profile.phase_memory.report
    return Profile(
        status="collected" if traces else "not_collected",
        tool="torch.profiler" if traces else None,
        trace_dir=manifest.profile.trace_dir,
        trace_files=tuple(path for paths in files.values() for path in paths),
        expected_strategies=tuple(names),
        missing_strategies=tuple(name for name in names if not files[name]),
        trace_files_by_strategy=files,
        report=manifest.profile.report,
        top_operators={
            name: list(summary.get("top_operators") or [])
            for name, summary in found.profiles.items()
        },
        phase_memory=PhaseMemory(
            status="collected" if report is not None else "not_collected", report=report
        ),
    )


def _standard_metrics(exported: Exported) -> dict[str, dict[str, JsonValue]]:
    """Each variant's means as the gates read them, by the source's names."""
    found: dict[str, dict[str, JsonValue]] = {}
    for variant in exported.variants:
        item: dict[str, JsonValue] = {"status": variant.status.value}
        for key, value in rounded_means(variant).items():
            item["peak_memory_mb" if key == "peak_mem_mb" else key] = value
        found[BASELINE if variant.role == "baseline" else variant.name] = item
    return found
