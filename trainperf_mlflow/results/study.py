"""What was asked for and on what it runs: the study, its variants and its workload."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, JsonValue

from trainperf_mlflow.results.record import Record, Role, Setting


class Variant(Record):
    """The baseline or one candidate, as it was planned.

    ``config`` is the whole merged configuration, ``changed`` the part in which
    a candidate differs from the baseline (empty for the baseline).
    """

    name: str
    role: Role
    config: dict[str, Setting]
    changed: dict[str, Setting] = Field(default_factory=dict)
    changed_variable: str | None = None


class Workload(Record):
    """What must be equal between the variants, and its digest.

    ``identity`` is everything that is trained and on what, without the changed
    variables; ``digest`` is the SHA-256 of its canonical JSON.
    """

    digest: str
    identity: dict[str, JsonValue]
    device: str  # resolved, e.g. "cpu", "cuda:0"
    name: str  # the preset's or the task's name, for people
    source: str  # where the data come from, for people
    # Variant name -> why this device cannot run it.
    unsupported: dict[str, str] = Field(default_factory=dict)
    # Facts for people and for the run's params: parameters, weights=random, ...
    facts: dict[str, JsonValue] = Field(default_factory=dict)


class PublishedDecision(Record):
    """What a published report decided, in its own words."""

    decision: str
    reason: str | None = None  # a code, or the author's sentence
    next_action: str | None = None
    best_candidate: str | None = None
    # What the bare rule said, where the evidence then made another decision of it.
    by_point_values: PublishedDecision | None = None


class Source(Record):
    """The published report that a study was imported from."""

    file: str  # its name, for people
    format: str  # as `evidence.formats` names it
    sha256: str  # of the file's bytes
    schema_version: str | None = None
    semantic_id: str | None = None
    published: PublishedDecision | None = None


class Calibration(Record):
    """What a machine makes of identical code; percentages of a step's time.

    A study holds the one that it was decided with, so that deciding again says the same.
    """

    run_id: str
    calibrated_at: float  # Unix seconds
    workload: str  # its name, for people
    noise_floor_pct: float  # how far from 0 the interval of identical code reaches
    between_process_pct: float  # spread of identical processes: at most this, 80 % sure
    smallest_detectable_pct: float  # found in 90 of 100 studies of the default size
    pairs: int
    process_pairs: int
    # Of the study that cites it: the same baseline, or only the same machine.
    same_workload: bool = True


class Study(Record):
    """What was asked for and on what it ran: ``study.json``, written before the first step."""

    schema_version: Literal["trainperf-study/v1"] = "trainperf-study/v1"
    # A calibration measures the baseline against itself.
    kind: Literal["study", "calibration"] = "study"
    calibration: Calibration | None = None
    # What a calibration is found by: the machine as it measures, and the baseline on it.
    machine_digest: str | None = None
    baseline_digest: str | None = None
    study_id: str  # the MLflow run id of the study
    name: str
    plan: dict[str, JsonValue]  # Plan.model_dump(mode="json")
    policy: str
    goal: str | None = None
    hypothesis: str | None = None
    thresholds: dict[str, float] = Field(default_factory=dict)  # defaults and overrides, merged
    variants: tuple[Variant, ...]
    workload: Workload
    label: str | None = None
    source: Source | None = None  # imported: decided by the bare rule, its runs were not paired
    command: str  # how to repeat it
    created_at: float  # Unix seconds
    toolkit_version: str
