"""Closing a study: gates, labels, the chain of files, and every way to tamper with it."""

from __future__ import annotations

import json
import socket
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from closing_studies import BASE, a_block, add_regression, artifact_of, explain, record_closable
from made_reports import PUBLISHED, document
from recorded_studies import a_store, clean_surroundings, record

import trainperf_mlflow as tp
from trainperf_mlflow import api
from trainperf_mlflow.cli import cli
from trainperf_mlflow.errors import StoreError
from trainperf_mlflow.evidence.formats import closing, parse
from trainperf_mlflow.evidence.manifest import Manifest
from trainperf_mlflow.reporting.closing import closure_text
from trainperf_mlflow.results.repeats import Block
from trainperf_mlflow.results.study import Variant
from trainperf_mlflow.tracking import claims, names
from trainperf_mlflow.tracking.claims import claims_on
from trainperf_mlflow.tracking.closing import study_runs
from trainperf_mlflow.tracking.store import Store

FILES = (names.MANIFEST_FILE, names.CLOSING_FILE, names.HANDOFF_FILE)


BASELINE = (3.0, 3.1, 3.2)
TRAINED = {
    "baseline": BASELINE,
    "same": BASELINE,
    "worse": tuple(loss + 0.3 for loss in BASELINE),
    "diverged": (3.0, 3.1, None),
    "open": (3.0, 3.9, 2.4),
}
REASONS = {"worse": "eval_loss_constraint_broken", "diverged": "candidate_diverged"}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return a_store(tmp_path_factory.mktemp("close"))


@pytest.fixture(autouse=True)
def surroundings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    clean_surroundings(monkeypatch, tmp_path)


@pytest.fixture(scope="module")
def whole(store: Store) -> str:
    """A closed study that lacks nothing."""
    study_id = record_closable(store, "whole", repeats=3).study_id
    add_regression(store, study_id)
    closed = trainperf(store, "close", study_id, "--label", "whole-v1", "--format", "json")
    assert closed.exit_code == 0, closed.output
    return study_id


def trainperf(store: Store, *words: str) -> Result:
    return CliRunner().invoke(cli, [*words, "--tracking-uri", store.tracking_uri])


def closed_json(store: Store, *words: str) -> dict[str, Any]:
    done = trainperf(store, "close", *words, "--format", "json")
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def tags_of(store: Store, run_id: str) -> dict[str, str]:
    return dict(store.client.get_run(run_id).data.tags)


def variant_run(store: Store, study_id: str, name: str) -> str:
    return next(
        str(run.info.run_id)
        for run in store.client.search_runs([store.experiment_id], max_results=1000)
        if run.data.tags.get(names.PARENT_RUN_ID) == study_id
        and run.data.tags.get(names.VARIANT) == name
    )


def files_of(store: Store, study_id: str) -> dict[str, bytes]:
    paths = {path: artifact_of(store, study_id, path) for path in FILES}
    return {path: file.read_bytes() for path, file in paths.items() if file.exists()}


def manifest_of(store: Store, study_id: str) -> Manifest:
    return Manifest.from_json(files_of(store, study_id)[names.MANIFEST_FILE])


# --- what is decided ---------------------------------------------------------------------------


def test_a_study_that_lacks_nothing_is_accepted_and_tagged(store: Store, whole: str) -> None:
    tags = tags_of(store, whole)
    assert tags[names.CLOSED] == "whole-v1"
    assert tags[names.HANDOFF] == names.HANDOFF_FILE
    assert (tags[names.DECISION], tags[names.POLICY]) == ("accept", "qualification")
    assert tags[names.REASON] == "at_least_one_candidate_passed_profiling_qualification"
    assert tags[names.NEXT_ACTION] == "write_part05_handoff"
    assert tags[names.BEST_CANDIDATE] == "checkpoint"
    assert "at_least_one_candidate" in tags[names.NOTE]
    candidate = next(
        run
        for run in store.client.search_runs([store.experiment_id])
        if run.data.tags.get(names.PARENT_RUN_ID) == whole
        and run.data.tags[names.VARIANT] == "checkpoint"
    )
    assert candidate.data.tags[names.POLICY] == "qualification"
    assert not tp.decisions(decision="accept", tracking_uri=store.tracking_uri).empty


def test_the_closing_report_has_the_fields_of_the_source(store: Store, whole: str) -> None:
    report = tp.export(whole, "closing", tracking_uri=store.tracking_uri)
    assert report["schema_version"] == "profiling-optimization-benchmark/v1"
    assert report["semantic_id"] == "PERF-PROFILING-CLOSURE"
    assert report["run_label"] == "whole-v1"
    assert report["config"]["optimizer"] == "AdamW"
    assert report["validation"]["evidence_roles"] == {
        "adoption_metrics": "unprofiled_repeated_measurements",
        "profiler_metrics": "bottleneck_attribution_only",
        "activation_scope_metrics": "scope_limited_unprofiled_repeated_measurements",
    }
    assert report["validation"]["scope_boundary"] == {
        "top_level_decision_scope": "full_training_adoption",
        "activation_scope_promotable_to_full_training": False,
    }
    assert report["profile"]["timing_for_adoption"] is False
    assert report["profile"]["missing_strategies"] == []
    assert report["profile"]["phase_memory"]["status"] == "collected"
    scopes = report["decision_scopes"]
    assert scopes["full_training_adoption"]["seq_len"] == 128
    assert scopes["activation_memory_mechanism"]["promotable_to_full_training"] is False
    assert report["standard_metrics"]["checkpoint"]["peak_memory_mb"] == 9000.0
    assert report["validation"]["pressure_validation"]["status"] == "not_collected"
    assert {"experiment", "limitations", "bottleneck"} <= report.keys()
    found = parse(document(report))
    assert found.decision is not None
    assert (found.decision.decision, found.study.label) == ("accept", "whole-v1")
    assert {variant.name for variant in found.study.variants} == {"baseline", "checkpoint"}


def test_each_lack_is_listed_and_keeps_the_candidate_from_acceptance(store: Store) -> None:
    study_id = record_closable(store, "lacking", explained=False).study_id
    found = closed_json(store, study_id, "--check")
    (record,) = found["candidates"]
    assert record["decision"] == "tune"
    assert record["failed_gates"] == []
    assert record["missing_evidence"] == [
        "three_repeats",
        "confirmed_gain",
        "profile_trace",
        "phase_memory",
        "regression",
    ]
    assert found["missing_evidence"][-2:] == ["activation_memory_scope", "pressure_validation"]
    assert found["next_action"] == "collect_phase_memory_evidence"
    unbudgeted = record_closable(store, "unbudgeted", policy="training").study_id
    found = closed_json(store, unbudgeted, "--check")
    assert "memory_budget" in found["candidates"][0]["missing_evidence"]


def test_a_throughput_that_the_pairs_contradict_is_not_confirmed_and_says_so(store: Store) -> None:
    def blocks(wall_ms: float, step_ms: float) -> tuple[Block, ...]:
        made = [a_block(0, index, step_ms + index / 10) for index in range(6)]
        return tuple(block.model_copy(update={"wall_ms": wall_ms}) for block in made)

    sides = {
        "baseline": {"blocks": blocks(300.0, 45.0)},
        "checkpoint": {"blocks": blocks(130.0, 60.0)},
    }
    study_id = record_closable(store, "opposite", policy="training", change=sides).study_id
    found = closed_json(store, study_id, "--check")
    assert found["candidates"][0]["throughput_ratio"] > 2
    assert "confirmed_gain" in found["candidates"][0]["missing_evidence"]
    assert found["decision"] != "accept"
    assert "contradicted_by_pairs" in "".join(found["limitations"])
    assert "the pairs count" in closure_text(found)


@pytest.mark.parametrize(
    ("change", "decision", "gates"),
    [
        ({"peak_mem_mb": 9600.0}, "tune", ["memory_saving"]),
        ({"step_ms": 90.0}, "tune", ["throughput_ratio"]),
        ({"eval_loss": 2.42}, "reject", ["loss_delta"]),
        ({"peak_mem_mb": 11500.0}, "reject", ["memory_saving", "memory_budget"]),
    ],
)
def test_a_failed_gate_is_named(
    store: Store, change: dict[str, Any], decision: str, gates: list[str]
) -> None:
    study_id = record_closable(store, "failing", repeats=3, change={"checkpoint": change}).study_id
    add_regression(store, study_id)
    found = closed_json(store, study_id, "--check")
    assert found["candidates"][0]["failed_gates"] == gates
    assert found["decision"] == decision
    if gates == ["memory_saving"]:
        assert found["reason"] == "global_peak_memory_saving_below_threshold"
        assert found["next_action"].startswith("retain_phase_evidence")


def test_a_regression_that_does_not_accept_keeps_the_study_at_tune(store: Store) -> None:
    study_id = record_closable(store, "regressed", repeats=3).study_id
    add_regression(store, study_id, "reject")
    found = closed_json(store, study_id, "--check")
    assert found["candidates"][0]["missing_evidence"] == ["regression_acceptance"]


def test_a_candidate_that_longer_training_shows_to_fail_is_rejected_and_the_handoff_says_why(
    store: Store,
) -> None:
    variants = tuple(
        Variant(
            name=name,
            role="baseline" if name == "baseline" else "candidate",
            config={**BASE, "checkpoint": name != "baseline"},
            changed={} if name == "baseline" else {"checkpoint": True},
        )
        for name in TRAINED
    )
    study_id = record_closable(
        store, "trained", explained=False, variants=variants, trained=TRAINED
    ).study_id
    closed = tp.close(study_id, "trained-v1", tracking_uri=store.tracking_uri)
    failed = {record["name"]: record["failed_gates"] for record in closed.candidates}
    assert failed == {
        name: ["longer_training"] if name in REASONS else []
        for name in TRAINED
        if name != "baseline"
    }
    assert "longer_training_does_not_show_whether_it_ends_as_well" in closed.limitations
    handoff = tp.load_handoff(study_id, tracking_uri=store.tracking_uri)
    for candidate in handoff.candidates:
        verdict = {"open": "not_shown"}.get(candidate.name, candidate.name)
        assert candidate.longer_training is not None
        assert candidate.longer_training.verdict == verdict
        assert candidate.decision == ("reject" if candidate.name in REASONS else "tune")
    tags = {
        run.data.tags.get(names.VARIANT): run.data.tags
        for run in store.client.search_runs([store.experiment_id])
        if run.data.tags.get(names.PARENT_RUN_ID) == study_id
    }
    for name, reason in REASONS.items():
        assert tags[name][names.REASON] == reason
        assert tags[name][names.ROLLBACK] == "true"
    assert "worse by over 0.01" in closed.text
    assert "with seed 44, with which the baseline's did not" in closed.text
    # The file with every seed's losses is held by the manifest.
    assert "convergence" in {a.role for a in manifest_of(store, study_id).artifacts}


def test_a_pair_that_is_explained_on_one_side_only_lacks_traces_and_phases(store: Store) -> None:
    recorder = record_closable(store, "one side", repeats=3, explained=False)
    explain(store, recorder, oom="checkpoint")
    add_regression(store, recorder.study_id)
    found = closed_json(store, recorder.study_id, "--label", "one-side-v1")
    assert found["decision"] == "tune"
    assert found["candidates"][0]["missing_evidence"] == ["profile_trace", "phase_memory"]
    report = tp.export(recorder.study_id, "closing", tracking_uri=store.tracking_uri)
    assert report["profile"]["missing_strategies"] == ["checkpoint"]
    assert report["profile"]["expected_strategies"] == ["baseline", "checkpoint"]


def test_check_writes_nothing(store: Store) -> None:
    study_id = record_closable(store, "untouched", explained=False).study_id
    before = tags_of(store, study_id)
    assert closed_json(store, study_id, "--check", "--label", "x1")["status"] == "ready"
    assert (tags_of(store, study_id), files_of(store, study_id)) == (before, {})


def test_each_published_report_closes_or_says_what_is_missing(store: Store) -> None:
    for index, file in enumerate(PUBLISHED):
        (outcome,) = tp.import_reports(file, tracking_uri=store.tracking_uri)
        done = trainperf(store, "close", outcome.study_id, "--label", f"published {index}")
        if outcome.decision == "measure":
            assert (done.exit_code, "probe without a baseline" in done.stderr) == (2, True)
            continue
        assert (done.exit_code, "missing evidence: " in done.stdout) == (0, True), done.output
        handoff = tp.load_handoff(outcome.study_id, tracking_uri=store.tracking_uri)
        assert handoff.baseline_path.startswith(f"{outcome.study_id}/evidence/source/")


# --- labels ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "label",
    [None, "", "  ", "replace_with_unique_label", "LABEL", "<label>", "todo", "a\nb", "x" * 251],
)
def test_a_label_that_says_nothing_is_refused(store: Store, whole: str, label: str | None) -> None:
    done = trainperf(store, "close", whole, *([] if label is None else ["--label", label]))
    assert (done.exit_code, "label" in done.stderr) == (2, True)


def test_the_same_close_again_changes_nothing(store: Store, whole: str) -> None:
    files, tags = files_of(store, whole), tags_of(store, whole)
    again = closed_json(store, whole, "--label", "whole-v1")
    assert again["status"] == closed_json(store, whole, "--check")["status"] == "already_complete"
    assert again["decision"] == "accept"
    assert (files_of(store, whole), tags_of(store, whole)) == (files, tags)


def test_a_label_stands_for_one_study_and_one_close(store: Store, whole: str) -> None:
    other = record_closable(store, "other", explained=False).study_id
    for study, label, words in (
        (other, "whole-v1", f"belongs to study {whole}"),
        (whole, "whole-v2", "is closed as 'whole-v1'"),
    ):
        done = trainperf(store, "close", study, "--label", label)
        assert (done.exit_code, words in done.stderr) == (4, True), done.output
    done = trainperf(store, "close", whole, "--label", "whole-v1", "--pressure-study", other)
    assert (done.exit_code, "with other evidence (pressure: none" in done.stderr) == (4, True)


def test_a_label_that_another_study_took_while_this_one_was_weighed_is_refused(
    monkeypatch: pytest.MonkeyPatch, store: Store
) -> None:
    study_id = record_closable(store, "late", explained=False).study_id
    real, taken = claims.claim, list[str]()

    def claim(study: Any) -> Any:
        run = store.client.create_run(store.experiment_id, tags={names.CLOSED: "late-v1"})
        taken.append(run.info.run_id)
        return real(study)

    monkeypatch.setattr(claims, "claim", claim)
    with pytest.raises(tp.EvidenceError, match="belongs to study"):
        tp.close(study_id, "late-v1", tracking_uri=store.tracking_uri)
    store.client.delete_run(taken[0])
    tags = tags_of(store, study_id)
    assert (files_of(store, study_id), names.CLOSED in tags, claims_on(tags)) == ({}, False, ())


# --- a closed study stays as it is -------------------------------------------------------------


def test_compare_prints_a_closed_study_and_tags_nothing(store: Store, whole: str) -> None:
    before = tags_of(store, whole)
    done = trainperf(store, "compare", whole)
    assert (done.exit_code, "policy memory-budget" in done.stdout) == (0, True)
    assert tags_of(store, whole) == before


@pytest.fixture(scope="module")
def lacking(store: Store) -> str:
    """A closed study that lacks a regression: its close says another thing than its pairs."""
    study_id = record_closable(store, "lacking", repeats=3).study_id
    assert trainperf(store, "close", study_id, "--label", "head-v1").exit_code == 0
    return study_id


def test_a_closed_studys_decision_is_the_headline_and_the_measured_one_stands_beside_it(
    store: Store, lacking: str
) -> None:
    made = tp.compare(lacking, tracking_uri=store.tracking_uri)
    assert made.closed is not None
    assert made.standing is made.closed
    assert (made.decision.decision, made.standing.decision) == ("accept", "tune")
    row = tp.decisions(tracking_uri=store.tracking_uri).set_index("study_id").loc[lacking]
    found = [row[name] for name in ("closed", "decision", "measured_decision")]
    assert found == ["head-v1", "tune", "accept"]
    note = tags_of(store, lacking)[names.NOTE]
    pages = [artifact_of(store, lacking, f"report.{end}").read_text() for end in ("html", "md")]
    told = [
        *(trainperf(store, command, lacking).stdout for command in ("compare", "show")),
        trainperf(store, "report", lacking, "--format", "markdown").stdout,
        trainperf(store, "report", lacking, "--output", "-").stdout,
        *(note, *pages),
    ]
    for text in map(str.lower, told):
        closed, measured = text.index("closed as"), text.index("measured before the close")
        assert closed < text.index("head-v1", closed) < measured
        assert ("tune" in text[:measured], "accept" in text[measured:]) == (True, True)
    assert note.startswith("Closed as head-v1: **tune: checkpoint**")
    assert pages[1].startswith("### 🟠 Tune: ")


@pytest.mark.parametrize(
    "change",
    [
        None,
        {"schema_version": "profiling-optimization-benchmark/v2"},
        {"decision": {"decision": "tune", "reason": "of_a_newer_version", "next_action": "wait"}},
    ],
)
def test_a_close_that_cannot_be_read_is_told_with_what_was_measured(
    store: Store, lacking: str, change: dict[str, Any] | None
) -> None:
    file = artifact_of(store, lacking, names.CLOSING_FILE)
    data = file.read_bytes()
    if change is None:
        file.unlink()
    else:
        file.write_text(json.dumps({**json.loads(data), **change}))
    for words in (("compare",), ("show",), ("report", "--output", "-")):
        done = trainperf(store, words[0], lacking, *words[1:])
        assert (done.exit_code, "head-v1" in done.stdout) == (0, True), done.output
        assert "its close cannot be read" in done.stdout
    file.write_bytes(data)


def test_only_a_whole_study_is_closed(store: Store) -> None:
    run = store.client.create_run(
        store.experiment_id, tags={names.KIND: "study", names.STUDY: "x"}, run_name="running"
    )
    store.client.set_tag(run.info.run_id, names.STUDY_ID, run.info.run_id)
    done = trainperf(store, "close", run.info.run_id, "--label", "v0")
    assert (done.exit_code, "is RUNNING" in done.stderr) == (4, True)
    store.client.set_terminated(run.info.run_id)
    done = trainperf(store, "close", run.info.run_id, "--label", "v0")
    assert (done.exit_code, "study.json" in done.stderr) == (4, True)


# --- tampering ---------------------------------------------------------------------------------


def refusals(store: Store, study_id: str, label: str) -> list[str]:
    """What closing, checking and loading the handoff say; each must refuse."""
    said = []
    for words in (("--label", label), ("--check",)):
        done = trainperf(store, "close", study_id, *words)
        assert done.exit_code == 4, done.output
        said.append(done.stderr)
    with pytest.raises(tp.EvidenceError) as caught:
        tp.load_handoff(study_id, tracking_uri=store.tracking_uri)
    return [*said, str(caught.value)]


@pytest.fixture(scope="module")
def tampered(store: Store) -> str:
    """A small closed study with every kind of artifact."""
    study_id = record_closable(store, "tampered").study_id
    add_regression(store, study_id)
    assert trainperf(store, "close", study_id, "--label", "tampered-v1").exit_code == 0
    return study_id


def test_any_byte_of_the_evidence_that_is_changed_is_found(store: Store, tampered: str) -> None:
    manifest = manifest_of(store, tampered)
    assert {artifact.role for artifact in manifest.artifacts} >= {
        *("plan", "comparison", "measurement", "environment", "trace", "other"),
        *("profile_report", "profile_summary", "phase_report", "phase_summary"),
    }
    places = [(artifact.run_id, artifact.path) for artifact in manifest.artifacts]
    for run_id, path in [*places, *((tampered, path) for path in FILES)]:
        file = artifact_of(store, run_id, path)
        data = file.read_bytes()
        file.write_bytes(data[:-2] + bytes([data[-2] ^ 1]) + data[-1:])
        for said in refusals(store, tampered, "tampered-v1"):
            assert path in said
        file.write_bytes(data)
    assert closed_json(store, tampered, "--check")["status"] == "already_complete"


def test_evidence_that_is_gone_is_found(store: Store, tampered: str) -> None:
    for artifact in manifest_of(store, tampered).artifacts:
        file = artifact_of(store, artifact.run_id, artifact.path)
        data = file.read_bytes()
        file.unlink()
        with pytest.raises(tp.EvidenceError, match=artifact.path):
            tp.load_handoff(tampered, tracking_uri=store.tracking_uri)
        file.write_bytes(data)


def test_an_open_study_refuses_evidence_that_was_changed_since_it_was_written(
    store: Store,
) -> None:
    study_id = record_closable(store, "open").study_id
    for run in store.client.search_runs([store.experiment_id], max_results=1000):
        if run.data.tags.get(names.STUDY_ID) != study_id:
            continue
        for tag in run.data.tags:
            if not tag.startswith(names.SHA256_PREFIX):
                continue
            path = tag.removeprefix(names.SHA256_PREFIX)
            file = artifact_of(store, run.info.run_id, path)
            data = file.read_bytes()
            file.write_bytes(data + b" ")
            done = trainperf(store, "close", study_id, "--label", "open-v1")
            assert (done.exit_code, path in done.stderr) == (4, True), done.output
            file.write_bytes(data)
    assert files_of(store, study_id) == {}


def test_swapped_added_and_rewritten_evidence_is_found(store: Store, whole: str) -> None:
    results = [
        artifact_of(store, artifact.run_id, artifact.path)
        for artifact in manifest_of(store, whole).artifacts
        if artifact.role == "measurement"
    ]
    one, two = results[0].read_bytes(), results[1].read_bytes()
    results[0].write_bytes(two)
    results[1].write_bytes(one)
    assert "result.json" in refusals(store, whole, "whole-v1")[0]
    results[0].write_bytes(one)
    results[1].write_bytes(two)
    extra = artifact_of(store, whole, "extra.json")
    extra.write_text("{}")
    assert "extra.json" in refusals(store, whole, "whole-v1")[1]
    extra.unlink()


def test_metrics_that_were_changed_in_the_store_are_found(store: Store) -> None:
    study_id = record_closable(store, "metrics", explained=False).study_id
    repeat = next(
        run.info.run_id
        for run in store.client.search_runs([store.experiment_id], max_results=1000)
        if run.data.tags.get(names.STUDY_ID) == study_id
        and run.data.tags[names.KIND] == "repeat"
        and run.data.tags[names.VARIANT] == "checkpoint"
    )
    value = store.client.get_run(repeat).data.metrics["peak_mem_mb"]
    store.client.log_metric(repeat, "peak_mem_mb", 1.0, step=1)
    done = trainperf(store, "close", study_id, "--label", "metrics-v1")
    assert (done.exit_code, "peak_mem_mb of checkpoint" in done.stderr) == (4, True)
    store.client.log_metric(repeat, "peak_mem_mb", value, step=2)
    closed_json(store, study_id, "--label", "metrics-v1")
    variant = variant_run(store, study_id, "checkpoint")
    store.client.log_metric(variant, "step_time_ms", 1.0, step=1)
    for said in refusals(store, study_id, "metrics-v1"):
        assert f"tags of checkpoint (run {variant}) were changed in the store" in said
    store.client.log_metric(repeat, "peak_mem_mb", 1.0, step=3)
    for said in refusals(store, study_id, "metrics-v1"):
        assert f"checkpoint #1 (run {repeat}) were changed in the store" in said.replace(
            "#2", "#1"
        ).replace("#3", "#1")


def test_a_closed_studys_decision_that_was_changed_in_its_tags_is_found(
    store: Store, whole: str
) -> None:
    tags = tags_of(store, whole)
    decided = ("DECISION", "REASON", "NEXT_ACTION", "ROLLBACK", "CONFIDENCE", "POLICY")
    for key in (getattr(names, name) for name in decided):
        store.client.set_tag(whole, key, "changed")
        for said in refusals(store, whole, "whole-v1"):
            assert f"the tag {key} is 'changed', but {names.CLOSING_FILE} says" in said
        store.client.set_tag(whole, key, tags[key])
    assert closed_json(store, whole, "--check")["status"] == "already_complete"


@pytest.mark.parametrize("key", ["CHANGED_VARIABLE", "STATUS", "DECISION"])
def test_a_tag_of_a_variant_that_was_changed_after_the_close_is_found(
    store: Store, whole: str, key: str
) -> None:
    run_id = variant_run(store, whole, "checkpoint")
    tag = getattr(names, key)
    before = tags_of(store, run_id)[tag]
    store.client.set_tag(run_id, tag, "changed")
    for said in refusals(store, whole, "whole-v1"):
        assert "checkpoint" in said
        assert "changed" in said
    store.client.set_tag(run_id, tag, before)
    assert closed_json(store, whole, "--check")["status"] == "already_complete"


def test_a_param_that_was_added_to_a_variant_after_the_close_is_found(store: Store) -> None:
    study_id = record_closable(store, "param", explained=False).study_id
    closed_json(store, study_id, "--label", "param-v1")
    run_id = variant_run(store, study_id, "baseline")
    store.client.log_param(run_id, "fused", "True")
    for said in refusals(store, study_id, "param-v1"):
        assert f"params or tags of baseline (run {run_id}) were changed" in said


# --- interruptions and broken chains -----------------------------------------------------------


def interrupted(
    monkeypatch: pytest.MonkeyPatch, store: Store, study_id: str, label: str, after: int
) -> None:
    """A close that ends after some of its files were written."""
    client = type(store.client)
    real, written = client.log_text, []

    def log_text(self: Any, run_id: str, text: str, path: str) -> None:
        if len(written) == after:
            raise RuntimeError("the store is gone")
        written.append(path)
        real(self, run_id, text, path)

    def log_batch(self: Any, *given: Any, **named: Any) -> None:
        raise RuntimeError("the store is gone")

    with monkeypatch.context() as patched:
        patched.setattr(client, "log_text", log_text)
        patched.setattr(client, "log_batch", log_batch)
        with pytest.raises(StoreError):
            api.close(study_id, label, tracking_uri=store.tracking_uri)
    assert written == list(FILES[:after])


@pytest.mark.parametrize("after", [1, 2, 3])
def test_an_interrupted_close_is_a_broken_chain_until_it_is_completed(
    monkeypatch: pytest.MonkeyPatch, store: Store, after: int
) -> None:
    study_id = record_closable(store, f"interrupted {after}", explained=False).study_id
    label = f"interrupted-v{after}"
    interrupted(monkeypatch, store, study_id, label, after)
    assert names.CLOSED not in tags_of(store, study_id)
    checked = trainperf(store, "close", study_id, "--check")
    assert (checked.exit_code, "broken chain" in checked.stderr) == (4, True)
    for path in FILES[after:]:
        assert path in checked.stderr
    with pytest.raises(tp.EvidenceError, match="broken chain"):
        tp.load_handoff(study_id, tracking_uri=store.tracking_uri)
    assert closed_json(store, study_id, "--label", label)["status"] == "repaired"
    assert tp.load_handoff(study_id, tracking_uri=store.tracking_uri).run_label == label


def test_a_close_that_was_killed_after_its_tags_is_finished_by_the_same_close(
    monkeypatch: pytest.MonkeyPatch, store: Store
) -> None:
    study_id = record_closable(store, "stale", explained=False).study_id
    with monkeypatch.context() as patched:
        patched.setattr("trainperf_mlflow.api.closing.attach_report", killed)
        with pytest.raises(KeyboardInterrupt):
            api.close(study_id, "stale-v1", tracking_uri=store.tracking_uri)
    tags = tags_of(store, study_id)
    assert tags[names.CLOSED] == "stale-v1"
    assert "stale-v1" not in tags[names.NOTE]
    assert closed_json(store, study_id, "--check")["status"] == "already_complete"
    assert tags_of(store, study_id)[names.NOTE] == tags[names.NOTE]  # a check only reads
    assert closed_json(store, study_id, "--label", "stale-v1")["status"] == "repaired"
    tags = tags_of(store, study_id)
    assert "candidate_requires_more_evidence" in tags[names.NOTE]
    assert artifact_of(store, study_id, names.REPORT_FILE).exists()
    assert claims_on(tags) == ()
    assert closed_json(store, study_id, "--label", "stale-v1")["status"] == "already_complete"


def killed(*arguments: Any) -> None:
    raise KeyboardInterrupt


def test_of_two_closes_at_once_one_closes_and_the_other_is_refused(
    monkeypatch: pytest.MonkeyPatch, store: Store
) -> None:
    study_id = record_closable(store, "at once", explained=False).study_id
    together = threading.Barrier(2, timeout=60)
    real = claims.claim

    def claim(study: Any) -> Any:
        together.wait()  # both have read all, and found the study open
        return real(study)

    monkeypatch.setattr(claims, "claim", claim)
    ended: dict[str, Any] = {}

    def close(label: str) -> None:
        try:
            ended[label] = api.close(study_id, label, tracking_uri=store.tracking_uri).status
        except tp.EvidenceError as error:
            ended[label] = error

    threads = [threading.Thread(target=close, args=(label,)) for label in ("first", "second")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (winner,) = (label for label, found in ended.items() if found == "completed")
    (loser,) = ended.keys() - {winner}
    assert ended[loser].exit_code == 4
    assert "by another command" in str(ended[loser])
    assert tp.load_handoff(study_id, tracking_uri=store.tracking_uri).run_label == winner
    tags = tags_of(store, study_id)
    assert (tags[names.CLOSED], claims_on(tags)) == (winner, ())


def test_a_claim_holds_others_off_until_its_process_has_ended(
    monkeypatch: pytest.MonkeyPatch, store: Store
) -> None:
    study_id = record(store, "claimed").study_id
    monkeypatch.setattr(claims, "_WAIT_S", 0.0)
    mine = claims.claim(study_runs(store, study_id))
    with pytest.raises(tp.EvidenceError, match="is being closed by another command"):
        claims.claim(study_runs(store, study_id))
    mine.release()
    for host, pid, at in (
        (socket.gethostname(), 2**22 + 1, time.time()),  # no process has such an id
        ("elsewhere", 1, time.time() - 3600),
    ):
        left = {"host": host, "pid": pid, "at": at}
        store.client.set_tag(study_id, f"{names.CLAIM_PREFIX}{pid}", json.dumps(left))
    claims.claim(study_runs(store, study_id)).release()
    assert claims_on(tags_of(store, study_id)) == ()


def test_an_interrupted_close_is_not_completed_on_other_evidence(
    monkeypatch: pytest.MonkeyPatch, store: Store
) -> None:
    study_id = record_closable(store, "moved on", explained=False).study_id
    interrupted(monkeypatch, store, study_id, "moved-v1", 2)
    add_regression(store, study_id)
    done = trainperf(store, "close", study_id, "--label", "moved-v1")
    assert (done.exit_code, "regression.json" in done.stderr) == (4, True)
    assert "close under another --label" in done.stderr
    assert closed_json(store, study_id, "--label", "moved-v2")["status"] == "completed"
    assert tp.load_handoff(study_id, tracking_uri=store.tracking_uri).run_label == "moved-v2"


@pytest.mark.parametrize("path", [names.CLOSING_FILE, names.HANDOFF_FILE])
def test_a_report_without_its_handoff_or_the_reverse_is_a_broken_chain(
    store: Store, whole: str, path: str
) -> None:
    file = artifact_of(store, whole, path)
    data = file.read_bytes()
    file.unlink()
    for said in refusals(store, whole, "whole-v1"):
        assert f"{path} is missing" in said
        assert "broken chain" in said
    file.write_bytes(data)


def test_a_handoff_without_a_report_on_an_open_study_is_never_completed(store: Store) -> None:
    study_id = record_closable(store, "stray", explained=False).study_id
    store.client.log_text(study_id, "{}", names.HANDOFF_FILE)
    done = trainperf(store, "close", study_id, "--label", "stray-v1")
    assert done.exit_code == 4
    assert f"has {names.HANDOFF_FILE}, but {names.MANIFEST_FILE} and" in done.stderr


def test_a_study_that_is_open_has_no_handoff(store: Store) -> None:
    study_id = record(store, "open").study_id
    with pytest.raises(tp.PlanError, match="is not closed"):
        tp.load_handoff(study_id, tracking_uri=store.tracking_uri)


def test_the_format_that_is_written_is_the_one_that_is_imported() -> None:
    from trainperf_mlflow.evidence.closing_report import SCHEMA

    assert closing.SCHEMA == SCHEMA
