"""One study whole on the terminal, and its rows: what was recorded, whoever named it."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from click.testing import CliRunner
from recorded_studies import a_comparison, a_repeat, a_store, a_study, clean_surroundings, record

from trainperf_mlflow.api.annotating import annotate
from trainperf_mlflow.cli import cli
from trainperf_mlflow.results.study import Variant
from trainperf_mlflow.tracking import queries
from trainperf_mlflow.tracking.recorder import Recorder
from trainperf_mlflow.tracking.store import Store

HOSTILE = "=1+1 <img src=x onerror=alert(1)> \"'`|\x1b[31m\u202e אב 🚀\n" + "x" * 250


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    clean_surroundings(monkeypatch, tmp_path)
    return a_store(tmp_path)


def run(*words: str, code: int = 0) -> str:
    done = CliRunner().invoke(cli, words)
    assert done.exit_code == code, done.output
    return done.output if code else done.stdout


def record_hostile(store: Store) -> Recorder:
    baseline = Variant(name="baseline", role="baseline", config={"note": HOSTILE})
    candidate = Variant(
        name=HOSTILE, role="candidate", config={"note": HOSTILE}, changed_variable=HOSTILE
    )
    recorder = Recorder.start(
        store, a_study(HOSTILE, variants=(baseline, candidate), command=HOSTILE, label=HOSTILE)
    )
    for variant in (baseline, candidate):
        recorder.record_repeat(a_repeat(recorder.study_id, variant.name))
    assert recorder.finish_study(a_comparison(recorder.study, recorder.values()), "note")
    return recorder


def test_a_study_is_shown_whole_with_what_can_be_copied_in_one_line(store: Store) -> None:
    recorder = record(store)
    store.client.log_text(recorder.study_id, "x", "plots/steps.png")
    text = run("show", "does bf16 pay")
    assert text.startswith("does bf16 pay")
    assert "accept bf16" in text
    assert text.index("accept bf16") < text.index("repeats")
    assert text.count("#1") == text.count("#2") == 2
    assert "plots/steps.png" in text
    lines = text.splitlines()
    assert "again: trainperf measure" in lines
    links = dict(line.split(": ", 1) for line in lines if ": http" in line)
    assert list(links) == ["study", "compare", "charts", "curves", "pictures", "experiment"]
    assert all(urlsplit(link).fragment for link in links.values())
    assert "\x1b" not in text


def test_a_study_is_shown_to_programs_with_all_of_its_records(store: Store) -> None:
    recorder = record(store)
    shown = json.loads(run("show", recorder.study_id[:8], "--format", "json"))
    assert shown["schema_version"] == "trainperf-show/v1"
    assert shown["study"]["study_id"] == recorder.study_id
    assert shown["comparison"]["decision"]["decision"] == "accept"
    assert shown["comparison"]["measured"] is shown["comparison"]["closed"] is None
    assert [row["repeat"] for row in shown["runs"] if row["level"] == "repeat"] == [0, 1, 0, 1]
    assert {"study.json", "comparison.json"} <= set(shown["artifacts"])


def test_an_undecided_study_is_shown_and_says_how_to_decide(store: Store) -> None:
    recorder = Recorder.start(store, a_study())
    recorder.record_repeat(a_repeat(recorder.study_id))
    recorder.kill()
    text = run("show", recorder.study_id)
    assert f"trainperf compare {recorder.study_id}" in text
    assert "50.00" in text


def test_runs_are_a_table_for_people_and_rows_for_programs(store: Store) -> None:
    record(store)
    table = run("runs", "does bf16 pay")
    assert table.splitlines()[0].split()[:3] == ["variant", "repeat", "status"]
    rows = json.loads(run("runs", "does bf16 pay", "--format", "json"))
    assert [row["level"] for row in rows].count("repeat") == 4
    assert rows[0]["precision"] == "fp32"
    assert rows[0]["step_time_ms"] == 50.5
    listed = list(csv.DictReader(io.StringIO(run("runs", "does bf16 pay", "--format", "csv"))))
    assert [float(row["step_time_ms"]) for row in listed] == [row["step_time_ms"] for row in rows]


def test_hostile_names_are_text_in_every_output(store: Store) -> None:
    recorder = record_hostile(store)
    for words in (("show", recorder.study_id), ("runs", recorder.study_id), ("decisions",)):
        text = run(*words)
        assert not {"\x1b", "\u202e"} & set(text), words
        assert "\\x1b[31m" in text.replace("\n", "").replace(" ", ""), words
    rows = list(csv.reader(io.StringIO(run("runs", recorder.study_id, "--format", "csv"))))
    cells = [cell for row in rows for cell in row]
    assert not [cell for cell in cells if cell[:1] in set("=+@\t\r")]
    assert [cell for cell in cells if cell.startswith("'=1+1")]
    # Programs get the names as they are.
    named = json.loads(run("runs", recorder.study_id, "--format", "json"))
    assert HOSTILE in {row["variant"] for row in named}


def test_notes_of_hostile_names_hold_no_markup_and_stand_on_study_and_variants(
    store: Store,
) -> None:
    recorder = record_hostile(store)
    annotate(store, queries.load_comparison(store, recorder.study_id))
    for run_id in (recorder.study_id, *recorder.variant_runs.values()):
        note = store.client.get_run(run_id).data.tags["mlflow.note.content"]
        assert note.startswith("**")
        assert "<img" not in note
        assert not {"\x1b", "\u202e"} & set(note)


def test_notes_link_to_pages_of_whichever_mlflow_shows_them(store: Store) -> None:
    recorder = record(store)
    annotate(store, queries.load_comparison(store, recorder.study_id))
    note = store.client.get_run(recorder.study_id).data.tags["mlflow.note.content"]
    assert "[step times of all repeats](<#/metric?" in note
    assert "localhost" not in note
    candidate = store.client.get_run(recorder.variant_runs["bf16"])
    assert (
        f"(<#/experiments/{store.experiment_id}/runs/{recorder.study_id}?"
        in (candidate.data.tags["mlflow.note.content"])
    )


def test_a_store_that_takes_no_note_keeps_the_decision(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = record(store)
    comparison = queries.load_comparison(store, recorder.study_id)

    def refused(*_: object) -> None:
        raise PermissionError("read-only")

    monkeypatch.setattr(type(store.client), "set_tag", refused)
    annotate(store, comparison)


# --- trainperf ui; what it shows is in test_browser ----------------------------------------------


def test_a_missing_store_is_told_before_anything_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clean_surroundings(monkeypatch, tmp_path)
    assert "there is no store" in run("ui", code=3)
    assert list(tmp_path.iterdir()) == []


def test_a_port_that_is_taken_is_told_and_by_default_the_next_is_used(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    import socket

    from trainperf_mlflow.tracking import serving

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert f"port {port} is taken" in run("ui", "--port", str(port), code=2)
        monkeypatch.setattr(serving, "UI_PORT", port)
        assert serving._free_port() > port


def test_an_mlflow_that_does_not_start_says_why(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    from trainperf_mlflow.tracking import serving

    def broken(*_: object) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-c", "print('no such wheel'); raise SystemExit(3)"],
            stdout=_[2],  # type: ignore[call-overload]
            start_new_session=True,
        )

    monkeypatch.setattr(serving, "_start", broken)
    assert "no such wheel" in run("ui", code=3)
