"""Published reports become studies that our rules decide as published, and reports again."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_reports import (
    CONFIG,
    PUBLISHED,
    REPORTS,
    benchmark_report,
    candidate,
    closing_report,
    document,
    memory_report,
    training_report,
    values,
)
from made_studies import study as made_study
from made_studies import variant as made_variant

from trainperf_mlflow.api.importing import decide_imported
from trainperf_mlflow.decisions.study import decide_study
from trainperf_mlflow.errors import PlanError
from trainperf_mlflow.evidence.agreement import ImportOutcome, outcome
from trainperf_mlflow.evidence.exported import Exported
from trainperf_mlflow.evidence.formats import build, parse
from trainperf_mlflow.evidence.formats.activation_scope import ScopeReport
from trainperf_mlflow.evidence.formats.benchmark import BenchmarkReport
from trainperf_mlflow.evidence.formats.closing import ClosingReport
from trainperf_mlflow.evidence.formats.memory_budget import BudgetReport
from trainperf_mlflow.evidence.formats.memory_strategy import StrategyReport
from trainperf_mlflow.evidence.formats.phase_memory import PhaseReport
from trainperf_mlflow.evidence.formats.probe import ProbeReport
from trainperf_mlflow.evidence.formats.trace_evidence import TraceReport
from trainperf_mlflow.evidence.formats.training import TrainingReport
from trainperf_mlflow.evidence.imported import EXPORT_KEY
from trainperf_mlflow.evidence.models import Report
from trainperf_mlflow.evidence.reading import read_document
from trainperf_mlflow.results.record import Status
from trainperf_mlflow.results.study import Variant
from trainperf_mlflow.results.values import VariantValues

MODELS: dict[str, type[Report]] = {
    "training": TrainingReport,
    "probe": ProbeReport,
    "memory-strategy": StrategyReport,
    "memory-budget": BudgetReport,
    "benchmark": BenchmarkReport,
    "phase": PhaseReport,
    "profiling": TraceReport,
    "closing": ClosingReport,
    "activation-scope": ScopeReport,
}


def decided(report: Any) -> ImportOutcome:
    found = parse(report if not isinstance(report, dict) else document(report))
    comparison = decide_imported(found, found.study, values(found))
    return outcome(found.study, comparison, "f.json", already=False, warnings=found.warnings)


def refusal(report: dict[str, Any]) -> str:
    with pytest.raises(PlanError) as refused:
        parse(document(report))
    assert refused.value.exit_code == 2
    return str(refused.value)


def changed(report: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """A copy of a report with one field set, or removed where the value is ``...``."""
    made: Any = copy.deepcopy(report)
    *parents, last = [int(part) if part.isdigit() else part for part in path.split(".")]
    place = made
    for part in parents:
        place = place[part]
    if value is ...:
        del place[last]
    else:
        place[last] = value
    whole: dict[str, Any] = made
    return whole


# --- what was published elsewhere --------------------------------------------------------------


@pytest.mark.parametrize("path", PUBLISHED, ids=lambda path: path.stem)
def test_a_report_that_was_published_is_decided_as_it_was_published(path: Path) -> None:
    found = decided(read_document(path))
    assert (found.agrees, found.differences, found.warnings) == (True, (), ())


@pytest.mark.parametrize("path", PUBLISHED, ids=lambda path: path.stem)
def test_the_models_keep_every_field_of_what_was_published(path: Path) -> None:
    read = read_document(path)
    found = parse(read)
    assert found.study.source is not None
    assert MODELS[found.study.source.format].read(read).to_json() == read.content
    assert found.text.encode() == path.read_bytes()


# --- each format -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", REPORTS)
def test_a_format_is_recognised_keeps_all_fields_and_decides_as_stated(name: str) -> None:
    report = {**REPORTS[name], "what_nobody_knows": [{"kept": 1.5}, None]}
    found = parse(document(report))
    source = found.study.source
    assert source is not None
    assert source.format == name
    assert MODELS[name].read(document(report)).to_json() == report
    stated = report.get("decision")
    if name == "activation-scope":
        stated = report["summary"]["comparisons"][0]
    assert decided(report).agrees is (None if stated is None else True), decided(report)


def test_repeats_have_the_published_values_and_say_where_they_come_from() -> None:
    found = parse(document(training_report()))
    first = next(repeat for repeat in found.repeats if repeat.variant == "bf16")
    assert first.reported["step_time_ms"] == 199.0
    assert (first.peak_mem_source, first.seed, first.index) == ("reported", 42, 0)
    assert first.environment == {"device_name": "a device", "packages": {"torch": "2.11.0"}}
    tuned = next(variant for variant in found.study.variants if variant.name == "bf16")
    assert (tuned.changed_variable, tuned.config["precision"]) == ("precision", "bf16")


def test_a_candidate_without_runs_is_one_repeat_and_an_oom_is_one() -> None:
    found = parse(document(memory_report()))
    statuses = {repeat.variant: repeat.status for repeat in found.repeats}
    assert statuses["checkpoint"] is Status.OK
    assert statuses["hybrid"] is Status.OOM
    assert len(found.repeats) == 4


def test_a_peak_of_zero_is_no_measurement() -> None:
    found = parse(document(changed(training_report(), "tuned.runs", None)))
    assert found.repeats[-1].peak_mem_mb == 9500.0
    report = changed(changed(training_report(), "tuned.runs", None), "tuned.peak_mem_mb", 0.0)
    assert parse(document(report)).repeats[-1].peak_mem_mb is None


@pytest.mark.parametrize("name", ["phase", "profiling"])
def test_what_only_explains_has_no_step_time_that_a_rule_could_read(name: str) -> None:
    found = parse(document(REPORTS[name]))
    assert decided(REPORTS[name]).decision == "measure"
    assert all("step_time_ms" not in repeat.reported for repeat in found.repeats)
    key = "phase/forward_ms" if name == "phase" else "profile/step_time_ms"
    assert all(key in repeat.reported for repeat in found.repeats)
    refused = refusal(
        changed(
            REPORTS[name],
            "measurement" if name == "phase" else "profile",
            {"timing_for_adoption": True},
        )
    )
    assert "timing_for_adoption: True is not False" in refused


def test_the_close_is_decided_again_from_its_numbers() -> None:
    assert decided(closing_report()).agrees is True
    lost = changed(closing_report(), "standard_metrics.checkpoint.eval_loss", 2.5)
    found = decided(lost)
    assert (found.agrees, found.decision) == (False, "reject")
    assert any("checkpoint is published as tune (memory_saving)" in w for w in found.differences)
    unphased = decided(changed(closing_report(), "profile", {}))
    assert unphased.differences[0].startswith("next_action: published retain_phase_evidence")


def test_a_ladder_is_decided_by_the_gates_of_its_scope_at_the_compared_length() -> None:
    report = REPORTS["activation-scope"]
    found = parse(document(report))
    assert found.study.workload.identity["seq_len"] == 2048
    assert [repeat.peak_mem_mb for repeat in found.repeats] == [9000.0, 8000.0]
    assert decided(report).reason == "checkpoint_passed_activation_memory_and_throughput_gates"
    heavier = changed(report, "length_records.1.candidates.1.peak_memory_mb", 8500.0)
    again = decided(heavier)
    assert (again.agrees, again.decision) == (False, "tune")
    few = changed(report, "length_records.1.candidates.0.successful_runs", 2)
    assert "at least 3 successful repeats" in refusal(few)
    other = changed(report, "config.optimizer_momentum", 0.9)
    assert "config.optimizer_momentum: 0.9" in refusal(other)
    lost = changed(report, "summary.comparisons.0.comparison_seq_len", 4096)
    assert "none of seq_len 4096 has both" in refusal(lost)


# --- both decisions side by side ---------------------------------------------------------------


def test_a_decision_that_its_numbers_do_not_carry_stands_beside_ours_with_the_reason() -> None:
    report = training_report(decision={"decision": "accept", "reason": "words"})
    found = decided(report)
    assert (found.agrees, found.published_decision, found.decision) == (False, "accept", "tune")
    assert found.differences[0] == "decision: published accept, here tune"
    assert "memory gain 500.00 MiB (at least 512 wanted)" in found.differences[1]


@pytest.mark.parametrize(("saved", "decision"), [(512.0, "accept"), (511.98, "tune")])
def test_an_imported_pair_is_decided_exactly_at_the_threshold(saved: float, decision: str) -> None:
    assert decided(training_report(tuned_memory=10000.0 - saved)).decision == decision


def test_means_and_summaries_that_contradict_the_runs_are_told() -> None:
    report = changed(training_report(), "tuned.step_time_ms", 150.0)
    report["summary"] = {
        "step_time_delta_ms": 100.0,
        "peak_mem_delta_mb": 500.0,
        "time_improved": True,
        "memory_improved": False,
    }
    warnings = decided(report).warnings
    assert "bf16: step_time_ms is given as 150, but its runs have a mean of 200" in warnings[0]
    assert warnings[1:] == (
        "summary.step_time_delta_ms is given as 100.0, but its numbers give 150.0",
        "summary.memory_improved is given as False, but its numbers give True",
    )
    found = decided(changed(memory_report(), "summary.best_candidate", "offload"))
    assert found.warnings == (
        "summary.best_candidate is given as offload, but its numbers give checkpoint",
    )
    assert found.agrees is False


def test_codes_next_actions_and_the_best_candidate_are_compared_and_words_are_not() -> None:
    other = {"decision": "accept", "reason": "another_code", "next_action": "rest"}
    found = decided(memory_report(decision=other))
    assert [text.split(":")[0] for text in found.differences] == [
        "reason",
        "next_action",
        "here because",
    ]


# --- refusals ----------------------------------------------------------------------------------

WRONG = [
    ("memory-strategy", "candidates.2.peak_memory_mb", "a", "[2].peak_memory_mb: 'a' is no number"),
    ("memory-strategy", "candidates.0.samples_per_s", True, "[0].samples_per_s: True is no number"),
    ("memory-strategy", "candidates.0.samples_per_s", -1.0, "candidates[0].samples_per_s: -1.0"),
    ("memory-strategy", "candidates.0.name", ..., "candidates[0].name is missing"),
    ("memory-strategy", "candidates.1.name", "baseline", "candidate 'baseline' is given twice"),
    ("memory-strategy", "candidates.0.name", "base", "none is named 'baseline'"),
    ("memory-strategy", "candidates", {}, "candidates: {} is no list"),
    ("memory-strategy", "candidates", [], "none is named 'baseline'"),
    ("memory-strategy", "budget", ..., "budget is missing"),
    ("memory-strategy", "budget.memory_cap_mb", "1", "budget.memory_cap_mb: '1' is no number"),
    ("memory-strategy", "config", [], "config: [] is no mapping"),
    ("memory-strategy", "config.batch_size", 1.5, "config.batch_size: 1.5 is no whole number"),
    ("memory-strategy", "decision.decision", "keep", "decision.decision: 'keep' is not"),
    ("training", "baseline.peak_mem_mb", ..., "baseline.peak_mem_mb is missing"),
    ("training", "tuned.runs.1.loss", "low", "tuned.runs[1].loss: 'low' is no number"),
    ("training", "tuned.runs.0.repeat", 2, "'bf16' has a repeat twice"),
    ("training", "semantic_id", "PERF-MEMORY-BUDGET", "semantic_id: 'PERF-MEMORY-BUDGET' is not"),
    ("memory-strategy", "candidates.1.samples_per_s", 1e-308, "1e-308: is beyond what can be"),
    ("training", "tuned.runs.1.step_time_ms", 1e300, "tuned.runs[1].step_time_ms: 1e+300: is bey"),
    ("closing", "standard_metrics.baseline.samples_per_s", 1e-308, "is beyond what can be"),
    ("training", "schema_version", "training/v9", "no report of a known format"),
    ("training", "stage", "another", "stage is 'another'"),
    ("training", EXPORT_KEY, {"study": {"name": 3}}, "trainperf.study.name: 3 is no text"),
    ("benchmark", "standard_metrics", {}, "neither candidates nor standard_metrics has a variant"),
    ("memory-strategy", "candidates.1.name", "a\nb", "candidates[1].name: 'a\\nb': holds control"),
    ("phase", "candidates.0.phase_metrics", {"../x": {}}, "candidates[0].phase_metrics.../x.[key]"),
    ("closing", "standard_metrics.baseline", ..., "standard_metrics.baseline is missing"),
    ("closing", "candidates.0.failed_gates", ..., "candidates[0].failed_gates is missing"),
    ("phase", "candidates.0.runs.0.phase_metrics.forward.time_ms", "x", "time_ms: 'x' is no"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "path", "value", "message"), WRONG)
def test_a_wrong_field_is_refused_with_its_path_and_value(
    name: str, path: str, value: Any, message: str
) -> None:
    said = refusal(changed(REPORTS[name], path, value))
    assert message in said
    assert said.startswith("'report.json'")


def test_a_file_whose_name_no_encoding_has_is_imported_under_one_that_it_has() -> None:
    found = parse(document(training_report(), "a\udcff.json")).study
    assert found.name == "a\\udcff"
    assert found.to_json().encode()


def test_a_manifest_is_told_apart_from_results() -> None:
    said = refusal({"schema_version": "performance-evidence-manifest/v1"})
    assert "it lists evidence and holds no results" in said


# --- export ------------------------------------------------------------------------------------


def exported(*variants: VariantValues, policy: str = "training", **more: Any) -> Exported:
    asked = made_study(
        policy=policy,
        variants=tuple(
            Variant(name=v.name, role=v.role, config={"precision": "fp32", "model": "tiny"})
            for v in variants
        ),
        **more,
    )
    return Exported(asked, variants, decide_study(asked, variants), {"device_name": "a device"})


def again(report: dict[str, Any]) -> tuple[Any, tuple[VariantValues, ...]]:
    found = parse(document(report))
    return found, values(found)


def checked(made: VariantValues) -> VariantValues:
    repeats = (r.model_copy(update={"quality_checked": True}) for r in made.repeats)
    return made.model_copy(update={"repeats": tuple(repeats)})


TIMES = st.floats(0.5, 5000.0)


@settings(max_examples=25, deadline=None)
@given(
    name=st.sampled_from(["training", "memory-strategy", "memory-budget", "benchmark"]),
    sides=st.lists(st.tuples(TIMES, TIMES, st.floats(-3, 9)), min_size=2, max_size=2),
)
def test_a_study_is_the_same_after_export_and_import(
    name: str, sides: list[tuple[float, float, float]]
) -> None:
    variants = [
        checked(made_variant(title, time=time, memory=memory, eval_loss=loss, loss=loss))
        for title, (time, memory, loss) in zip(("baseline", "checkpoint"), sides, strict=True)
    ]
    policy = name if name.startswith("memory") else "training"
    before = exported(*variants, policy=policy)
    found, after = again(json.loads(json.dumps(build(before, name))))
    for one, other in zip(before.variants, after, strict=True):
        assert other.metrics == pytest.approx(one.metrics, rel=1e-12)
        assert [r.metrics for r in other.repeats] == [r.metrics for r in one.repeats]
        assert (other.status, other.quality_checked) == (one.status, one.quality_checked)
    assert found.study.workload == before.study.workload
    assert found.study.thresholds == before.study.thresholds
    assert found.study.source.published.decision == before.comparison.decision.decision
    ours = decide_study(found.study, after).decision
    assert (ours.decision, ours.reason) == (
        before.comparison.decision.decision,
        before.comparison.decision.reason,
    )


def test_failed_repeats_survive_export_and_import() -> None:
    variants = (
        made_variant("baseline"),
        made_variant("checkpoint", statuses=("ok", "oom", "ok"), memory=100.0),
    )
    report = build(exported(*variants), "memory-strategy")
    assert [run["status"] for run in report["candidates"][1]["runs"]] == ["ok", "oom", "ok"]
    _, after = again(report)
    assert [repeat.status for repeat in after[1].repeats] == ["ok", "oom", "ok"]
    assert after[1].status is Status.OOM


def test_an_export_has_the_names_that_the_closing_stage_asks_for() -> None:
    before = exported(made_variant("baseline"), made_variant("checkpoint", memory=100.0))
    ids = {
        name: build(before, name)["semantic_id"]
        for name in ("training", "memory-strategy", "memory-budget")
    }
    assert ids == {
        "training": "PERF-TRAINING-BASELINE",
        "memory-strategy": "PERF-MEMORY-STRATEGY",
        "memory-budget": "PERF-MEMORY-BUDGET",
    }
    strategy, baseline = build(before, "memory-strategy"), build(before, "training")
    assert strategy["schema_version"] == "training-performance-project/v1"
    assert strategy["config"]["dtype"] == baseline["config"]["dtype"] == "float32"
    assert len(strategy["candidates"][0]["runs"]) == 3
    assert strategy["candidates"][0]["peak_memory_mb"] == 1000.0
    assert baseline["baseline"]["peak_mem_mb"] == 1000.0


def test_a_training_report_compares_the_best_candidate_and_has_no_room_for_others() -> None:
    before = exported(
        made_variant("baseline"),
        made_variant("slow", time=60.0),
        made_variant("fast", time=20.0),
    )
    report = build(before, "training")
    assert report["tuned"]["name"] == "fast"
    assert report["summary"]["step_time_delta_ms"] == 30.0
    found, _ = again(report)
    assert [variant.name for variant in found.study.variants] == ["baseline", "fast"]


def test_a_format_that_compares_refuses_what_has_nothing_to_compare() -> None:
    probe = exported(made_variant("alone"), plan={"probe": True})
    with pytest.raises(PlanError, match="probe without a baseline"):
        build(probe, "memory-strategy")
    assert build(probe, "training")["stage"] == "bf16_capacity_probe"
    two = exported(made_variant("one"), made_variant("two"), plan={"probe": True})
    with pytest.raises(PlanError, match="holds one variant"):
        build(two, "training")
    broken = exported(made_variant("baseline"), made_variant("big", statuses=("oom",), time=None))
    with pytest.raises(PlanError, match="no measured baseline and candidate"):
        build(broken, "training")


def test_an_export_whose_variants_were_renamed_is_refused() -> None:
    report = build(exported(made_variant("baseline"), made_variant("a")), "memory-strategy")
    report["candidates"][1]["name"] = "b"
    assert "'b' is none of trainperf.study (a, baseline)" in refusal(report)


def test_a_normalised_report_is_decided_under_its_budget_where_it_has_one() -> None:
    free = benchmark_report()
    assert parse(document(free)).study.policy == "training"
    budget = {"memory_cap_mb": 11000.0, "min_samples_per_s": 1.0}
    found = decided(benchmark_report(budget=budget, quality_floor={"max_val_loss": 2.1}))
    assert found.reason == "strategy_is_best_feasible_option"
    alone = benchmark_report(
        standard_metrics={"checkpoint": candidate("checkpoint", 1.0, 1.0)}, experiment=CONFIG
    )
    assert decided(alone).decision == "measure"
