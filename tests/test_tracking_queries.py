"""What MLflow holds answers for a study: found by what people type, read by one query."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from mlflow import MlflowClient
from recorded_studies import (
    a_failed_repeat,
    a_repeat,
    a_store,
    a_study,
    clean_surroundings,
    record,
)

from trainperf_mlflow.errors import PlanError, StoreError
from trainperf_mlflow.results.record import Status
from trainperf_mlflow.results.repeats import Effect
from trainperf_mlflow.tracking import queries
from trainperf_mlflow.tracking.recorder import Recorder
from trainperf_mlflow.tracking.store import Store, read_store

HOSTILE_NAMES = [
    "it's",
    'say "hi"',
    """both ' and " """.strip(),
    "100%",
    "a_b",
    "back\\slash",
    "semi;colon -- comment",
    "<b>bold</b>",
    "训练 é",
    "`tick`",
    "n" * 300,
]


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    clean_surroundings(monkeypatch, tmp_path)
    return a_store(tmp_path)


def started(store: Store, name: str) -> str:
    recorder = Recorder.start(store, a_study(name))
    recorder.kill()
    return recorder.study_id


def test_a_study_is_found_by_id_prefix_name_and_by_any_of_its_runs(store: Store) -> None:
    recorder = record(store, "mine")
    study_id = recorder.study_id
    assert queries.find_study(store, study_id) == study_id
    assert queries.find_study(store, study_id[:8]) == study_id
    assert queries.find_study(store, "mine") == study_id
    assert queries.find_study(store, recorder.variant_runs["bf16"]) == study_id


def test_the_newest_of_a_name_is_meant(store: Store) -> None:
    ids = []
    for created_at in (1000.0, 3000.0, 2000.0):
        recorder = Recorder.start(store, a_study("again", created_at=created_at))
        recorder.kill()
        ids.append(recorder.study_id)
    assert queries.find_study(store, "again") == ids[1]


def test_studies_with_hostile_names_are_told_apart(store: Store) -> None:
    ids = {name: started(store, name) for name in [*HOSTILE_NAMES, "axb"]}
    assert {name: queries.find_study(store, name) for name in ids} == ids
    with pytest.raises(PlanError, match="no study"):
        queries.find_study(store, "a%")


def test_what_is_not_there_or_not_one_study_is_refused_with_what_to_do(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    for ref in ("nothing", "0" * 32, "abcdef", "' OR 1=1", ""):
        with pytest.raises(PlanError, match="trainperf decisions"):
            queries.find_study(store, ref)
    foreign = store.client.create_run(store.experiment_id, run_name="not ours")
    with pytest.raises(PlanError, match="belongs to no study"):
        queries.find_study(store, foreign.info.run_id)
    with pytest.raises(PlanError, match="no study"):
        queries.find_study(store, "not ours")
    study_id = started(store, "deleted")
    store.client.delete_run(study_id)
    with pytest.raises(PlanError, match="mlflow runs restore"):
        queries.find_study(store, study_id)


def test_a_prefix_of_several_studies_asks_for_more(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = [started(store, name) for name in ("one", "two")]
    several = [store.client.get_run(study_id) for study_id in ids]
    monkeypatch.setattr(queries, "_studies", lambda store, condition: several)
    with pytest.raises(PlanError, match="beginning of 2 studies"):
        queries.find_study(store, "abcdef")


def test_another_process_reads_the_values_that_were_recorded(store: Store, tmp_path: Path) -> None:
    recorder = Recorder.start(store, a_study())
    untold = Effect(key="precision", wanted="bf16", verified=None, detail="could not look")
    recorder.record_repeat(a_repeat(recorder.study_id, "bf16", 0, 41.0))
    recorder.record_repeat(a_repeat(recorder.study_id, "bf16", 1, 42.0, effects=(untold,)))
    recorder.record_repeat(a_failed_repeat(recorder.study_id, "bf16", 2))
    recorder.record_repeat(a_repeat(recorder.study_id, "baseline", 0))
    recorder.kill()
    read = queries.load_variants(a_store(tmp_path), recorder.study_id)
    assert read == recorder.values()
    assert [variant.name for variant in read] == ["baseline", "bf16"]
    assert read[1].status is Status.OOM
    assert read[1].effect_verified is None
    assert read[1].metrics["step_time_ms"] == pytest.approx(41.5)
    assert read[1].peak_mem_source == "tensor_tracker"
    assert read[1].config["precision"] == "bf16"


def test_the_values_come_from_the_repeats_and_not_from_a_variants_logged_mean(
    store: Store,
) -> None:
    recorder = record(store)
    store.client.log_metric(recorder.variant_runs["bf16"], "step_time_ms", 1.0)
    values = queries.load_variants(store, recorder.study_id)
    assert values[1].metrics["step_time_ms"] == pytest.approx(40.5)


def test_a_study_is_read_by_one_query_however_many_runs_it_has(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = record(store)
    conditions: list[str] = []
    search = MlflowClient.search_runs

    def spy(client: MlflowClient, experiments: list[str], condition: str, **more: object) -> object:
        conditions.append(condition)
        return search(client, experiments, condition, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(MlflowClient, "search_runs", spy)
    monkeypatch.setattr("trainperf_mlflow.tracking.search.PAGE", 1000)
    queries.load_variants(store, recorder.study_id)
    assert conditions == [f"tags.`trainperf.study_id` = '{recorder.study_id}'"]


def test_a_study_of_many_pages_is_read_whole(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = record(store)
    monkeypatch.setattr("trainperf_mlflow.tracking.search.PAGE", 2)
    assert queries.load_variants(store, recorder.study_id) == recorder.values()


def test_a_repeat_that_was_sent_twice_counts_once(store: Store) -> None:
    recorder = record(store)
    twin = store.client.search_runs([store.experiment_id], "attributes.run_name = 'bf16 #1'")[0]
    doubled = store.client.create_run(store.experiment_id, tags=twin.data.tags)
    store.client.log_metric(doubled.info.run_id, "step_time_ms", 40.0)
    store.client.set_terminated(doubled.info.run_id)
    unfinished = store.client.create_run(store.experiment_id, tags=twin.data.tags)
    assert unfinished.info.status == "RUNNING"
    values = queries.load_variants(store, recorder.study_id)[1]
    assert [repeat.index for repeat in values.repeats] == [0, 1]


def test_a_study_is_read_from_a_store_that_stands_at_another_experiment(
    store: Store, tmp_path: Path
) -> None:
    recorder = record(store)
    elsewhere = a_store(tmp_path, "elsewhere")
    assert queries.find_study(elsewhere, recorder.study_id) == recorder.study_id
    assert queries.load_variants(elsewhere, recorder.study_id) == recorder.values()


def test_study_and_comparison_are_read_back(store: Store) -> None:
    recorder = record(store)
    assert queries.load_study(store, recorder.study_id) == recorder.study
    assert queries.load_comparison(store, recorder.study_id).decision.decision == "accept"
    interrupted = started(store, "interrupted")
    with pytest.raises(StoreError, match=re.escape(f"trainperf recover {interrupted}")):
        queries.load_comparison(store, interrupted)


def test_decisions_are_one_row_a_study_filtered_in_the_store(store: Store, tmp_path: Path) -> None:
    accepted = record(store, "first").study_id
    record(store, "second", decision="reject")
    undecided = started(store, "third")
    frame = queries.decisions(store)
    assert set(frame["study"]) == {"first", "second", "third"}
    assert frame.set_index("study_id").loc[undecided, "status"] == "KILLED"
    only = queries.decisions(store, decision="accept")
    assert list(only["study_id"]) == [accepted]
    row = only.iloc[0]
    assert (row["reason"], row["workload"], row["best_candidate"]) == (
        "gain_large_enough",
        "quick",
        "bf16",
    )
    assert (row["speedup"], row["delta/peak_mem_mb"]) == (1.25, 20.0)


def test_without_an_experiment_all_of_them_are_read(store: Store, tmp_path: Path) -> None:
    first = record(store, "first").study_id
    second = record(a_store(tmp_path, "another"), "second").study_id
    everywhere = read_store(store.tracking_uri)
    assert set(queries.decisions(everywhere)["study_id"]) == {first, second}
    assert queries.find_study(everywhere, "second") == second
    assert len(queries.load_variants(everywhere, second)) == 2
    only = read_store(store.tracking_uri, "another")
    assert list(queries.decisions(only)["study_id"]) == [second]
    with pytest.raises(PlanError, match="experiment 'another'"):
        queries.find_study(only, "first")


def test_an_unknown_decision_is_refused(store: Store) -> None:
    with pytest.raises(PlanError, match="known: accept, tune"):
        queries.decisions(store, "maybe")


def test_runs_are_one_row_a_variant_and_a_repeat(store: Store) -> None:
    recorder = record(store)
    frame = queries.runs(store, recorder.study_id)
    assert list(frame["level"]) == ["variant", "repeat", "repeat"] * 2
    assert list(frame["variant"]) == ["baseline"] * 3 + ["bf16"] * 3
    assert frame["repeat"].tolist()[4:] == [0, 1]
    assert frame.loc[3, "step_time_ms"] == pytest.approx(40.5)
    assert set(frame["precision"]) == {"fp32", "bf16"}
    assert set(frame["status"]) == {"ok"}


def test_a_study_whose_name_would_turn_its_surroundings_is_found_by_it(store: Store) -> None:
    name = "left \u202e to right\n"
    recorder = record(store, name)
    named = store.client.get_run(recorder.study_id)
    assert named.info.run_name == "left \\u202e to right\\n"
    assert queries.find_study(store, name) == recorder.study_id
    assert queries.find_study(store, str(named.info.run_name)) == recorder.study_id
    assert queries.load_study(store, recorder.study_id).name == name
