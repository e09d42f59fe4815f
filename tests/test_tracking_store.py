"""The store: found, absolute, reachable and writable, or refused with what to do."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from postgres import free_port
from recorded_studies import a_store, clean_surroundings, record

import trainperf_mlflow as tp
from trainperf_mlflow.errors import StoreError
from trainperf_mlflow.tracking.health import check_store
from trainperf_mlflow.tracking.store import (
    connect,
    impatient,
    open_store,
    raise_interruption,
    read_store,
    refuse_read_only,
)
from trainperf_mlflow.tracking.uris import (
    masked,
    resolve_uri,
    sqlite_path,
    sqlite_uri,
    without_passwords,
)


@pytest.fixture(autouse=True)
def surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clean_surroundings(monkeypatch, tmp_path)


@contextmanager
def unprivileged() -> Iterator[None]:
    """Root may write everything: be somebody else for a moment."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def shared_folder() -> Iterator[Path]:
    """A folder that others may enter, unlike pytest's own."""
    folder = Path(tempfile.mkdtemp(prefix="trainperf-test-"))
    folder.chmod(0o755)
    yield folder
    folder.chmod(0o755)
    shutil.rmtree(folder)


# --- which store -------------------------------------------------------------------------------


def test_without_a_setting_the_store_is_mlflows_own_default_made_absolute(tmp_path: Path) -> None:
    store = a_store(tmp_path)
    assert resolve_uri(None) == store.tracking_uri == f"sqlite:///{tmp_path}/mlflow.db"
    location = store.client.get_experiment(store.experiment_id).artifact_location
    assert location == f"file://{tmp_path}/mlruns/trainperf"


def test_our_own_artifact_folder_does_not_look_like_an_old_store(tmp_path: Path) -> None:
    store = a_store(tmp_path)
    run = store.client.create_run(store.experiment_id)
    store.client.log_text(run.info.run_id, "x", "x.txt")
    (tmp_path / "mlruns" / "7").mkdir()
    assert open_store().experiment_id == store.experiment_id


def test_an_old_file_store_is_refused_with_ways_out(tmp_path: Path) -> None:
    (tmp_path / "mlruns" / "0").mkdir(parents=True)
    (tmp_path / "mlruns" / "0" / "meta.yaml").write_text("name: Default")
    with pytest.raises(StoreError, match=r"old MLflow file store.*migrate-filestore"):
        open_store()
    assert not (tmp_path / "mlflow.db").exists()
    assert a_store(tmp_path)  # a store that is named is not affected


def test_a_relative_sqlite_uri_becomes_absolute_and_keeps_its_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "sqlite:///sub/my.db?timeout=5")
    assert resolve_uri(None) == f"sqlite:///{tmp_path}/sub/my.db?timeout=5"


@pytest.mark.parametrize("name", ["plain", "with space", "100%25 # ?", "é训练"])
def test_folders_with_odd_names_hold_a_store_and_its_artifacts(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    folder.mkdir()
    assert sqlite_path(sqlite_uri(folder / "mlflow.db")) == folder / "mlflow.db"
    store = a_store(folder)
    run = store.client.create_run(store.experiment_id)
    store.client.log_text(run.info.run_id, "inside", "x.txt")
    written = folder / "mlruns" / "trainperf" / run.info.run_id / "artifacts" / "x.txt"
    assert written.read_text() == "inside"


@pytest.mark.parametrize(
    ("uri", "problem"),
    [
        ("ftp://host/x", "unknown scheme 'ftp'"),
        ("mlruns", "no longer opens file stores"),
        ("file:///tmp/mlruns", "no longer opens file stores"),
        ("sqlite://", "no file that outlives"),
        ("sqlite:///:memory:", "no file that outlives"),
        ("http://", "names no host"),
        ("http://host:notaport", "no usable port"),
        ("sqlite:////nonexistent/folder/x.db", "does not exist; create it"),
    ],
)
def test_a_uri_that_cannot_work_is_refused_before_mlflow_sees_it(uri: str, problem: str) -> None:
    with pytest.raises(StoreError, match=problem):
        open_store(uri)


def test_a_database_without_a_driver_names_what_to_install() -> None:
    with pytest.raises(StoreError, match=r"no driver for 'mysql://u:\*\*\*@h/db'.*driver"):
        resolve_uri("mysql://u:hidden@h/db")


def test_a_postgres_uri_gets_a_driver_that_is_installed() -> None:
    uri = resolve_uri("postgres://me@127.0.0.1/db")
    assert uri.startswith("postgresql")
    assert uri.endswith("://me@127.0.0.1/db")


def test_passwords_are_never_shown() -> None:
    uri = "postgresql://me:s3cr%40t@host/db"
    for text in (masked(uri), without_passwords(f"failed for {uri} with s3cr@t", uri)):
        assert "s3cr" not in text
        assert "me" in text or "failed" in text
    with pytest.raises(StoreError) as caught:
        open_store(f"http://me:hidden@127.0.0.1:{free_port()}")
    assert "hidden" not in str(caught.value)


# --- the experiment ----------------------------------------------------------------------------


def test_the_experiment_is_the_one_asked_for_then_the_environments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert a_store(tmp_path).experiment_name == "trainperf"
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "named")
    assert a_store(tmp_path).experiment_name == "named"
    assert a_store(tmp_path, 'it\'s "quoted"').experiment_name == 'it\'s "quoted"'
    monkeypatch.setenv("MLFLOW_EXPERIMENT_ID", "0")
    assert a_store(tmp_path).experiment_name == "Default"


def test_under_mlflow_run_the_experiment_is_that_of_the_projects_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = a_store(tmp_path, "elsewhere")
    run = elsewhere.client.create_run(elsewhere.experiment_id)
    monkeypatch.setenv("MLFLOW_RUN_ID", run.info.run_id)
    assert a_store(tmp_path).experiment_name == "elsewhere"
    with pytest.raises(StoreError, match="--experiment-name 'other'"):
        a_store(tmp_path, "other")
    monkeypatch.setenv("MLFLOW_RUN_ID", "0" * 32)
    with pytest.raises(StoreError, match=r"no such run.*unset MLFLOW_RUN_ID"):
        a_store(tmp_path)


def test_a_deleted_experiment_is_refused_with_how_to_restore_it(tmp_path: Path) -> None:
    store = a_store(tmp_path)
    store.client.delete_experiment(store.experiment_id)
    with pytest.raises(StoreError, match=r"is deleted.*mlflow experiments restore"):
        open_store()


def test_reading_never_creates_a_store_or_an_experiment(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"no store .*mlflow\.db.* yet; measure"):
        read_store()
    assert list(tmp_path.iterdir()) == []
    store = a_store(tmp_path)
    with pytest.raises(StoreError, match=r"no experiment 'typo'.*'trainperf'"):
        read_store(experiment="typo")
    assert store.client.get_experiment_by_name("typo") is None


# --- reachable and writable --------------------------------------------------------------------


def test_a_server_that_is_not_there_is_told_at_once() -> None:
    with pytest.raises(StoreError, match="does not answer"):
        open_store(f"http://127.0.0.1:{free_port()}")


def test_a_server_that_never_answers_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainperf_mlflow.tracking.store.ANSWER_S", 1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        with pytest.raises(StoreError, match="refuses"):
            open_store(f"http://127.0.0.1:{port}")


def test_probing_leaves_the_users_settings_as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "77")
    with impatient():
        assert os.environ["MLFLOW_HTTP_REQUEST_MAX_RETRIES"] == "0"
    assert os.environ["MLFLOW_HTTP_REQUEST_TIMEOUT"] == "77"


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mlflow.db").write_text("hello, I am a text file, and long enough to look at")
    with pytest.raises(StoreError, match="not a database"):
        open_store()


def test_a_read_only_database_is_refused(shared_folder: Path) -> None:
    store = a_store(shared_folder)
    (shared_folder / "mlflow.db").chmod(0o444)
    with unprivileged(), pytest.raises(StoreError, match=r"readonly.*writable"):
        connect(store.tracking_uri)


@pytest.mark.parametrize("unwritable", ["file", "folder"])
def test_a_store_that_can_only_be_read_is_read(shared_folder: Path, unwritable: str) -> None:
    uri = a_store(shared_folder).tracking_uri
    if unwritable == "file":
        (shared_folder / "mlflow.db").chmod(0o444)
        shared_folder.chmod(0o777)
    else:
        (shared_folder / "mlflow.db").chmod(0o666)
        shared_folder.chmod(0o555)
    before = sorted(shared_folder.iterdir())
    with unprivileged():
        store = read_store(uri, "trainperf")
        assert store.client.get_experiment(store.experiment_id).name == "trainperf"
        with pytest.raises(StoreError, match=r"can only be read.*make the file and its folder"):
            refuse_read_only(store)
        with pytest.raises(StoreError, match="make the file and its folder writable"):
            open_store(uri)
    assert sorted(shared_folder.iterdir()) == before
    assert read_store(uri).writable


def test_a_decision_that_cannot_be_written_is_told_and_nothing_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = a_store(tmp_path)
    study_id = record(store).study_id
    monkeypatch.setattr("trainperf_mlflow.tracking.store._only_readable", lambda path: True)
    before = (tmp_path / "mlflow.db").read_bytes()
    compared = tp.compare(study_id, tracking_uri=store.tracking_uri)
    assert "not written into it" in compared.warnings[-1]
    with pytest.raises(StoreError, match="can only be read"):
        tp.close(study_id, label="v1", tracking_uri=store.tracking_uri)
    assert (tmp_path / "mlflow.db").read_bytes() == before


def test_an_artifact_folder_that_cannot_be_written_is_refused(shared_folder: Path) -> None:
    store = a_store(shared_folder)
    (shared_folder / "mlflow.db").chmod(0o666)
    (shared_folder / "mlruns" / "trainperf").chmod(0o555)
    shared_folder.chmod(0o777)
    with unprivileged(), pytest.raises(StoreError, match=r"artifacts go to .* cannot be written"):
        open_store(store.tracking_uri)


def test_processes_that_start_together_make_one_schema_and_no_noise(tmp_path: Path) -> None:
    code = (
        "from trainperf_mlflow.tracking.store import open_store\nprint(open_store().experiment_id)"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    started = [
        subprocess.Popen(
            [sys.executable, "-c", code],
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(3)
    ]
    ended = [process.communicate() for process in started]
    assert ended == [("1\n", "")] * 3


def test_an_interrupt_that_mlflow_wrapped_is_raised_again() -> None:
    from trainperf_mlflow.errors import Interrupted

    try:
        try:
            raise Interrupted(15)
        except Interrupted as error:
            raise RuntimeError("API request failed") from error
    except RuntimeError as wrapped:
        with pytest.raises(Interrupted):
            raise_interruption(wrapped)


# --- doctor ------------------------------------------------------------------------------------


def test_the_check_of_a_store_that_does_not_exist_yet_makes_nothing(tmp_path: Path) -> None:
    checks = check_store()
    assert {check.check: check.status for check in checks} == {
        "store": "ok",
        "artifacts": "ok",
        "results on disk": "ok",
    }
    assert list(tmp_path.iterdir()) == []


def test_the_check_tells_what_fails_and_what_to_do(tmp_path: Path) -> None:
    store = a_store(tmp_path)
    assert [check.status for check in check_store()] == ["ok"] * 4
    store.client.delete_experiment(store.experiment_id)
    failed = [check for check in check_store() if check.status == "fail"]
    assert [check.check for check in failed] == ["experiment"]
    assert "restore" in failed[0].remedy
    gone = check_store(f"http://127.0.0.1:{free_port()}")[0]
    assert (gone.check, gone.status) == ("store", "fail")
    assert gone.remedy


def test_a_full_disk_fails_the_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(tmp_path)._replace(free=10 * 1024**2)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    assert [check.status for check in check_store()] == ["ok", "fail", "fail"]
