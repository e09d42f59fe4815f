"""The stages of a project are held against each other, and every mismatch is told."""

from __future__ import annotations

from typing import Any

import pytest
from made_reports import CONFIG, PROJECT, candidate, memory_report, training_report

from trainperf_mlflow.evidence import identity
from trainperf_mlflow.evidence.identity import Identity

SCOPE: dict[str, Any] = {
    "schema_version": PROJECT,
    "semantic_id": "PERF-MEMORY-STRATEGY",
    "config": {
        **CONFIG,
        "optimizer": "SGD",
        "optimizer_momentum": 0.0,
        "comparison_scope": "activation_memory_isolation",
        "seq_len": 4096,
    },
}


def fields(found: Identity) -> list[str]:
    return [mismatch.field for mismatch in found.mismatches]


def test_the_same_workload_matches_and_each_other_field_is_a_mismatch_with_both_values() -> None:
    strategy = memory_report()
    assert identity.same_workload(training_report(), strategy) == Identity()
    other = {**CONFIG, **dict.fromkeys(identity.WORKLOAD_FIELDS, "other")}
    found = identity.same_workload(training_report(config=other), strategy)
    assert fields(found) == [f"config.{key}" for key in identity.WORKLOAD_FIELDS]
    assert str(found.mismatches[1]) == "config.batch_size is 1, not 'other'"
    assert not found.matches


def test_steps_and_environment_are_no_identity_between_stages() -> None:
    more = {**CONFIG, "warmup": 9, "iters": 50, "repeats": 7, "torch": "3.0"}
    assert identity.same_workload(training_report(config=more), memory_report()).matches


def test_what_neither_side_states_is_said_to_be_unchecked() -> None:
    without = {key: value for key, value in CONFIG.items() if key not in ("seed", "dtype")}
    found = identity.same_workload({"config": without}, {"config": without})
    assert (found.matches, found.unchecked) == (True, ("config.dtype", "config.seed"))
    one_sided = identity.same_workload({"config": without}, {"config": CONFIG})
    assert fields(one_sided) == ["config.dtype", "config.seed"]


def test_true_is_no_batch_of_one_but_one_is() -> None:
    assert identity.same_fields({"batch_size": 1.0}, {"batch_size": 1}, ["batch_size"]).matches
    assert not identity.same_fields({"batch_size": True}, {"batch_size": 1}, ["batch_size"]).matches


def test_each_stage_has_its_semantic_id() -> None:
    reports = {key: {"semantic_id": value} for key, value in identity.SEMANTIC_IDS.items()}
    assert identity.same_kinds(reports).matches
    swapped = {**reports, "budget": reports["strategy"]}
    del swapped["baseline"]
    assert fields(identity.same_kinds(swapped)) == ["baseline.semantic_id", "budget.semantic_id"]


def test_a_budget_judges_what_was_measured() -> None:
    strategy, budget = memory_report(), memory_report("memory_budget_decision")
    assert identity.same_candidates(strategy, budget).matches
    budget["candidates"][1] = candidate("checkpoint", 8000.0, 1.6, eval_loss=1.0)
    budget["candidates"][3] = candidate("another", 1.0, 1.0)
    assert fields(identity.same_candidates(strategy, budget)) == [
        "candidates.hybrid",
        "candidates.another",
        "candidates.checkpoint.peak_memory_mb",
        "candidates.checkpoint.eval_loss",
    ]


def test_an_activation_scope_shares_what_it_must_and_isolates_activations() -> None:
    assert identity.same_activation_scope(SCOPE, memory_report()).matches
    config = {**CONFIG, "model_id": "b", "batch_size": 2, "dtype": "c", "seed": 1, "device": "d"}
    found = identity.same_activation_scope({"config": config}, memory_report())
    assert set(fields(found)) == {
        "schema_version",
        "semantic_id",
        "config.comparison_scope",
        "config.optimizer",
        "config.optimizer_momentum",
        "config.model_id",
        "config.batch_size",
        "config.dtype",
        "config.seed",
        "config.device",
    }


@pytest.mark.parametrize("momentum", [0.9, None, False, "0"])
def test_momentum_is_optimizer_state(momentum: Any) -> None:
    scope = {**SCOPE, "config": {**SCOPE["config"], "optimizer_momentum": momentum}}
    found = identity.same_activation_scope(scope, memory_report())
    assert fields(found) == ["config.optimizer_momentum"]


@pytest.mark.parametrize(("length", "longer"), [(1024, True), (768, False), ("2048", False)])
def test_a_pressure_run_is_the_base_workload_with_a_longer_sequence(
    length: Any, longer: bool
) -> None:
    pressure = {"config": {**CONFIG, "seq_len": length, "workload": "pressure_1024"}}
    found = identity.same_under_pressure(pressure, CONFIG)
    assert found.matches is longer
    assert fields(found) == ([] if longer else ["config.seq_len"])
    other = {"config": {**CONFIG, "seq_len": 1024, "optimizer": "SGD"}}
    assert fields(identity.same_under_pressure(other, CONFIG)) == ["config.optimizer"]


def test_every_candidate_upstream_needs_three_runs() -> None:
    runs = [{"loss": 1.0}] * 3
    report = {
        "candidates": [
            candidate("baseline", 1.0, 1.0, runs=runs),
            candidate("checkpoint", 1.0, 1.0, runs=runs[:2]),
            candidate("offload", 1.0, 1.0),
        ]
    }
    found = identity.enough_runs(report)
    assert [str(mismatch) for mismatch in found.mismatches] == [
        "candidates.checkpoint.runs is 2, not '3 runs or more'",
        "candidates.offload.runs is 0, not '3 runs or more'",
    ]


@pytest.mark.parametrize("report", [{}, {"config": 3, "candidates": "no"}, {"candidates": [1, {}]}])
def test_what_is_no_report_has_mismatches_and_ends_nothing(report: dict[str, Any]) -> None:
    assert not identity.same_workload(report, memory_report()).matches
    assert not identity.same_activation_scope(report, memory_report()).matches
    assert not identity.same_under_pressure(report, CONFIG).matches
    assert not identity.same_candidates(memory_report(), report).matches
    assert identity.enough_runs(report).matches
