"""What comes after a close changes nothing of it, and whoever reads the study is told of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from closing_studies import artifact_of, closable_study, measured_repeat, record_closable
from recorded_studies import a_store, clean_surroundings

import trainperf_mlflow as tp
from trainperf_mlflow import api
from trainperf_mlflow.analysis.assessment import assess
from trainperf_mlflow.analysis.explanation import PHASES_FILE
from trainperf_mlflow.api import recovering
from trainperf_mlflow.api.closed import as_closed
from trainperf_mlflow.cli import cli
from trainperf_mlflow.decisions.study import decide_study
from trainperf_mlflow.errors import EvidenceError
from trainperf_mlflow.reporting.report.sentences import in_chinese
from trainperf_mlflow.tracking import names, queries
from trainperf_mlflow.tracking import recorder as recording
from trainperf_mlflow.tracking.explaining import send_assessment
from trainperf_mlflow.tracking.recorder import Recorder
from trainperf_mlflow.tracking.store import Store
from trainperf_mlflow.tracking.waiting import Kept, parcel


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return a_store(tmp_path_factory.mktemp("after"))


@pytest.fixture(autouse=True)
def surroundings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    clean_surroundings(monkeypatch, tmp_path)


@pytest.fixture(scope="module")
def closed(store: Store) -> Recorder:
    """A study that nobody looked into before it was closed."""
    recorder = record_closable(store, "final", explained=False)
    comparison = queries.load_comparison(store, recorder.study_id)
    assessment = assess(comparison, recorder.values())
    send_assessment(store, comparison.model_copy(update={"assessment": assessment}), "note")
    tp.close(recorder.study_id, "final-v1", tracking_uri=store.tracking_uri)
    return recorder


def state_of(store: Store, study_id: str) -> list[Any]:
    """All that the runs of a study hold."""
    found = store.client.search_runs([store.experiment_id], max_results=1000)
    return sorted(
        (run.info.run_id, run.info.status, run.data.to_dictionary()["tags"], run.data.metrics)
        for run in found
        if run.data.tags.get(names.STUDY_ID) == study_id
    )


def printed(store: Store, *words: str) -> str:
    done = CliRunner().invoke(cli, [*words, "--tracking-uri", store.tracking_uri])
    assert done.exit_code == 0, done.output
    return done.stdout


def assert_whole(store: Store, study_id: str) -> None:
    checked = tp.close(study_id, check=True, tracking_uri=store.tracking_uri)
    assert checked.status == "already_complete"


def test_what_phase_and_profile_measured_while_the_study_was_closed_waits_on_disk(
    store: Store, closed: Recorder
) -> None:
    before = state_of(store, closed.study_id)
    kept = Kept(closed.study_id, "phase")
    run_id = closed.variant_runs["checkpoint"]
    kept.put(store, [parcel(run_id, {PHASES_FILE: {"status": "ok"}}, {"phase/forward_ms": 1.0})])
    with pytest.raises(EvidenceError, match=r"closed meanwhile, as 'final-v1'.*kept in '.*phase-"):
        kept.send(store, {"plots/phases.png": b"png"})
    kept.leave()
    assert (kept.path / "waiting.json").exists()
    with pytest.raises(EvidenceError, match="its assessment stays"):
        send_assessment(store, queries.load_comparison(store, closed.study_id), "note")
    assert state_of(store, closed.study_id) == before
    assert_whole(store, closed.study_id)


def test_what_waited_of_a_measured_study_is_not_sent_over_its_close(
    monkeypatch: pytest.MonkeyPatch, store: Store
) -> None:
    recorder = Recorder.start(store, closable_study("without pictures"))
    for variant in recorder.variant_runs:
        recorder.record_repeat(measured_repeat(recorder.study_id, variant, 0))

    def full(*arguments: Any) -> None:
        raise OSError("the disk of the server is full")

    with monkeypatch.context() as patched:
        patched.setattr(recording, "send_pictures", full)
        comparison = decide_study(recorder.study, recorder.values())
        assert not recorder.finish_study(comparison, "note", {"plots/steps.png": b"png"})
    study_id = recorder.study_id
    tp.close(study_id, "without-v1", tracking_uri=store.tracking_uri)
    before = state_of(store, study_id)
    with pytest.raises(EvidenceError, match=r"closed meanwhile, as 'without-v1'.*waits is kept in"):
        api.recover()
    assert recorder.folder.path.exists()
    assert state_of(store, study_id) == before
    assert_whole(store, study_id)


def test_runs_of_a_closed_study_that_still_run_are_left_alone(
    store: Store, closed: Recorder
) -> None:
    run_id = closed.variant_runs["baseline"]
    store.client.update_run(run_id, "RUNNING")
    before = state_of(store, closed.study_id)
    (row,) = api.recover(closed.study_id, tracking_uri=store.tracking_uri)
    assert (row["ended"], row["decision"]) == (0, "tune")
    assert state_of(store, closed.study_id) == before
    store.client.update_run(run_id, "FINISHED")
    assert_whole(store, closed.study_id)


def test_a_page_that_recover_draws_tells_of_the_close(store: Store, closed: Recorder) -> None:
    recovering._report(store, closed.study_id, pytest.fail)
    page = artifact_of(store, closed.study_id, names.REPORT_FILE).read_text("utf-8")
    assert "Closed as “final-v1”" in page


def test_programs_are_told_the_decision_that_stands_with_the_measured_one_beside_it(
    store: Store, closed: Recorder
) -> None:
    made = tp.compare(closed.study_id, tracking_uri=store.tracking_uri)
    assert made.closed is not None
    assert made.closed.reason != made.decision.reason
    (candidate,) = made.candidates
    own = made.closed.candidates[candidate.variant]
    compared = json.loads(printed(store, "compare", closed.study_id, "--format", "json"))
    assert compared.items() >= made.closed.headline().items()
    assert compared["candidates"][0].items() >= own.headline().items()
    shown = json.loads(printed(store, "show", closed.study_id, "--format", "json"))["comparison"]
    assert shown["decision"].items() >= made.closed.headline().items()
    assert shown["candidates"][0]["decision"].items() >= own.headline().items()
    for found in (compared, shown):
        assert (found["closed"], found["best_candidate"]) == ("final-v1", made.standing_best)
        measured = found["measured"]
        assert measured.items() >= made.decision.headline().items()
        assert measured["best_candidate"] == made.best_candidate
        on_candidate = measured["candidates"][candidate.variant]
        assert on_candidate == candidate.decision.model_dump(mode="json")


def test_a_closed_study_is_told_without_commands_that_refuse_it(
    store: Store, closed: Recorder
) -> None:
    study_id = closed.study_id
    compared = printed(store, "compare", study_id)
    assert "not looked at: phases; traces" in compared
    pages = [
        printed(store, "report", study_id, *format, "--lang", lang)
        for format in (("--format", "markdown"), ("--output", "-"))
        for lang in ("en", "zh")
    ]
    note = store.client.get_run(study_id).data.tags[names.NOTE]
    assert "Not looked at: phases; traces" in note
    for text in (compared, printed(store, "show", study_id), note, *pages):
        assert "trainperf phase" not in text
        assert "trainperf profile" not in text


def test_of_what_is_missing_only_the_command_is_left_out(store: Store, closed: Recorder) -> None:
    made = tp.compare(closed.study_id, tracking_uri=store.tracking_uri)
    assert made.assessment is not None
    few = "fewer than 3 repeats of the phases of baseline, so their times show no trend"
    kept = "no trace of checkpoint: failed, give trainperf profile more memory"
    missing = (f"{few}: trainperf phase 01234567", "no traces yet: trainperf profile 0123", kept)
    assessment = made.assessment.model_copy(update={"missing": missing})
    told = as_closed(made.model_copy(update={"assessment": assessment}), made.closed).assessment
    assert told is not None
    assert told.missing == (few, "no traces yet", kept)
    assert "baseline" in (in_chinese(few) or "")
    assert in_chinese(few) != few
