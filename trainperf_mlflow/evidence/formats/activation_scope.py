"""Course project 76 on a ladder of lengths: does checkpointing help where activations fill memory?

The study is the comparison at the ladder's compared length. Its verdict holds within
this scope and is never one about full training.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from trainperf_mlflow.decisions.activation_scope import decide_activation_scope
from trainperf_mlflow.decisions.memory import BASELINE
from trainperf_mlflow.decisions.reasons import REASONS
from trainperf_mlflow.errors import PlanError
from trainperf_mlflow.evidence.imported import Imported, imported
from trainperf_mlflow.evidence.models import Candidate, Config, Fields, Name, Report
from trainperf_mlflow.evidence.reading import Document
from trainperf_mlflow.messages import shown
from trainperf_mlflow.results.decision import Decision
from trainperf_mlflow.results.study import PublishedDecision

NAME = "activation-scope"
POLICY = "activation-scope"
COMPARED = "checkpoint"

Length = Annotated[int, Field(ge=1, le=10**9)]


class ScopeConfig(Config):
    comparison_scope: Literal["activation_memory_isolation"]
    optimizer: Literal["SGD"]
    optimizer_momentum: Annotated[float, Field(ge=0, le=0)]


class LengthRecord(Fields):
    seq_len: Length
    candidates: list[Candidate]


class ScopeComparison(Fields):
    name: Name
    comparison_seq_len: Length
    accepted: bool


class ScopeSummary(Fields):
    comparisons: list[ScopeComparison]


class ScopeReport(Report):
    schema_version: Literal["training-performance-project/v1"]
    semantic_id: Literal["PERF-MEMORY-STRATEGY"]
    config: ScopeConfig
    summary: ScopeSummary
    length_records: list[LengthRecord]


def parse(document: Document) -> Imported:
    """The report as a study of the compared length, decided again by the scope's gates.

    Raises:
        PlanError: fields are missing or wrong, the compared length has no record of both
            sides, or one of them has fewer than three successful runs.
    """
    report = ScopeReport.read(document)
    compared = next((item for item in report.summary.comparisons if item.name == COMPARED), None)
    if compared is None:
        raise PlanError(f"{shown(document.name)}: summary.comparisons: none is named {COMPARED!r}")
    length = compared.comparison_seq_len
    record = next((item for item in report.length_records if item.seq_len == length), None)
    sides = {item.name: item for item in record.candidates} if record else {}
    if not {BASELINE, COMPARED} <= sides.keys():
        raise PlanError(
            f"{shown(document.name)}: length_records: none of seq_len {length} has both "
            f"{BASELINE!r} and {COMPARED!r}"
        )
    try:
        passed, metrics = decide_activation_scope(
            sides[BASELINE].to_json(), sides[COMPARED].to_json(), compared.accepted
        )
    except ValueError as error:
        raise PlanError(f"{shown(document.name)}: {error}") from None
    reason = f"checkpoint_{'passed' if passed else 'failed'}_activation_{_GATES[passed]}"
    known = REASONS[reason]
    study = imported(
        document,
        report,
        format_name=NAME,
        policy="memory-strategy",
        candidates=[sides[BASELINE], sides[COMPARED]],
        config=report.config,
        identity={"seq_len": length},
        published=PublishedDecision(decision="accept" if compared.accepted else "tune"),
    )
    decision = Decision(
        decision=known.decision,
        reason=reason,
        text=f"{known.en}, at seq_len {length}: saves {metrics.memory_saving_mb:.2f} MiB, keeps "
        f"{metrics.throughput_ratio:.1%} of the throughput, the loss differs by "
        f"{metrics.loss_delta:.4g}",
        next_action=known.next_action,
        rollback=False,
        policy=POLICY,
    )
    return study.model_copy(update={"decision": decision})


_GATES = {True: "memory_and_throughput_gates", False: "scope_gates"}
