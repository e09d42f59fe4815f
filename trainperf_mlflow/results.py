"""The plain frozen records that travel between the rooms.

They hold what was measured and what was concluded, never how; every record
can be written as JSON and read back unchanged (``to_json`` / ``from_json``).
Times are milliseconds, memory is MiB (written ``mb``, as in the source
documents), and a value that was not measured is ``None`` or absent, never 0.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, JsonValue

Role = Literal["baseline", "candidate"]
Setting = JsonValue  # the value of one configuration key
# What the interval shows about time: undecided where it reaches over a margin.
Direction = Literal["faster", "slower", "same", "undecided"]


class Record(BaseModel):
    """Base of all records: immutable, no unknown fields, NaN survives JSON (as a string)."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")

    def to_json(self, *, indent: int | None = 2) -> str:
        return self.model_dump_json(indent=indent)

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        return cls.model_validate_json(text)


class Status(StrEnum):
    """How a repeat, and a variant as the worst of its repeats, ended."""

    OK = "ok"
    OOM = "oom"  # out of memory: the exception, or the kernel killed the worker
    FAILED = "failed"  # any other error, with its text
    UNSUPPORTED = "unsupported"  # this device cannot do it, with the reason
    DIVERGED = "diverged"  # NaN or infinite loss
    TIMEOUT = "timeout"


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


class DeviceState(Record):
    """An accelerator right after a block, as its maker's library tells it."""

    clock_mhz: float | None = None
    temperature_c: float | None = None
    power_w: float | None = None
    throttled: tuple[str, ...] = ()  # what held its clock down: heat, power


class Watch(Record):
    """The machine around a block; shares are of the block's time, 0 to 1."""

    others_cores: float | None = None  # that other processes kept busy
    steal: float | None = None  # of all cores' time, taken by the host's other guests
    cpu_pressure: float | None = None  # some process waited for a core
    memory_pressure: float | None = None  # some process waited for memory
    # A fixed small computation, right before and after; ms.
    reference_ms: tuple[float, float] | None = None
    device: DeviceState | None = None


class Block(Record):
    """Consecutive measured steps, the device synchronised at both ends."""

    index: int
    started_at: float  # Unix seconds
    wall_ms: float  # the whole block
    step_ms: tuple[float, ...]
    losses: tuple[float | None, ...]
    process: int = 0  # which process of the repeat; more than one where each block has its own
    # Per step: how long the working thread was runnable but waited for a core.
    step_run_delay_ms: tuple[float, ...] = ()
    # What disturbed the block, where the system tells it.
    cpu_ms: float | None = None
    run_delay_ms: float | None = None  # the working thread was runnable, but waited for a core
    threads_delay_ms: float | None = None  # the same of the thread that waited longest
    involuntary_switches: int | None = None
    page_faults: int | None = None
    gc_collections: int | None = None
    compilations: int | None = None  # by torch.compile
    watch: Watch | None = None
    again: int = 0  # how often it was measured before, because it or its pair was disturbed


class Effect(Record):
    """Whether one changed setting is really in effect on the live task."""

    key: str
    wanted: Setting
    verified: bool | None  # None: could not be checked
    detail: str


class Repeat(Record):
    """One fresh process with a fresh initialisation of one variant: ``result.json``."""

    schema_version: Literal["trainperf-repeat/v1"] = "trainperf-repeat/v1"
    study_id: str
    variant: str
    index: int  # the round, from 0
    seed: int
    status: Status
    error: str | None = None
    started_at: float  # Unix seconds
    ended_at: float
    data_digest: str | None = None  # of the first batch; None where nobody could look
    samples_per_step: float | None = None
    tokens_per_step: float | None = None
    build_s: float | None = None
    warmup_steps: int = 0
    first_step_ms: float | None = None
    blocks: tuple[Block, ...] = ()
    peak_mem_mb: float | None = None
    peak_mem_source: Literal["accelerator_allocator", "tensor_tracker", "reported"] | None = None
    peak_reserved_mb: float | None = None
    num_alloc_retries: int | None = None
    host_peak_rss_mb: float | None = None
    loss: float | None = None  # of the last measured step
    eval_loss: float | None = None
    quality_checked: bool = False  # eval_loss was taken on held-out real data
    # Imported: the metrics as they were published, by their MLflow names, instead of blocks.
    reported: dict[str, float] = Field(default_factory=dict)
    effects: tuple[Effect, ...] = ()
    notes: tuple[str, ...] = ()  # what could not be measured, and why
    environment: dict[str, JsonValue] = Field(default_factory=dict)  # -> environment.json


class BlockValues(Record):
    """A block as a comparison reads it; ms per step, ``low`` being the 25th percentile.

    ``net`` is wall time less the time in which the thread waited for a core.
    """

    index: int
    process: int
    started_at: float  # Unix seconds
    wall_s: float  # of the whole block
    samples_per_step: float | None
    mean_ms: float
    low_ms: float
    net_mean_ms: float | None = None
    net_low_ms: float | None = None
    run_delay: float | None = None  # share of the wall time, of the thread that waited longest
    cpu: float | None = None  # CPU time over wall time
    steps: int | None = None
    faults: int | None = None  # of pages
    gc: int | None = None
    compilations: int | None = None
    watch: Watch | None = None
    again: int = 0
    losses: tuple[float | None, ...] = ()  # of evenly chosen steps, the first one's first


class StudyBlocks(Record):
    """The blocks of all repeats, by variant and round: ``blocks.json``."""

    schema_version: Literal["trainperf-blocks/v1"] = "trainperf-blocks/v1"
    variants: dict[str, dict[int, tuple[BlockValues, ...]]]


class RepeatValues(Record):
    """A repeat as a comparison reads it: status, metrics by their MLflow names, its blocks."""

    index: int
    status: Status
    error: str | None = None
    run_id: str | None = None
    quality_checked: bool = False
    seed: int | None = None
    data_digest: str | None = None  # of the first batch
    metrics: dict[str, float] = Field(default_factory=dict)
    blocks: tuple[BlockValues, ...] = ()


class Convergence(Record):
    """One variant trained from its initialisation with one seed, untimed, then evaluated."""

    index: int  # the round whose seed it has
    seed: int
    status: Status
    error: str | None = None
    steps: int  # asked for
    every: int = 1  # the step between two of the losses, the first one's first
    losses: tuple[float | None, ...] = ()
    eval_loss: float | None = None
    quality_checked: bool = False  # eval_loss was taken on held-out real data
    ended_at: float = 0.0  # Unix seconds


class StudyConvergence(Record):
    """The longer training of all variants, seed by seed: ``convergence.json``."""

    schema_version: Literal["trainperf-convergence/v1"] = "trainperf-convergence/v1"
    variants: dict[str, tuple[Convergence, ...]]


class VariantValues(Record):
    """A variant as a comparison reads it, from MLflow or from disk."""

    name: str
    role: Role
    status: Status
    error: str | None = None
    run_id: str | None = None
    config: dict[str, Setting] = Field(default_factory=dict)
    changed_variable: str | None = None
    effect_verified: bool | None = None
    effect_detail: str | None = None
    peak_mem_source: str | None = None
    quality_checked: bool = False  # in all of its repeats
    metrics: dict[str, float] = Field(default_factory=dict)  # means over the ok repeats
    repeats: tuple[RepeatValues, ...] = ()
    convergence: tuple[Convergence, ...] = ()  # where it was asked for


class Check(Record):
    """One line of ``trainperf doctor``: what was looked at, what was found, what to do."""

    check: str
    status: Literal["ok", "warn", "fail"]
    detail: str
    remedy: str = ""


class Decision(Record):
    """accept, tune, reject, or measure (a probe), with what follows from it."""

    decision: Literal["accept", "tune", "reject", "measure"]
    reason: str  # a stable snake_case code
    text: str  # the reason in words, with the numbers that decided
    next_action: str
    rollback: bool
    policy: str
    # The numbers that decided, thresholds included, by their names.
    numbers: dict[str, float] = Field(default_factory=dict)
    # Only intervals can confirm; a rule on point values alone stays unconfirmed.
    confidence: Literal["confirmed", "unconfirmed", "unfit"] = "unconfirmed"


class Evaluation(Record):
    """One variant under a budget.

    ``reasons`` are the limits that it breaks (``memory_over_budget``,
    ``throughput_below_floor``, ``quality_over_floor``), or why it cannot be judged.
    """

    name: str
    status: Literal["feasible", "rejected", "oom", "invalid"]
    reasons: tuple[str, ...] = ()
    detail: str  # the same in words, with the numbers
    reserved_over_cap: bool = False  # what the allocator reserved does not fit the cap


class PairedEstimate(Record):
    """What pairs of neighbouring blocks say about a candidate's time per sample.

    Percentages are of the baseline's time and positive where the candidate saves time. ``low``
    and ``high`` bound the interval; they are None where there are too few pairs for one.
    """

    estimate_pct: float
    low_pct: float | None
    high_pct: float | None
    speedup: float
    # Per step of the baseline's samples.
    saved_ms: float
    saved_ms_low: float | None
    saved_ms_high: float | None
    level: float  # of this interval, corrected for looks and candidates
    looks: int  # that the plan allows
    pairs: int  # that count
    process_pairs: int
    disturbed_pairs: int  # in which something from outside slowed a block
    set_aside: int = 0  # disturbed pairs that do not count
    margin_pct: float
    direction: Direction
    signal: Literal["net", "gated wall"]
    signal_reason: str
    stalls: str | None = None  # why means and low quantiles allow no verdict
    pair_s: float  # what a pair takes in this study, all included
    # How many more pairs would give a direction; None where none is open or more is hopeless.
    more_pairs: int | None = None
    what_would_settle: str | None = None


class LossCurve(Record):
    """The training losses of the measured steps, candidate - baseline, paired by seed."""

    verdict: Literal["same", "different", "not_shown"]
    text: str
    equal: bool = False  # exactly, in every step with every seed
    seeds: int = 0
    steps: int = 0
    mean_difference: float | None = None
    max_difference: float | None = None  # mean over the seeds, where it is largest
    max_at_step: int | None = None  # of the measured ones, from 1
    seed_spread: float | None = None  # standard deviation between the baseline's own seeds
    # The most that seeds alone would cause: on average over the steps, and at a single one.
    mean_limit: float | None = None
    step_limit: float | None = None


class ConvergenceCheck(Record):
    """The eval loss after a longer training, candidate - baseline, paired by seed."""

    verdict: Literal["better", "same", "worse", "not_shown"]
    text: str
    steps: int
    seeds: int
    margin: float
    # The mean, and the bounds of its 95 % interval; None where there are too few seeds.
    difference: float | None = None
    low: float | None = None
    high: float | None = None
    method: str | None = None  # of the interval


class CandidateComparison(Record):
    """One candidate against the baseline."""

    variant: str
    status: Status
    changed_variable: str | None
    delta: dict[str, float]  # names of the MLflow metrics without "delta/"
    metrics: dict[str, float]
    effect_verified: bool | None
    decision: Decision
    # What the other rule sets say about the same numbers, by policy.
    other_decisions: dict[str, Decision] = Field(default_factory=dict)
    note: str  # gain and cost in words
    pairs: int  # rounds in which both baseline and candidate succeeded
    time: PairedEstimate | None = None  # None where no blocks were measured in pairs
    run_id: str | None = None
    evaluation: Evaluation | None = None  # under a budget
    loss_curve: LossCurve | None = None  # None where no losses are known
    convergence: ConvergenceCheck | None = None  # None where it was not asked for


# Beyond the repeats' own spread; ``unknown``: too few repeats to have one.
Trend = Literal["shrank", "grew", "same", "unclear", "unknown"]
Verdict = Literal["supported", "refuted", "not_shown"]


class Suggestion(Record):
    """What to try next, and the statement that it follows from."""

    code: str  # of the statement
    variant: str
    text: str
    win: float  # the most it could save: a share of the step's time or of the peak, 0 to 1
    win_in: Literal["time", "memory"]
    setting: str | None = None  # the key of the configuration that would change


class Statement(Record):
    """One thing that a variant's evidence shows, and why it matters."""

    code: str  # stable, snake_case
    variant: str
    text: str
    evidence: str  # the artifact of the variant's run that has the numbers
    numbers: dict[str, float]
    threshold: float | None  # what the first of the numbers crossed; None: a plain fact
    source: str  # of the threshold
    suggestion: Suggestion | None = None


class PhaseChange(Record):
    """One phase of baseline and candidate: ms for the same samples, or MiB."""

    before: float
    after: float
    trend: Trend

    @property
    def saved(self) -> float:
        """Baseline - candidate: positive is better."""
        return self.before - self.after


class CandidateAssessment(Record):
    """Where a candidate's time and memory went, compared with the baseline's."""

    variant: str
    verdict: Verdict | None  # on the study's hypothesis; None where it has none
    text: str  # the verdict in words, with its numbers
    bottleneck: str | None  # the phase that takes the most time
    peak_phase: str | None  # the phase that holds the memory's peak
    relieved: Trend | None  # how the phase changed that takes the most time of the baseline
    time: dict[str, PhaseChange]  # by phase
    memory: dict[str, PhaseChange]
    moved_to: str | None  # the phase to which cost moved
    moved: str  # the same in words


class Assessment(Record):
    """What holds a study's variants back: ``assessment.json``. It explains, it never decides."""

    schema_version: Literal["trainperf-assessment/v1"] = "trainperf-assessment/v1"
    study_id: str
    hypothesis: str | None
    bottleneck: str | None  # the baseline's
    peak_phase: str | None
    about: str | None  # the candidate whose verdict is the study's: the best, else the first
    verdict: Verdict | None
    candidates: tuple[CandidateAssessment, ...]
    statements: tuple[Statement, ...]
    next: tuple[Suggestion, ...]  # the largest win first
    missing: tuple[str, ...]  # what could not be told, and how to find out


class Noise(Record):
    """How quiet the machine was while a study was measured."""

    level: Literal["quiet", "noisy", "unfit"]
    text: str  # in words, with what disturbed it
    causes: tuple[str, ...] = ()
    blocks: int
    disturbed_blocks: int
    measured_again: int  # blocks, because they or their neighbours were disturbed


class Closed(Decision):
    """How a study was closed: the decision that stands, beside the one that was measured."""

    label: str
    best_candidate: str | None = None
    candidates: dict[str, Decision] = Field(default_factory=dict)  # by variant


class Comparison(Record):
    """A study's comparison and decision: ``comparison.json``."""

    schema_version: Literal["trainperf-comparison/v1"] = "trainperf-comparison/v1"
    study_id: str
    study: str
    workload: str
    workload_digest: str
    goal: str | None
    hypothesis: str | None
    policy: str
    thresholds: dict[str, float]
    baseline: VariantValues | None  # None for a probe
    baseline_evaluation: Evaluation | None = None  # the baseline competes under a budget
    candidates: tuple[CandidateComparison, ...]
    best_candidate: str | None  # under a budget also the baseline, or None: no variant keeps it
    decision: Decision
    warnings: tuple[str, ...] = ()
    assessment: Assessment | None = None
    noise: Noise | None = None  # None where no blocks are known
    calibration: Calibration | None = None  # what a study cites, or what a calibration found
    closed: Closed | None = None  # only where it is read back: a closed study's own decision

    @property
    def standing(self) -> Decision:
        """The decision that holds: that of the close, where the study is closed."""
        return self.closed or self.decision

    @property
    def standing_best(self) -> str | None:
        """The candidate that it is about."""
        return self.best_candidate if self.closed is None else self.closed.best_candidate

    def standing_on(self, candidate: CandidateComparison) -> Decision:
        """The decision that holds about one candidate."""
        known = {} if self.closed is None else self.closed.candidates
        return known.get(candidate.variant, candidate.decision)

    def summary(self) -> dict[str, Any]:
        """The object that ``--format json`` prints: the decision's fields at the top level."""
        decision = self.decision
        return {
            "schema_version": self.schema_version,
            "study_id": self.study_id,
            "study": self.study,
            "workload": self.workload,
            "workload_digest": self.workload_digest,
            "decision": decision.decision,
            "reason": decision.reason,
            "text": decision.text,
            "next_action": decision.next_action,
            "rollback": decision.rollback,
            "confidence": decision.confidence,
            "policy": decision.policy,
            "goal": self.goal,
            "hypothesis": self.hypothesis,
            "thresholds": self.thresholds,
            "best_candidate": self.best_candidate,
            "baseline_evaluation": _dumped(self.baseline_evaluation),
            "baseline": None if self.baseline is None else self.baseline.model_dump(mode="json"),
            "candidates": [
                {
                    "variant": candidate.variant,
                    "status": candidate.status.value,
                    "decision": candidate.decision.decision,
                    "reason": candidate.decision.reason,
                    "text": candidate.decision.text,
                    "next_action": candidate.decision.next_action,
                    "other_decisions": {
                        name: other.model_dump(mode="json")
                        for name, other in candidate.other_decisions.items()
                    },
                    "changed_variable": candidate.changed_variable,
                    "effect_verified": candidate.effect_verified,
                    "delta": candidate.delta,
                    "metrics": candidate.metrics,
                    "note": candidate.note,
                    "confidence": candidate.decision.confidence,
                    "direction": candidate.time.direction if candidate.time else None,
                    "time": candidate.time.model_dump(mode="json") if candidate.time else None,
                    "pairs": candidate.pairs,
                    "run_id": candidate.run_id,
                    "evaluation": _dumped(candidate.evaluation),
                    "loss_curve": _dumped(candidate.loss_curve),
                    "convergence": _dumped(candidate.convergence),
                }
                for candidate in self.candidates
            ],
            "warnings": list(self.warnings),
            "assessment": _dumped(self.assessment),
            "noise": _dumped(self.noise),
            "calibration": _dumped(self.calibration),
            "closed": _dumped(self.closed),
        }


def _dumped(record: Record | None) -> dict[str, Any] | None:
    return None if record is None else record.model_dump(mode="json")
