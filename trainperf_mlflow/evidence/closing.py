"""The closing report ``profiling-optimization-benchmark/v1``: what a study's evidence is worth.

Two questions are answered apart and never for one another: whether the full training may
adopt a candidate, and whether checkpointing helps where activations fill the memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import JsonValue

from trainperf_mlflow.decisions.activation_scope import (
    ActivationScope,
    assess_activation_memory_scope,
)
from trainperf_mlflow.decisions.qualification import (
    CandidateQualification,
    Qualification,
    qualification_reason,
)
from trainperf_mlflow.decisions.reasons import REASONS
from trainperf_mlflow.errors import EvidenceError
from trainperf_mlflow.evidence.closing_report import (
    EVIDENCE_ROLES,
    ClosingReport,
    DecisionScopes,
    FullTrainingScope,
    NoActivationScope,
    PhaseMemory,
    Pressure,
    Profile,
    Regression,
    ScopeBoundary,
    Validation,
    Verdict,
)
from trainperf_mlflow.evidence.confidence import (
    candidate_confidence,
    confidence_text,
    rests_on,
    weakest,
)
from trainperf_mlflow.evidence.exported import Exported, rounded_means
from trainperf_mlflow.evidence.gates import Closable, contradicted, longer_training, qualify
from trainperf_mlflow.evidence.identity import same_under_pressure
from trainperf_mlflow.evidence.imported import BASELINE, exported_block
from trainperf_mlflow.evidence.manifest import Manifest
from trainperf_mlflow.results.comparison import Comparison
from trainperf_mlflow.results.decision import Decision
from trainperf_mlflow.results.estimates import ConvergenceCheck

POLICY = "qualification"
# Why a candidate that trained on and did not end as well is rejected.
_ENDED_BADLY = {"worse": "eval_loss_constraint_broken", "diverged": "candidate_diverged"}


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
    trained = longer_training(found)
    qualification = qualify(found, trained)
    profile = _profile(found, manifest)
    bases = rests_on(found, qualification.qualified_candidates)
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
        limitations=tuple(_limitations(found, manifest, trained)),
        longer_training=trained,
        confidence=weakest(bases),
        rests_on=bases,
        trainperf=exported_block(exported.study),
    )


def decision_of(report: ClosingReport, measured: Any) -> Decision:
    """The close's decision on the study, as its run is tagged with it.

    Args:
        measured: the confidence of the measured decision, for a report that has none itself.
    """
    verdict = report.decision
    accepted = ", ".join(report.accepted) or "none"
    parts = [REASONS[verdict.reason].en, f"qualified: {accepted}"]
    parts += [f"{name}: {check.text}" for name, check in report.longer_training.items()]
    parts += [confidence_text(report)] if report.rests_on else []
    return Decision(
        **verdict.model_dump(),
        text="; ".join(parts),
        rollback=verdict.decision == "reject",
        policy=POLICY,
        numbers=report.gates,
        confidence=report.confidence or measured,
    )


def decision_on(
    record: CandidateQualification, report: ClosingReport, comparison: Comparison
) -> Decision:
    """The close's decision on one candidate.

    Args:
        comparison: as it was measured.
    """
    reason = _ENDED_BADLY.get(record.longer_training or "") or qualification_reason([record])
    trained = report.longer_training.get(record.name)
    values = ("memory_saving_mb", "throughput_ratio", "loss_delta")
    known = {key: value for key in values if (value := getattr(record, key)) is not None}
    return Decision(
        decision=record.decision,
        reason=reason,
        text="; ".join([gates_text(record), *([trained.text] if trained else [])]),
        next_action=REASONS[reason].next_action,
        rollback=record.decision == "reject",
        policy=POLICY,
        numbers={**report.gates, **known},
        confidence=candidate_confidence(record.name, report, comparison),
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


def _missing(found: Closable, qualification: Qualification) -> Iterable[str]:
    records = qualification.candidate_records
    yield from dict.fromkeys(name for record in records for name in record.missing_evidence)
    if found.scope is None:
        yield "activation_memory_scope"
    if found.pressure is None:
        yield "pressure_validation"


def _limitations(
    found: Closable, manifest: Manifest, trained: Mapping[str, ConvergenceCheck]
) -> Iterable[str]:
    exported = found.exported
    yield "decision_holds_for_the_fixed_workload_only"
    yield "profiled_and_phase_times_are_never_used_for_adoption"
    yield "activation_scope_does_not_establish_full_training_adoption"
    if exported.study.source is not None:
        yield "runs_were_imported_and_not_paired"
    if any(v.peak_mem_source == "tensor_tracker" for v in exported.variants):
        yield "memory_is_that_of_tracked_tensors_and_not_of_an_accelerator"
    if any(check.verdict == "not_shown" for check in trained.values()):
        yield "longer_training_does_not_show_whether_it_ends_as_well"
    if not all(v.quality_checked for v in exported.variants):
        yield "quality_was_not_checked_on_held_out_text"
    baseline = next(v for v in exported.variants if v.role == "baseline")
    if any(contradicted(found, baseline, v) for v in exported.variants if v is not baseline):
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
