"""A study in MLflow while it is measured: the contract, the calls, the outages."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient
from mlflow.entities import Run
from recorded_studies import (
    a_comparison,
    a_failed_repeat,
    a_repeat,
    a_store,
    a_study,
    clean_surroundings,
    record,
    statuses,
)

from trainperf_mlflow.analysis.estimate import Prediction
from trainperf_mlflow.errors import Interrupted, StoreError
from trainperf_mlflow.results.record import Status
from trainperf_mlflow.results.repeats import Block, Effect
from trainperf_mlflow.results.study import Study, Variant
from trainperf_mlflow.tracking.recorder import Recorder
from trainperf_mlflow.tracking.spool import SpoolError, StudyFolder
from trainperf_mlflow.tracking.store import Store

WRITES = (
    "create_run",
    "log_batch",
    "log_metric",
    "log_param",
    "set_tag",
    "log_text",
    "log_dict",
    "log_artifact",
    "log_artifacts",
    "log_inputs",
    "set_terminated",
    "update_run",
)
READS = ("get_run", "search_runs", "get_experiment", "download_artifacts")


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    clean_surroundings(monkeypatch, tmp_path)
    return a_store(tmp_path)


def runs_by_name(store: Store) -> dict[str, Run]:
    return {run.info.run_name: run for run in store.client.search_runs([store.experiment_id])}


def artifact(store: Store, run: Run, name: str) -> Any:
    return json.loads(Path(store.client.download_artifacts(run.info.run_id, name)).read_text())


@contextmanager
def counted_calls() -> Iterator[Counter[str]]:
    """Every public call of the client, but not those that a client's method makes itself."""
    counts: Counter[str] = Counter()
    depth = 0

    def counting(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal depth
            counts[name] += depth == 0
            depth += 1
            try:
                return method(*args, **kwargs)
            finally:
                depth -= 1

        return call

    with pytest.MonkeyPatch.context() as patch:
        for name in (*WRITES, *READS):
            patch.setattr(MlflowClient, name, counting(name, getattr(MlflowClient, name)))
        yield counts


@contextmanager
def outage(*methods: str, after: int = 0, done: bool = False) -> Iterator[None]:
    """The store fails in these calls (all, where none is named), from the one after ``after``.

    Args:
        done: the call is carried out although the client is told that it failed.
    """
    left = after

    def failing(method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal left
            left -= 1
            if left >= 0:
                return method(*args, **kwargs)
            if done:
                method(*args, **kwargs)
            raise ConnectionError("the store is away")

        return call

    with pytest.MonkeyPatch.context() as patch:
        for name in methods or (*WRITES, *READS):
            patch.setattr(MlflowClient, name, failing(getattr(MlflowClient, name)))
        yield


# --- the contract ------------------------------------------------------------------------------


def test_a_study_is_a_tree_of_runs_with_the_tags_of_the_contract(store: Store) -> None:
    recorder = record(store)
    runs = runs_by_name(store)
    assert set(runs) == {
        "does bf16 pay",
        "baseline",
        "candidate bf16",
        "baseline #1",
        "baseline #2",
        "bf16 #1",
        "bf16 #2",
    }
    for run in runs.values():
        assert run.info.status == "FINISHED"
        assert run.data.tags["trainperf.study_id"] == recorder.study_id
        assert run.data.tags["trainperf.workload_digest"] == "ab" * 32
        assert run.data.tags["trainperf.schema"]
        assert run.data.tags["mlflow.user"]
    parents = {
        name: run.data.tags.get("mlflow.parentRunId")
        for name, run in runs.items()
        if run.info.run_id != recorder.study_id
    }
    assert parents["candidate bf16"] == parents["baseline"] == recorder.study_id
    assert parents["bf16 #2"] == runs["candidate bf16"].info.run_id
    assert runs["bf16 #2"].data.tags["trainperf.kind"] == "repeat"
    assert runs["bf16 #2"].data.tags["trainperf.role"] == "candidate"
    assert runs["candidate bf16"].data.tags["trainperf.changed_variable"] == "precision"
    assert runs["candidate bf16"].data.tags["trainperf.effect_verified"] == "true"
    assert runs["candidate bf16"].data.tags["trainperf.ok_repeats"] == "2/2"
    assert "trainperf.changed_variable" not in runs["baseline"].data.tags


def test_params_metrics_and_series_are_where_the_contract_puts_them(store: Store) -> None:
    record(store)
    runs = runs_by_name(store)
    study, bf16, repeat = (runs[n] for n in ("does bf16 pay", "candidate bf16", "bf16 #1"))
    assert study.data.params["plan.repeats"] == "2"
    assert json.loads(study.data.params["plan.candidates"]) == [{"name": "bf16"}]
    assert "plan.goal" not in study.data.params
    assert bf16.data.params["precision"] == "bf16"
    assert bf16.data.params["weights"] == "random"
    assert repeat.data.params["peak_mem_source"] == "tensor_tracker"
    assert bf16.data.metrics["step_time_ms"] == 40.5
    assert repeat.data.metrics["step_time_ms"] == 40.0
    history = store.client.get_metric_history(repeat.info.run_id, "steps/step_time_ms")
    assert [(point.step, point.value) for point in history] == [(1, 39.0), (2, 40.0), (3, 41.0)]
    losses = store.client.get_metric_history(repeat.info.run_id, "steps/loss")
    assert [point.value for point in losses] == [2.5, 2.4, 2.3]


def test_the_decision_stands_on_the_study_and_on_each_candidate(store: Store) -> None:
    recorder = record(store)
    runs = runs_by_name(store)
    for name in ("does bf16 pay", "candidate bf16"):
        tags, metrics = runs[name].data.tags, runs[name].data.metrics
        assert tags["trainperf.decision"] == "accept"
        assert tags["trainperf.reason"] == "gain_large_enough"
        assert tags["trainperf.rollback"] == "false"
        assert tags["trainperf.policy"] == "training"
        assert metrics["delta/step_time_ms"] == 10.0
        assert metrics["speedup"] == 1.25
    study = runs["does bf16 pay"]
    assert study.data.tags["trainperf.best_candidate"] == "bf16"
    assert study.data.tags["mlflow.note.content"] == "note"
    assert "trainperf.decision" not in runs["baseline"].data.tags
    assert Study.model_validate(artifact(store, study, "study.json")) == recorder.study
    assert artifact(store, study, "comparison.json")["best_candidate"] == "bf16"
    assert artifact(store, runs["bf16 #1"], "result.json")["variant"] == "bf16"
    assert artifact(store, runs["bf16 #1"], "environment.json")["torch"] == "2.13"


def test_a_study_is_found_by_the_digest_of_its_workload(store: Store) -> None:
    recorder = record(store)
    found = store.client.search_runs(
        [store.experiment_id], f"datasets.digest = '{('ab' * 32)[:36]}'"
    )
    assert recorder.study_id in {run.info.run_id for run in found}


def test_a_repeat_costs_a_handful_of_calls_however_many_steps_it_has(store: Store) -> None:
    recorder = Recorder.start(store, a_study())
    steps = tuple(float(10 + i % 3) for i in range(2000))
    block = Block(index=0, started_at=0.0, wall_ms=22_000.0, step_ms=steps, losses=steps)
    with counted_calls() as calls:
        recorder.record_repeat(a_repeat(recorder.study_id, blocks=(block,)))
    assert calls == {"create_run": 1, "log_batch": 1, "log_artifacts": 1, "set_terminated": 1}
    run = runs_by_name(store)["baseline #1"]
    assert len(store.client.get_metric_history(run.info.run_id, "steps/loss")) == 1000
    recorder.kill()


def test_a_repeat_that_failed_keeps_its_status_and_error(store: Store) -> None:
    recorder = Recorder.start(store, a_study())
    recorder.record_repeat(a_repeat(recorder.study_id, "bf16", 0))
    recorder.record_repeat(a_failed_repeat(recorder.study_id, "bf16", 1, error="x" * 9000))
    recorder.finish_variant("bf16")
    runs = runs_by_name(store)
    failed, variant = runs["bf16 #2"], runs["candidate bf16"]
    assert failed.info.status == variant.info.status == "FAILED"
    assert failed.data.tags["trainperf.status"] == variant.data.tags["trainperf.status"] == "oom"
    assert failed.data.tags["trainperf.error"].endswith("... (cut)")
    assert failed.data.metrics == {}
    assert variant.data.tags["trainperf.ok_repeats"] == "1/2"
    assert variant.data.metrics["step_time_ms"] == 50.0
    recorder.kill()


def test_a_loss_that_is_no_number_is_a_tag_and_not_a_metric(store: Store) -> None:
    recorder = Recorder.start(store, a_study())
    block = Block(
        index=0, started_at=0.0, wall_ms=20.0, step_ms=(10.0, 10.0), losses=(1.0, math.nan)
    )
    diverged = a_repeat(
        recorder.study_id,
        status=Status.DIVERGED,
        loss=math.nan,
        eval_loss=math.inf,
        blocks=(block,),
    )
    recorder.record_repeat(diverged)
    run = runs_by_name(store)["baseline #1"]
    assert run.data.tags["trainperf.not_finite"] == "loss=nan, eval_loss=inf"
    assert not {"loss", "eval_loss"} & set(run.data.metrics)
    assert run.data.metrics["steps/loss"] == 1.0
    assert artifact(store, run, "result.json")["loss"] == "NaN"
    recorder.kill()


def test_names_and_values_that_mlflow_cannot_keep_are_cut_visibly(store: Store) -> None:
    name = "a" * 300
    study = a_study(
        name="n" * 300,
        variants=(
            Variant(name="baseline", role="baseline", config={"note": "v" * 7000, "nul": "a\0b"}),
            Variant(name=name, role="candidate", config={}, changed_variable="x"),
        ),
    )
    recorder = Recorder.start(store, study)
    effect = Effect(key="x", wanted=1, verified=False, detail="d\0" * 9000)
    recorder.record_repeat(a_repeat(recorder.study_id, name, effects=(effect,)))
    values = recorder.values()
    assert recorder.finish_study(a_comparison(recorder.study, values), "z" * 9000)
    runs = {run.info.run_id: run for run in store.client.search_runs([store.experiment_id])}
    assert all(len(run.info.run_name) <= 250 for run in runs.values())
    baseline = runs[recorder.variant_runs["baseline"]]
    assert baseline.data.params["nul"] == "ab"
    assert baseline.data.params["note"].endswith("... (cut)")
    assert runs[recorder.study_id].data.tags["mlflow.note.content"].endswith("... (cut)")
    assert runs[recorder.variant_runs[name]].data.tags["trainperf.effect_verified"] == "false"


def test_a_delta_that_is_no_number_is_no_metric(store: Store) -> None:
    recorder = Recorder.start(store, a_study())
    comparison = a_comparison(recorder.study, recorder.values())
    candidate = comparison.candidates[0].model_copy(
        update={"delta": {"loss": math.inf, "step_time_ms": 1.0}}
    )
    comparison = comparison.model_copy(update={"candidates": (candidate,)})
    assert recorder.finish_study(comparison, "")
    study = store.client.get_run(recorder.study_id)
    assert study.data.metrics == {"delta/step_time_ms": 1.0}
    assert study.data.tags["trainperf.not_finite"] == "delta/loss=inf"


# --- endings -----------------------------------------------------------------------------------


def test_an_interrupted_study_ends_killed_and_keeps_what_was_measured(
    store: Store, tmp_path: Path
) -> None:
    recorder = Recorder.start(store, a_study())
    recorder.record_repeat(a_repeat(recorder.study_id))
    recorder.finish_variant("baseline")
    assert recorder.kill()
    assert statuses(store) == {
        "does bf16 pay": "KILLED",
        "candidate bf16": "KILLED",
        "baseline": "FINISHED",
        "baseline #1": "FINISHED",
    }
    assert not (tmp_path / ".trainperf").exists()


def test_ending_a_finished_study_again_changes_nothing(store: Store) -> None:
    recorder = record(store)
    assert recorder.kill()
    assert recorder.fail("too late")
    assert set(statuses(store).values()) == {"FINISHED"}


def test_a_failed_study_says_why(store: Store) -> None:
    recorder = Recorder.start(store, a_study())
    recorder.fail("no baseline repeat succeeded")
    study = store.client.get_run(recorder.study_id)
    assert study.info.status == "FAILED"
    assert study.data.tags["trainperf.error"] == "no baseline repeat succeeded"
    assert "RUNNING" not in statuses(store).values()


@pytest.mark.parametrize("call", ["log_inputs", "log_text", "log_batch"])
def test_a_start_that_fails_is_told_and_leaves_nothing_running(
    store: Store, tmp_path: Path, call: str
) -> None:
    with (
        outage(call, after=0 if call == "log_text" else 1),  # 1: of the first variant
        pytest.raises(StoreError, match="the store is away"),
    ):
        Recorder.start(store, a_study())
    assert set(statuses(store).values()) == {"FAILED"}
    assert not list((tmp_path / ".trainperf").glob("*/study.json"))


def test_a_start_on_a_disk_that_cannot_be_written_makes_no_run(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("TRAINPERF_HOME", str(tmp_path / "file"))
    with pytest.raises(SpoolError):
        Recorder.start(store, a_study())
    assert statuses(store) == {}


# --- under mlflow run --------------------------------------------------------------------------


def test_under_mlflow_run_the_projects_run_is_the_study(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store: Store
) -> None:
    project = store.client.create_run(store.experiment_id, tags={"mlflow.source.type": "PROJECT"})
    store.client.log_param(project.info.run_id, "repeats", "'2'")
    monkeypatch.setenv("MLFLOW_RUN_ID", project.info.run_id)
    recorder = record(a_store(tmp_path))
    assert recorder.study_id == project.info.run_id
    run = store.client.get_run(project.info.run_id)
    assert run.info.run_name == "does bf16 pay"
    assert run.data.tags["mlflow.source.type"] == "PROJECT"
    assert (run.data.params["repeats"], run.data.params["plan.repeats"]) == ("'2'", "2")
    second = Recorder.start(a_store(tmp_path), a_study("second"))
    assert second.study_id != recorder.study_id
    second.kill()


def test_a_project_run_that_has_ended_is_not_written_to(
    monkeypatch: pytest.MonkeyPatch, store: Store
) -> None:
    project = store.client.create_run(store.experiment_id)
    store.client.set_terminated(project.info.run_id)
    monkeypatch.setenv("MLFLOW_RUN_ID", project.info.run_id)
    with pytest.raises(StoreError, match=r"is FINISHED.*unset MLFLOW_RUN_ID"):
        Recorder.start(store, a_study())


# --- outages -----------------------------------------------------------------------------------


def test_repeats_of_an_outage_are_kept_and_sent_with_the_next_one(
    store: Store, tmp_path: Path
) -> None:
    warnings: list[str] = []
    recorder = Recorder.start(store, a_study(), warn=warnings.append)
    with outage():
        recorder.record_repeat(a_repeat(recorder.study_id, "baseline", 0))
        recorder.record_repeat(a_repeat(recorder.study_id, "bf16", 0))
        assert not recorder.complete
        assert recorder.waiting == 2
    assert len(warnings) == 1
    assert "measuring goes on" in warnings[0]
    recorder.record_repeat(a_repeat(recorder.study_id, "baseline", 1))
    assert recorder.complete
    assert recorder.waiting == 0
    assert {"baseline #1", "bf16 #1", "baseline #2"} <= set(statuses(store))
    recorder.kill()


@pytest.mark.parametrize("call", ["create_run", "log_batch", "log_artifacts", "set_terminated"])
@pytest.mark.parametrize("done", [False, True])
def test_a_repeat_cut_short_at_any_call_is_recorded_once(
    store: Store, call: str, done: bool
) -> None:
    recorder = Recorder.start(store, a_study())
    with outage(call, done=done):
        recorder.record_repeat(a_repeat(recorder.study_id))
    assert not recorder.complete
    recorder.finish_variant("baseline")
    assert recorder.complete
    names = [run.info.run_name for run in store.client.search_runs([store.experiment_id])]
    assert names.count("baseline #1") == 1
    run = runs_by_name(store)["baseline #1"]
    assert run.info.status == "FINISHED"
    assert run.data.metrics["step_time_ms"] == 50.0
    history = store.client.get_metric_history(run.info.run_id, "steps/loss")
    assert len(history) == 3
    recorder.kill()


def test_one_record_that_mlflow_refuses_does_not_hold_up_the_others(store: Store) -> None:
    recorder = Recorder.start(store, a_study())
    with outage("log_artifacts", done=False):
        recorder.record_repeat(a_repeat(recorder.study_id, "baseline", 0))
    with outage("log_artifacts", after=1):
        recorder.record_repeat(a_repeat(recorder.study_id, "baseline", 1))
    assert recorder.waiting == 1
    assert recorder.kill()


def test_a_full_disk_does_not_stop_the_recording(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    warnings: list[str] = []
    recorder = Recorder.start(store, a_study(), warn=warnings.append)

    def full(*_: object) -> None:
        raise SpoolError("results cannot be kept on disk: No space left on device")

    monkeypatch.setattr(StudyFolder, "add", full)
    monkeypatch.setattr(StudyFolder, "mark_recorded", full)
    for index in range(2):
        recorder.record_repeat(a_repeat(recorder.study_id, "baseline", index))
    assert recorder.complete
    assert len(warnings) == 1
    assert {"baseline #1", "baseline #2"} <= set(statuses(store))
    recorder.kill()


def test_an_interrupt_in_the_middle_of_a_call_is_not_taken_for_an_outage(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = Recorder.start(store, a_study())

    def interrupted(*_: object, **__: object) -> None:
        try:
            raise Interrupted(2)
        except Interrupted as error:
            raise RuntimeError("API request failed") from error

    with monkeypatch.context() as patch:
        patch.setattr(MlflowClient, "log_batch", interrupted)
        with pytest.raises(Interrupted):
            recorder.record_repeat(a_repeat(recorder.study_id))
    assert recorder.kill()
    names = [run.info.run_name for run in store.client.search_runs([store.experiment_id])]
    assert names.count("baseline #1") == 1
    assert "RUNNING" not in statuses(store).values()


def test_a_prediction_stands_beside_what_was_measured_and_a_reason_where_there_is_none(
    store: Store,
) -> None:
    recorder = Recorder.start(store, a_study())
    baseline, candidate = (variant.name for variant in recorder.study.variants[:2])
    for name in (baseline, candidate):
        recorder.record_repeat(a_repeat(recorder.study_id, name, 0))
    recorder.record_prediction(
        Prediction(variant=baseline, peak_mem_mb=99.0, peak_phase="optimizer", error_pct=-1.0)
    )
    recorder.record_prediction(Prediction(variant=candidate, reason="unsupported: it compiles"))
    comparison = a_comparison(recorder.study, recorder.values())
    assert recorder.finish_study(comparison, "note")
    runs = [store.client.get_run(recorder.variant_runs[name]) for name in (baseline, candidate)]
    predicted = [run.data.metrics.get("predicted_peak_mem_mb") for run in runs]
    assert predicted == [99.0, None]
    assert runs[0].data.metrics["prediction_error_pct"] == -1.0
    told = [run.data.tags["trainperf.prediction"] for run in runs]
    assert told == ["optimizer", "unsupported: it compiles"]
    assert {run.info.status for run in runs} == {"FINISHED"}
