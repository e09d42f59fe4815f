"""The closing report ``profiling-optimization-benchmark/v1`` as a file holds it."""

from __future__ import annotations

from typing import Final, Literal

from pydantic import Field, JsonValue, field_validator

from trainperf_mlflow.decisions.activation_scope import ActivationScope
from trainperf_mlflow.decisions.qualification import CandidateQualification
from trainperf_mlflow.decisions.reasons import REASONS
from trainperf_mlflow.evidence.manifest import SEMANTIC_ID, Entry, Sha256
from trainperf_mlflow.messages import shown
from trainperf_mlflow.results.assessment import Assessment
from trainperf_mlflow.results.decision import Confidence
from trainperf_mlflow.results.estimates import ConvergenceCheck
from trainperf_mlflow.results.record import Record

SCHEMA: Final = "profiling-optimization-benchmark/v1"
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
    confidence: Confidence | None = None


class Basis(Record):
    """A decision that the close rests on; one of the scope is told, but bears no adoption."""

    what: Literal["measured", "regression", "activation_scope"]
    study_id: str
    candidate: str | None = None  # None: of the study as a whole
    decision: str
    confidence: Confidence


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

    @field_validator("reason")
    @classmethod
    def _known(cls, reason: str) -> str:
        if reason not in REASONS:
            raise ValueError(
                f"{shown(reason)} is no reason that this version knows; read it with the one "
                "that wrote it"
            )
        return reason


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
    longer_training: dict[str, ConvergenceCheck] = Field(default_factory=dict)  # by candidate
    # The weakest of what the adoption rests on; None in a close from before this was weighed.
    confidence: Confidence | None = None
    rests_on: tuple[Basis, ...] = ()
    trainperf: dict[str, JsonValue]  # what an import needs to make the same study of it

    @property
    def accepted(self) -> tuple[str, ...]:
        return tuple(item.name for item in self.candidates if item.decision == "accept")
