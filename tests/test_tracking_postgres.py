"""The same on a real PostgreSQL, which refuses what sqlite lets pass."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from postgres import PASSWORD, QUOTED_PASSWORD, postgres_uri
from recorded_studies import a_comparison, a_repeat, a_study, clean_surroundings, record

from trainperf_mlflow.errors import StoreError
from trainperf_mlflow.results.record import Status
from trainperf_mlflow.results.repeats import Effect
from trainperf_mlflow.results.study import Variant
from trainperf_mlflow.tracking import queries
from trainperf_mlflow.tracking.health import check_store
from trainperf_mlflow.tracking.links import study_links
from trainperf_mlflow.tracking.recorder import Recorder
from trainperf_mlflow.tracking.recovery import recover
from trainperf_mlflow.tracking.store import open_store

pytestmark = pytest.mark.postgres


@pytest.fixture(scope="module")
def uri() -> Iterator[str]:
    with postgres_uri() as started:
        yield started


@pytest.fixture(autouse=True)
def surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, uri: str) -> None:
    clean_surroundings(monkeypatch, tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)


def test_a_study_is_recorded_and_read_back() -> None:
    store = open_store()
    recorder = record(store, "pg \"study\" of 'mine'")
    assert queries.find_study(store, "pg \"study\" of 'mine'") == recorder.study_id
    assert queries.find_study(store, recorder.study_id[:10]) == recorder.study_id
    assert queries.load_variants(store, recorder.study_id) == recorder.values()
    assert queries.load_comparison(store, recorder.study_id).decision.decision == "accept"
    assert len(queries.decisions(store, decision="accept")) == 1
    assert "$MLFLOW_TRACKING_URI" in study_links(store, recorder.study_id)["command"]


def test_what_only_postgres_refuses_is_recorded_all_the_same() -> None:
    store = open_store()
    name = "训" * 300
    study = a_study(
        name="n\0" * 300,
        variants=(
            Variant(name="baseline", role="baseline", config={"nul": "a\0b"}),
            Variant(name=name, role="candidate", config={}, changed_variable="x"),
        ),
    )
    recorder = Recorder.start(store, study)
    effect = Effect(key="x", wanted=1, verified=True, detail="\0")
    failed = a_repeat(
        recorder.study_id, name, status=Status.FAILED, error="\0" * 9000, effects=(effect,)
    )
    recorder.record_repeat(failed)
    assert recorder.complete
    assert recorder.finish_study(a_comparison(recorder.study, recorder.values()), "\0 note")
    assert queries.load_variants(store, recorder.study_id)[1].status is Status.FAILED


def test_the_password_stays_out_of_files_and_messages_and_recovery_finds_it(
    uri: str, tmp_path: Path
) -> None:
    recorder = Recorder.start(open_store(), a_study("left alone"))
    recorder.folder.add(a_repeat(recorder.study_id))
    recorder.folder.release()
    written = "".join(path.read_text() for path in recorder.folder.path.rglob("*.json"))
    assert PASSWORD not in written
    assert QUOTED_PASSWORD not in written
    assert recover(recorder.study_id).sent == 1
    wrong = uri.replace(QUOTED_PASSWORD, "wrong%40password")
    with pytest.raises(StoreError, match="authentication failed") as caught:
        open_store(wrong)
    assert "wrong" not in str(caught.value)
    assert QUOTED_PASSWORD not in str(check_store())


def test_an_artifact_path_that_postgres_would_cut_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = tmp_path / ("d" * 100) / ("e" * 100)
    deep.mkdir(parents=True)
    monkeypatch.chdir(deep)
    with pytest.raises(StoreError, match="shorter path"):
        open_store(experiment="too deep")
