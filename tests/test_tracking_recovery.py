"""After kill -9 and outages: nothing measured is lost, nothing is recorded twice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from mlflow import MlflowClient
from mlflow_server import TrackingServer
from postgres import free_port
from recorded_studies import (
    a_comparison,
    a_repeat,
    a_store,
    a_study,
    clean_surroundings,
    record,
    statuses,
)

from trainperf_mlflow import api
from trainperf_mlflow.api import recovering
from trainperf_mlflow.errors import PlanError, StoreError
from trainperf_mlflow.tracking import queries
from trainperf_mlflow.tracking.recorder import Recorder
from trainperf_mlflow.tracking.recovery import recover
from trainperf_mlflow.tracking.spool import Spool, SpoolError
from trainperf_mlflow.tracking.store import Store, open_store

KILLED_IN_THE_MIDDLE = """
import os, signal, sys
from pathlib import Path
from mlflow import MlflowClient
from recorded_studies import a_repeat, a_store, a_study
from trainperf_mlflow.tracking.recorder import Recorder

recorder = Recorder.start(a_store(Path.cwd()), a_study())
recorder.record_repeat(a_repeat(recorder.study_id, "baseline", 0))
recorder.finish_variant("baseline")

def die(*args, **kwargs):
    os.kill(os.getpid(), signal.SIGKILL)

MlflowClient.log_artifacts = die  # the run of the next repeat exists, but is half written
recorder.record_repeat(a_repeat(recorder.study_id, "bf16", 0, 40.0))
"""


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    clean_surroundings(monkeypatch, tmp_path)
    return a_store(tmp_path)


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TrackingServer]:
    clean_surroundings(monkeypatch, tmp_path)
    running = TrackingServer(tmp_path, free_port())
    running.start()
    yield running
    running.kill()


def left_by_a_killed_command(store: Store, name: str) -> str:
    recorder = Recorder.start(store, a_study(name))
    recorder.record_repeat(a_repeat(recorder.study_id))
    recorder.folder.release()
    return recorder.study_id


def names_of_runs(store: Store) -> Counter[str]:
    found = store.client.search_runs([store.experiment_id])
    return Counter(run.info.run_name for run in found)


def test_a_command_killed_in_the_middle_of_a_write_is_recovered_whole_and_once(
    store: Store, tmp_path: Path
) -> None:
    here = Path(__file__).parent
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(here), str(here.parent)))}
    ended = subprocess.run(
        [sys.executable, "-c", KILLED_IN_THE_MIDDLE], cwd=tmp_path, env=environment, check=False
    )
    assert ended.returncode == -signal.SIGKILL
    (study_id,) = Spool().studies()
    assert "RUNNING" in statuses(store).values()

    recovered = recover(study_id)
    assert (recovered.sent, recovered.complete, recovered.decision) == (1, True, None)
    assert recovered.ended == 3  # the study, the candidate and its half written repeat
    assert statuses(store) == {
        "does bf16 pay": "KILLED",
        "baseline": "FINISHED",
        "baseline #1": "FINISHED",
        "candidate bf16": "KILLED",
        "bf16 #1": "FINISHED",
    }
    assert set(names_of_runs(store).values()) == {1}
    values = queries.load_variants(store, study_id)
    assert [variant.metrics["step_time_ms"] for variant in values] == [50.0, 40.0]
    assert Spool().studies() == []

    again = recover(study_id)
    assert (again.sent, again.ended, again.complete) == (0, 0, True)


def test_a_study_decided_during_an_outage_ends_with_its_decision(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    warnings: list[str] = []
    recorder = Recorder.start(store, a_study(), warn=warnings.append)

    def away(*_: object, **__: object) -> None:
        raise ConnectionError("away")

    with monkeypatch.context() as patch:
        for name in ("create_run", "log_batch", "log_text", "set_terminated", "get_run"):
            patch.setattr(MlflowClient, name, away)
        recorder.record_repeat(a_repeat(recorder.study_id, "baseline", 0))
        recorder.record_repeat(a_repeat(recorder.study_id, "bf16", 0, 40.0))
        comparison = a_comparison(recorder.study, recorder.values())
        assert not recorder.finish_study(comparison, "# accept")
    assert f"trainperf recover {recorder.study_id}" in warnings[-1]

    recovered = recover(recorder.study_id)
    assert (recovered.sent, recovered.decision, recovered.complete) == (2, "accept", True)
    assert set(statuses(store).values()) == {"FINISHED"}
    # But for the ids of runs, which nobody could know while the store was away.
    read = queries.load_comparison(store, recorder.study_id)
    assert read == comparison
    assert [v.metrics for v in queries.load_variants(store, recorder.study_id)] == [
        v.metrics for v in recorder.values()
    ]


def test_a_study_that_is_being_measured_cannot_be_recovered(store: Store) -> None:
    recorder = Recorder.start(store, a_study())
    with pytest.raises(SpoolError, match="still being measured"):
        recover(recorder.study_id)
    assert recorder.kill()


def test_a_damaged_result_is_told_and_kept_and_the_others_are_sent(store: Store) -> None:
    recorder = Recorder.start(store, a_study())
    for index in range(2):
        recorder.folder.add(a_repeat(recorder.study_id, "baseline", index))
    damaged = min((recorder.folder.path / "repeats").glob("*.json"))
    damaged.write_text('{"schema_version": "train')
    recorder.folder.release()
    warnings: list[str] = []
    recovered = recover(recorder.folder.path, warn=warnings.append)
    assert recovered.sent == 1
    assert "damaged" in warnings[0]
    assert damaged.exists()
    assert "RUNNING" not in statuses(store).values()
    assert recover(recorder.study_id).sent == 0
    assert set(names_of_runs(store).values()) == {1}


def test_runs_without_anything_on_disk_are_only_ended(store: Store) -> None:
    recorder = Recorder.start(store, a_study())
    recorder.folder.remove()
    recovered = recover(recorder.study_id)
    assert (recovered.sent, recovered.ended) == (0, 3)
    assert set(statuses(store).values()) == {"KILLED"}


def test_one_damaged_study_holds_up_no_other(store: Store) -> None:
    broken, whole = (left_by_a_killed_command(store, name) for name in ("broken", "whole"))
    spool = Spool()
    (spool.folder(broken).path / "target.json").write_text("{")
    said: list[str] = []
    (found,) = api.recover(warn=said.append)
    assert found["study_id"] == whole
    assert any("target.json" in line for line in said)
    assert spool.abandoned() == [broken]


def test_recovering_nothing_known_is_refused(store: Store) -> None:
    with pytest.raises(PlanError, match="correct the id"):
        recover("0" * 32)
    for ref in ("no such study", "abc", "0123456"):
        with pytest.raises(PlanError, match=f"no results of a study '{ref}' wait on disk; correct"):
            api.recover(ref)


def test_a_study_that_waits_is_named_as_any_other(store: Store) -> None:
    names = ("one", "alike", "alike")
    one, *alike = (left_by_a_killed_command(store, name) for name in names)
    (row,) = api.recover(one[:8])
    assert (row["study_id"], row["ended"]) == (one, 3)
    with pytest.raises(PlanError, match="2 studies that wait") as refused:
        api.recover("alike")
    assert all(study_id in str(refused.value) for study_id in alike)
    with pytest.raises(PlanError, match=f"but of .*{alike[0]}"):
        api.recover("one")
    assert [row["study_id"] for row in api.recover(alike[0])] == alike[:1]
    assert [row["study_id"] for row in api.recover("alike")] == alike[1:]


def test_what_was_sent_of_a_study_is_told_though_it_cannot_be_decided(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(*_: object) -> None:
        raise StoreError("connection refused")

    left_by_a_killed_command(store, "one")
    monkeypatch.setattr(recovering, "decide_again", gone)
    said: list[str] = []
    (row,) = api.recover(warn=said.append)
    assert (row["ended"], row["complete"], said) == (3, False, ["connection refused"])


def test_a_password_is_not_on_disk_and_asked_for_at_recovery(store: Store) -> None:
    recorder = Recorder.start(store, a_study())
    recorder.folder.release()
    target = recorder.folder.path / "target.json"
    target.write_text(target.read_text().replace(store.tracking_uri, "postgresql://me:***@host/db"))
    with pytest.raises(StoreError, match="set MLFLOW_TRACKING_URI to the whole URI"):
        recover(recorder.study_id)
    assert recover(recorder.study_id, tracking_uri=store.tracking_uri).complete


def test_a_server_killed_during_a_study_loses_nothing(server: TrackingServer) -> None:
    warnings: list[str] = []
    store = open_store(server.uri)
    recorder = Recorder.start(store, a_study(), warn=warnings.append)
    recorder.record_repeat(a_repeat(recorder.study_id, "baseline", 0))
    assert recorder.complete
    server.kill()
    recorder.record_repeat(a_repeat(recorder.study_id, "bf16", 0, 40.0))
    recorder.record_repeat(a_repeat(recorder.study_id, "baseline", 1))
    assert recorder.waiting == 2
    assert len(warnings) == 1
    assert not recorder.finish_study(a_comparison(recorder.study, recorder.values()), "# accept")
    assert f"trainperf recover {recorder.study_id}" in warnings[1]
    with pytest.raises(StoreError, match="does not answer"):
        recover(recorder.study_id)
    server.start()
    recovered = recover(recorder.study_id)
    assert (recovered.sent, recovered.decision, recovered.complete) == (2, "accept", True)
    assert set(statuses(store).values()) == {"FINISHED"}
    assert set(names_of_runs(store).values()) == {1}
    assert [v.metrics for v in queries.load_variants(store, recorder.study_id)] == [
        v.metrics for v in recorder.values()
    ]
    study = store.client.get_run(recorder.study_id)
    assert study.info.artifact_uri.startswith("mlflow-artifacts:")


def test_recovering_a_recorded_study_changes_nothing(store: Store) -> None:
    recorder = record(store)
    recovered = recover(recorder.study_id)
    assert (recovered.sent, recovered.ended, recovered.decision) == (0, 0, "accept")
    assert set(statuses(store).values()) == {"FINISHED"}
