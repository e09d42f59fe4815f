"""Course project 74's second question: does checkpointing help where activations fill the memory?

It is asked on a ladder of sequence lengths with zero-momentum SGD, so that no
optimizer state hides the activations. The answer holds within that scope and is
never promoted to full training.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

from trainperf_mlflow.decisions.numbers import is_number, limit, number
from trainperf_mlflow.decisions.qualification import QUALIFICATION_GATES
from trainperf_mlflow.decisions.quality import settled
from trainperf_mlflow.results.record import Record

SCOPE: Final = "activation_memory_isolation"
SCHEMA_VERSION = "training-performance-project/v1"
SEMANTIC_ID = "PERF-MEMORY-STRATEGY"
SHARED_FIELDS = ("model_id", "batch_size", "dtype", "seed", "device")
MIN_SUCCESSFUL_RUNS = 3
LIMITATIONS = (
    "optimizer_state_is_intentionally_removed_with_zero_momentum_sgd",
    "result_does_not_establish_adamw_full_training_adoption",
    "length_ladder_stopped_at_the_safety_boundary",
)


class ScopeMetrics(Record):
    """At the compared length: MiB and losses; the loss difference is absolute."""

    memory_saving_mb: float  # rounded to 3 decimals
    throughput_ratio: float  # rounded to 6
    loss_delta: float  # rounded to 8
    baseline_peak_memory_mb: float
    checkpoint_peak_memory_mb: float


class ActivationScope(Record):
    """The verdict, in the source's fields; ``evidence`` (path and SHA-256) is the caller's."""

    scope: Literal["activation_memory_isolation"] = SCOPE
    decision: Literal["accept_for_activation_memory_scope", "tune"]
    reason: str
    model_id: str | None
    optimizer: Literal["SGD"] = "SGD"
    optimizer_momentum: float = 0.0
    comparison_seq_len: int
    metrics: ScopeMetrics
    gates: dict[str, float]
    evidence: dict[str, str] | None = None
    evidence_status: str | None = None
    tested_seq_lens: tuple[int, ...] = ()
    promotable_to_full_training: Literal[False] = False
    limitations: tuple[str, ...] = LIMITATIONS


def decide_activation_scope(
    baseline: Mapping[str, Any],
    checkpoint: Mapping[str, Any],
    accepted: Any,
    gates: Mapping[str, Any] = QUALIFICATION_GATES,
) -> tuple[bool, ScopeMetrics]:
    """Whether the strategy passes the gates at one length, and by which numbers.

    Args:
        baseline: ``status``, ``successful_runs``, ``peak_memory_mb``, ``samples_per_s``
            and ``eval_loss`` (else ``loss``), means over the successful runs.
        checkpoint: the same of the strategy.
        accepted: what the comparison itself concluded; only True passes.
        gates: memory saving, throughput ratio and loss difference.

    Raises:
        ValueError: a side has fewer than three successful runs, a field is missing
            or no finite number, or a gate is.
    """
    limits = {key: limit(gates, key, "gates") for key in QUALIFICATION_GATES}
    for name, side in (("baseline", baseline), ("checkpoint", checkpoint)):
        runs = side.get("successful_runs")
        if side.get("status") != "ok" or not is_number(runs) or runs < MIN_SUCCESSFUL_RUNS:
            raise ValueError(
                f"{name}: status {side.get('status')!r}, {runs!r} successful runs; each side "
                f"needs at least {MIN_SUCCESSFUL_RUNS} successful repeats"
            )
    before = _positive(baseline, "peak_memory_mb", "baseline")
    after = _positive(checkpoint, "peak_memory_mb", "checkpoint")
    saving = before - after
    ratio = _positive(checkpoint, "samples_per_s", "checkpoint") / _positive(
        baseline, "samples_per_s", "baseline"
    )
    key = "eval_loss" if "eval_loss" in baseline and "eval_loss" in checkpoint else "loss"
    loss = abs(number(checkpoint, key, "checkpoint") - number(baseline, key, "baseline"))
    passed = (
        settled(saving) >= limits["minimum_memory_saving_mb"]
        and settled(ratio) >= limits["minimum_throughput_ratio"]
        and settled(loss) <= limits["maximum_loss_delta"]
        and accepted is True
    )
    return passed, ScopeMetrics(
        memory_saving_mb=round(saving, 3),
        throughput_ratio=round(ratio, 6),
        loss_delta=round(loss, 8),
        baseline_peak_memory_mb=before,
        checkpoint_peak_memory_mb=after,
    )


def assess_activation_memory_scope(
    report: Mapping[str, Any],
    full_training_config: Mapping[str, Any],
    gates: Mapping[str, Any] = QUALIFICATION_GATES,
) -> ActivationScope:
    """Decide again about a published ladder, against the full training it must belong to.

    Raises:
        ValueError: it is not such a report, its shared identity differs from the full
            training's (every field, with both values), or its records are incomplete.
    """
    problems = scope_mismatches(report, full_training_config)
    if problems:
        raise ValueError(f"the activation scope does not match: {'; '.join(problems)}")
    config = _mapping(report.get("config"))
    summary = _mapping(report.get("summary"))
    comparison = _named(summary.get("comparisons"), "checkpoint")
    if comparison is None:
        raise ValueError("the activation scope has no comparison of the name 'checkpoint'")
    length = comparison.get("comparison_seq_len")
    records = [_mapping(item) for item in _listed(report.get("length_records"))]
    record = next((item for item in records if item.get("seq_len") == length), None)
    if record is None or not isinstance(length, int) or isinstance(length, bool):
        raise ValueError(f"the activation scope has no records of seq_len {length!r}")
    baseline = _named(record.get("candidates"), "baseline")
    checkpoint = _named(record.get("candidates"), "checkpoint")
    if baseline is None or checkpoint is None:
        raise ValueError(
            f"the records of seq_len {length} lack baseline or checkpoint; both are needed"
        )
    passed, metrics = decide_activation_scope(
        baseline, checkpoint, comparison.get("accepted"), gates
    )
    return activation_scope(
        passed,
        metrics,
        gates,
        model_id=config.get("model_id"),
        comparison_seq_len=length,
        evidence_status=report.get("status"),
        tested_seq_lens=_listed(summary.get("tested_seq_lens")),
    )


def activation_scope(
    passed: bool, metrics: ScopeMetrics, gates: Mapping[str, Any], **fields: Any
) -> ActivationScope:
    """The verdict as a record; ``fields`` are those of the record that say where it was measured.

    Raises:
        pydantic.ValidationError: a field is of the wrong kind (it is a ValueError).
    """
    return ActivationScope(
        decision="accept_for_activation_memory_scope" if passed else "tune",
        reason=(
            "checkpoint_passed_activation_memory_and_throughput_gates"
            if passed
            else "checkpoint_failed_activation_scope_gates"
        ),
        metrics=metrics,
        gates={key: limit(gates, key, "gates") for key in QUALIFICATION_GATES},
        **fields,
    )


def scope_mismatches(
    report: Mapping[str, Any], full_training_config: Mapping[str, Any]
) -> list[str]:
    """Everything by which the report is no activation scope of that training, with both values."""
    config = _mapping(report.get("config"))
    wanted = [
        ("schema_version", report.get("schema_version"), SCHEMA_VERSION),
        ("semantic_id", report.get("semantic_id"), SEMANTIC_ID),
        ("config.comparison_scope", config.get("comparison_scope"), SCOPE),
        *(
            (f"config.{key}", config.get(key), full_training_config.get(key))
            for key in SHARED_FIELDS
        ),
        ("config.optimizer", config.get("optimizer"), "SGD"),
    ]
    problems = [
        f"{name} is {value!r}, not {expected!r}"
        for name, value, expected in wanted
        # True == 1, but a batch of True is no batch of 1.
        if value != expected or isinstance(value, bool) != isinstance(expected, bool)
    ]
    momentum = config.get("optimizer_momentum")
    if not is_number(momentum) or momentum != 0:
        problems.append(f"config.optimizer_momentum is {momentum!r}, not 0.0")
    return problems


def _positive(values: Mapping[str, Any], key: str, where: str) -> float:
    value = number(values, key, where)
    if value <= 0:
        raise ValueError(f"{where}: {key} is {value:g}; give a measured, positive value")
    return value


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _listed(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else ()


def _named(items: Any, name: str) -> Mapping[str, Any] | None:
    return next((item for item in map(_mapping, _listed(items)) if item.get("name") == name), None)
