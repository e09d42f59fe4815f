"""Any two runs of an MLflow store: compared where they trained the same, and refused with both
values where they did not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from closing_studies import a_block, closable_study, measured_repeat
from recorded_studies import a_repeat, a_store, a_study, clean_surroundings

from trainperf_mlflow import api
from trainperf_mlflow.cli import cli
from trainperf_mlflow.errors import EvidenceError
from trainperf_mlflow.results.study import Workload
from trainperf_mlflow.tracking.recorder import Recorder
from trainperf_mlflow.tracking.store import Store

PARAMS = {"model_name": "my-net", "batch_size": "8", "seq_len": "512", "optim": "adamw"}
STEPS = {"train/step_ms": (110.0, 100.0, 90.0), "loss": (3.0, 2.0)}


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    clean_surroundings(monkeypatch, tmp_path)
    return a_store(tmp_path)


def a_foreign_run(
    store: Store,
    name: str,
    metrics: dict[str, tuple[float, ...]],
    status: str = "FINISHED",
    **params: str,
) -> str:
    run_id = str(store.client.create_run(store.experiment_id, run_name=name).info.run_id)
    for key, value in params.items():
        store.client.log_param(run_id, key, value)
    for key, values in metrics.items():
        for step, number in enumerate(values):
            store.client.log_metric(run_id, key, number, step=step)
    store.client.set_terminated(run_id, status)
    return run_id


def a_recorded_study(
    store: Store, name: str, *, torch: str = "2.13", step_ms: float = 50.0, **identity: object
) -> Recorder:
    """A study of 20 ms faster bf16, with a workload that says what it is by content."""
    whole = {"task": "causal_lm", "seed": 42, "model": {"layers": 2}, **identity}
    workload = Workload(
        digest="ab" * 32, identity=whole, device="cpu", name="quick", source="stdlib"
    )
    recorder = Recorder.start(store, a_study(name, workload=workload))
    for index in range(3):
        for variant, gain in (("baseline", 0.0), ("bf16", 20.0)):
            repeat = a_repeat(
                recorder.study_id,
                variant,
                index,
                step_ms - gain,
                environment={"packages": {"torch": torch}, "device_name": "a chip"},
            )
            recorder.record_repeat(repeat)
    recorder.kill()
    return recorder


def test_runs_of_other_code_are_compared_by_a_mapping_of_their_metrics(store: Store) -> None:
    slow = a_foreign_run(store, "slow", STEPS, **PARAMS)
    fast = a_foreign_run(store, "fast", {**STEPS, "train/step_ms": (60.0, 80.0)}, **PARAMS)
    made = api.compare_runs(slow, fast[:8], metrics={"step_time_ms": "train/step_ms"})
    candidate = made.candidates[0]
    assert candidate.delta["step_time_ms"] == 30.0
    assert candidate.metrics["loss"] == 2.0
    assert (candidate.pairs, made.decision.confidence) == (0, "unconfirmed")
    warnings = "\n".join(made.warnings)
    assert "step_time_ms is the mean of 3 logged values of 'train/step_ms'" in warnings
    assert "peak memory was not measured" in warnings
    for field in ("data", "dtype", "seed", "device", "peak_mem_source", "environment: torch"):
        assert f"{field} (neither run states it)" in warnings
    assert "batch_size (" not in warnings


def test_a_comparison_of_runs_writes_nothing(store: Store) -> None:
    runs = [a_foreign_run(store, name, STEPS, **PARAMS) for name in ("one", "two")]
    before = [store.client.get_run(run).to_dictionary() for run in runs]
    api.compare_runs(*runs, metrics={"step_time_ms": "train/step_ms"})
    assert [store.client.get_run(run).to_dictionary() for run in runs] == before


def test_every_difference_of_the_workload_is_told_with_both_values(store: Store) -> None:
    one = a_foreign_run(store, "one", STEPS, **PARAMS, seed="1", precision="fp32")
    other = {**PARAMS, "model_name": "big-net", "batch_size": "16", "seed": "2"}
    two = a_foreign_run(store, "two", STEPS, **other, precision="bf16", device="cuda:0")
    with pytest.raises(EvidenceError) as error:
        api.compare_runs(one, two, changed_variable="precision")
    text = str(error.value)
    for told in (
        "model_name is 'my-net' and 'big-net'",
        "batch_size is '8' and '16'",
        "seed is '1' and '2'",
    ):
        assert told in text
    assert "precision" not in text
    with pytest.raises(EvidenceError, match="precision is 'fp32' and 'bf16'"):
        api.compare_runs(one, two)


def test_a_number_that_was_logged_as_text_and_another_name_of_a_field_are_the_same(
    store: Store,
) -> None:
    one = a_foreign_run(store, "one", STEPS, batch_size="8", learning_rate="1e-05", optim="AdamW")
    two = a_foreign_run(
        store,
        "two",
        STEPS,
        per_device_train_batch_size="8.0",
        learning_rate="2e-05",
        optimizer="adamw",
    )
    made = api.compare_runs(one, two, metrics={"step_time_ms": "train/step_ms"})
    assert any("learning_rate is '1e-05' and '2e-05'" in warning for warning in made.warnings)


def test_variants_of_two_studies_are_compared_as_their_studies_declare(store: Store) -> None:
    old, new = a_recorded_study(store, "last week"), a_recorded_study(store, "today", step_ms=40.0)
    made = api.compare_runs("last week", new.variant_runs["bf16"])
    candidate = made.candidates[0]
    assert candidate.changed_variable == "precision"
    assert candidate.delta["step_time_ms"] == pytest.approx(30.0)
    assert made.decision.confidence == "unconfirmed"
    same = api.compare_runs(old.variant_runs["baseline"], new.variant_runs["baseline"])
    assert same.candidates[0].delta["step_time_ms"] == pytest.approx(10.0)
    assert same.candidates[0].changed_variable is None


def test_two_changes_at_once_are_told(store: Store) -> None:
    params = {"precision": "fp32", "fused": "false"}
    one = a_foreign_run(store, "one", STEPS, **params)
    two = a_recorded_study(store, "two").variant_runs["bf16"]
    made = api.compare_runs(one, two, metrics={"step_time_ms": "train/step_ms"})
    assert not any("settings were changed" in warning for warning in made.warnings)
    made = api.compare_runs(one, two, changed_variable="fused")
    assert any("2 settings were changed (fused, precision)" in text for text in made.warnings)


def test_a_single_repeat_can_be_a_side(store: Store) -> None:
    recorder = a_recorded_study(store, "mine")
    repeat = store.client.search_runs(
        [store.experiment_id], "tags.`trainperf.repeat` = '1' and tags.`trainperf.variant` = 'bf16'"
    )[0]
    made = api.compare_runs(recorder.variant_runs["baseline"], repeat.info.run_id)
    assert made.baseline is not None
    assert (len(made.baseline.repeats), made.candidates[0].delta["step_time_ms"]) == (3, 20.0)


@pytest.mark.parametrize("goal", [None, "step_time", "samples_per_s", "peak_mem"])
def test_sides_of_one_study_are_compared_by_their_pairs_whatever_their_means_say(
    store: Store, goal: str | None
) -> None:
    recorder = Recorder.start(store, closable_study("opposite", policy="training"))
    for index in range(3):
        for name, wall_ms, step_ms in (("baseline", 300.0, 45.0), ("checkpoint", 130.0, 60.0)):
            blocks = [a_block(index, block, step_ms + block / 10) for block in range(6)]
            slow = tuple(block.model_copy(update={"wall_ms": wall_ms}) for block in blocks)
            recorder.record_repeat(measured_repeat(recorder.study_id, name, index, blocks=slow))
    recorder.kill()
    sides = recorder.variant_runs["baseline"], recorder.variant_runs["checkpoint"]
    made = api.compare_runs(*sides, goal=goal)
    (candidate,) = made.candidates
    assert candidate.delta["step_time_ms"] > 50
    assert candidate.delta["step_time_pct"] < -20
    assert (candidate.pairs, candidate.time is None) == (3, False)
    assert "saves" not in candidate.note.partition("peak memory")[2]
    assert "the pairs count" in "".join(made.warnings)
    for decision in (candidate.decision, *candidate.other_decisions.values()):
        assert decision.decision != "accept"


def test_models_data_and_settings_of_studies_are_compared_by_content(store: Store) -> None:
    a_recorded_study(store, "one", data={"kind": "file", "sha256": "aa"})
    other = a_recorded_study(store, "two", model={"layers": 3}, data={"sha256": "bb"})
    with pytest.raises(EvidenceError) as error:
        api.compare_runs("one", other.variant_runs["bf16"])
    assert "model.layers is 2 and 3" in str(error.value)
    assert "data.sha256 is 'aa' and 'bb'" in str(error.value)


def test_another_environment_has_to_be_allowed_and_is_shown(store: Store) -> None:
    a_recorded_study(store, "one")
    runs = a_recorded_study(store, "two", torch="2.14").variant_runs
    with pytest.raises(EvidenceError, match=r"torch is '2.13' and '2.14'.*--allow-environment"):
        api.compare_runs("one", runs["bf16"])
    made = api.compare_runs("one", runs["bf16"], allow_environment_difference=True)
    assert any("torch is '2.13' and '2.14'" in warning for warning in made.warnings)


def test_a_comparison_of_runs_that_cannot_be_made_says_why(store: Store) -> None:
    for name in ("one", "two"):
        a_foreign_run(store, name, STEPS, **PARAMS)
    a_foreign_run(store, "bare", {"accuracy": (1.0,)}, **PARAMS)
    of, two = ("--baseline", "one", "--candidate"), ("--baseline", "one", "--candidate", "two")
    for words, told in (
        (of[:2], "give a STUDY, or two runs"),
        (("one", "--goal", "step_time"), "go with two runs"),
        ((*of, "nobody"), "no run 'nobody'"),
        ((*of, "one"), "give two runs"),
        ((*of, "bare"), "none of the metrics"),
        ((*two, "--goal", "speed"), "unknown goal 'speed'"),
        ((*two, "--metric", "step_time=loss"), "did you mean 'step_time_ms'"),
        ((*two, "--metric", "step_time_ms=train/stepms"), "did you mean 'train/step_ms'"),
        ((*two, "--metric", "loss"), "NAME=VALUE"),
    ):
        done = CliRunner().invoke(cli, ["compare", *words, "--tracking-uri", store.tracking_uri])
        assert (done.exit_code, told in done.stderr) == (2, True), done.stderr


def test_the_command_prints_what_it_found_and_exits_with_4_on_another_workload(
    store: Store,
) -> None:
    a_foreign_run(store, "one", STEPS, **PARAMS)
    a_foreign_run(store, "two", {**STEPS, "train/step_ms": (60.0,)}, **PARAMS)
    a_foreign_run(store, "failed", STEPS, "FAILED", **PARAMS)
    a_foreign_run(store, "other", STEPS, **{**PARAMS, "seq_len": "1024"})

    def compared(candidate: str, *words: str) -> tuple[int, str]:
        named = ("--baseline", "one", "--candidate", candidate, "--goal", "step_time")
        mapped = ("--metric", "step_time_ms=train/step_ms", "--tracking-uri", store.tracking_uri)
        done = CliRunner().invoke(cli, ["compare", *named, *mapped, *words])
        return done.exit_code, done.output

    code, text = compared("two", "--format", "json")
    found = json.loads(text)
    assert (code, found["decision"], found["study_id"]) == (0, "accept", "")
    assert found["candidates"][0]["delta"]["step_time_pct"] == 40.0
    code, text = compared("failed", "--format", "json")
    assert (code, json.loads(text)["reason"]) == (0, "candidate_failed")
    code, text = compared("other")
    assert code == 4
    assert "seq_len is '512' and '1024'" in text


def test_a_changed_setting_leaves_the_rest_of_its_field_checked(store: Store) -> None:
    one = a_foreign_run(store, "one", STEPS, precision="fp32", matmul_precision="highest")
    two = a_foreign_run(store, "two", STEPS, precision="bf16", matmul_precision="high")
    with pytest.raises(EvidenceError, match="matmul_precision is 'highest' and 'high'"):
        api.compare_runs(one, two, changed_variable="precision")
