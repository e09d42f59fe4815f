"""Results on disk: whole or not there, wherever a name points, whatever breaks."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from recorded_studies import a_comparison, a_repeat, a_study, clean_surroundings

from trainperf_mlflow.analysis.metrics import variant_values
from trainperf_mlflow.errors import TrainperfError
from trainperf_mlflow.tracking.spool import Spool, SpoolError, StudyFolder, Target, write_whole


@pytest.fixture(autouse=True)
def surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clean_surroundings(monkeypatch, tmp_path)


@pytest.fixture
def folder(tmp_path: Path) -> StudyFolder:
    made = Spool(tmp_path).folder("abc123")
    made.acquire()
    return made


def test_results_wait_in_the_current_folder_or_where_the_user_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert Spool().root == tmp_path / ".trainperf"
    monkeypatch.setenv("TRAINPERF_HOME", str(tmp_path / "home"))
    assert Spool().root == tmp_path / "home"


def test_everything_is_read_back_as_it_was_written(folder: StudyFolder) -> None:
    study = a_study(study_id="abc123")
    repeats = [a_repeat("abc123", "bf16", 0), a_repeat("abc123", "baseline", 0, loss=float("nan"))]
    target = Target(tracking_uri="sqlite:////x.db", experiment_id="1", variant_runs={"bf16": "r"})
    folder.write_study(study)
    folder.write_target(target)
    for repeat in repeats:
        folder.add(repeat)
    found, problems = folder.repeats()
    assert folder.study() == study
    assert folder.target() == target
    assert problems == []
    assert [repeat.variant for repeat in found] == ["baseline", "bf16"]
    assert found[1] == repeats[0]
    assert str(found[0].loss) == "nan"


def test_a_comparison_is_there_once_the_study_got_that_far(folder: StudyFolder) -> None:
    assert folder.comparison() is None
    study = a_study(study_id="abc123")
    values = tuple(variant_values(variant, []) for variant in study.variants)
    comparison = a_comparison(study, values)
    folder.write_comparison(comparison, "# reject")
    assert folder.comparison() == (comparison, "# reject")


def test_a_repeat_is_marked_once_mlflow_has_it(folder: StudyFolder) -> None:
    repeat = a_repeat("abc123")
    folder.add(repeat)
    assert folder.recorded_as(repeat) is None
    folder.mark_recorded(repeat, "the-run")
    assert folder.recorded_as(repeat) == "the-run"
    assert len(folder.repeats()[0]) == 1


@pytest.mark.parametrize("damage", [b"", b'{"schema_ver', b"\xff\xfe", b"{}"])
def test_a_damaged_file_is_reported_and_the_others_are_read(
    folder: StudyFolder, damage: bytes
) -> None:
    folder.add(a_repeat("abc123", index=0))
    folder.add(a_repeat("abc123", index=1))
    next(iter(sorted((folder.path / "repeats").glob("*.json")))).write_bytes(damage)
    found, problems = folder.repeats()
    assert [repeat.index for repeat in found] == [1]
    assert len(problems) == 1
    assert "damaged or truncated" in problems[0]


@settings(max_examples=40, deadline=None)
@given(variant=st.text(min_size=1, max_size=60))
def test_no_variant_name_leads_out_of_the_folder_or_into_anothers_file(
    tmp_path_factory: pytest.TempPathFactory, variant: str
) -> None:
    root = tmp_path_factory.mktemp("spool")
    folder = Spool(root).folder("abc123")
    folder.acquire()
    folder.add(a_repeat("abc123", variant, loss=1.0))
    folder.add(a_repeat("abc123", variant + "/", loss=2.0))
    assert [path.name for path in root.iterdir()] == ["abc123"]
    assert {path.name for path in folder.path.iterdir()} <= {"lock", "repeats"}
    found, problems = folder.repeats()
    assert problems == []
    assert {(repeat.variant, repeat.loss) for repeat in found} == {
        (variant, 1.0),
        (variant + "/", 2.0),
    }


@pytest.mark.parametrize("study_id", ["", "..", "a/b", "/etc", "a" * 200, "a\0b", ".hidden"])
def test_no_study_id_leads_out_of_the_spool(tmp_path: Path, study_id: str) -> None:
    with pytest.raises(SpoolError, match="no study id"):
        Spool(tmp_path).folder(study_id)


def test_a_full_disk_is_an_error_with_a_remedy_and_leaves_no_half_file(
    folder: StudyFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(SpoolError, match=r"No space left.*TRAINPERF_HOME") as caught:
        folder.add(a_repeat("abc123"))
    assert isinstance(caught.value, TrainperfError)
    assert list((folder.path / "repeats").iterdir()) == []


def test_an_interrupted_rewrite_keeps_the_old_file_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file.json"
    write_whole(path, "old")

    def interrupted(handle: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_whole(path, "new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_two_commands_cannot_have_the_same_study(tmp_path: Path, folder: StudyFolder) -> None:
    with pytest.raises(SpoolError, match="another command"):
        Spool(tmp_path).folder("abc123").acquire()
    folder.release()
    Spool(tmp_path).folder("abc123").acquire()


def test_a_study_that_is_all_in_mlflow_leaves_nothing_behind(tmp_path: Path) -> None:
    spool = Spool()
    spool.prepare()
    folder = spool.folder("abc123")
    folder.acquire()
    folder.write_study(a_study(study_id="abc123"))
    assert spool.studies() == ["abc123"]
    folder.remove()
    assert list(tmp_path.iterdir()) == []


def test_a_spool_that_cannot_be_written_is_told_before_anything_is_measured(
    tmp_path: Path,
) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(SpoolError, match="TRAINPERF_HOME"):
        Spool(tmp_path / "file").prepare()
