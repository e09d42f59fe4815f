"""Reports become studies in MLflow and reports again: the commands, on a real store."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from made_reports import PUBLISHED, closing_report, memory_report, training_report
from recorded_studies import a_store, clean_surroundings, record

import trainperf_mlflow as tp
from trainperf_mlflow.cli import cli
from trainperf_mlflow.tracking import names, queries
from trainperf_mlflow.tracking.importing import source_path
from trainperf_mlflow.tracking.store import Store, local_folder

MADE = {
    "training.json": training_report(),
    "strategy 1é.json": memory_report(),
    "closing.json": closing_report(),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Made and published reports, all imported once into one store."""
    folder = tmp_path_factory.mktemp("import")
    for name, report in MADE.items():
        (folder / name).write_text(json.dumps(report, ensure_ascii=False), "utf-8")
    for path in PUBLISHED:
        (folder / path.name).write_bytes(path.read_bytes())
    return folder


@pytest.fixture(scope="module")
def store(folder: Path) -> Store:
    return a_store(folder)


@pytest.fixture(scope="module")
def imported(folder: Path, store: Store) -> dict[str, Any]:
    files = sorted(str(path) for path in folder.glob("*.json"))
    done = trainperf(store, "import", *files, "--format", "json")
    assert done.exit_code == 0, done.output
    return {Path(item["file"]).name: item for item in json.loads(done.stdout)["studies"]}


@pytest.fixture(autouse=True)
def surroundings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    clean_surroundings(monkeypatch, tmp_path)


def trainperf(store: Store, *words: str) -> Result:
    return CliRunner().invoke(cli, [*words, "--tracking-uri", store.tracking_uri])


def count_of_runs(store: Store) -> int:
    return len(store.client.search_runs([store.experiment_id]))


def test_each_report_is_a_study_with_both_decisions(imported: dict[str, Any]) -> None:
    for item in imported.values():
        assert {"file", "study_id", "published_decision", "decision", "agrees"} <= item.keys()
    assert imported["training.json"]["agrees"] is True
    assert imported["closing.json"]["decision"] == "tune"
    for path in PUBLISHED:
        assert imported[path.name]["agrees"] is True, imported[path.name]


def test_an_imported_study_is_tagged_and_read_like_a_measured_one(
    store: Store, imported: dict[str, Any]
) -> None:
    item = imported["training.json"]
    run = store.client.get_run(item["study_id"])
    tags = run.data.tags
    assert run.info.status == "FINISHED"
    assert tags[names.IMPORTED] == "training"
    assert tags[names.SOURCE_FILE] == "training.json"
    assert tags[names.DECISION] == tags[names.PUBLISHED_DECISION] == "tune"
    assert tags[names.CONFIDENCE] == "unconfirmed"
    runs = tp.runs(item["study_id"], tracking_uri=store.tracking_uri)
    assert list(runs["level"]) == ["variant", "repeat", "repeat"] * 2
    assert list(runs["step_time_ms"]) == [300.0, 299.0, 301.0, 200.0, 199.0, 201.0]
    again = tp.compare(item["study_id"], tracking_uri=store.tracking_uri)
    assert (again.decision.decision, again.decision.reason) == (item["decision"], item["reason"])
    assert again.candidates[0].delta["step_time_ms"] == 100.0
    variants = queries.load_variants(store, item["study_id"])
    assert {variant.peak_mem_source for variant in variants} == {"reported"}


def test_an_export_is_the_imported_report_byte_for_byte_and_imports_as_the_same_study(
    folder: Path, store: Store, imported: dict[str, Any]
) -> None:
    before = count_of_runs(store)
    for name, item in imported.items():
        done = trainperf(store, "export", item["study_id"], "--output", name)
        assert (done.exit_code, done.stdout) == (0, f"{name} is written\n")
        assert Path(name).read_bytes() == (folder / name).read_bytes()
    shown = trainperf(store, "export", imported["training.json"]["study_id"])
    assert shown.stdout_bytes == (folder / "training.json").read_bytes()
    again = trainperf(store, "import", *imported)
    for name, item in imported.items():
        line = f"{name}: study {item['study_id']} ({item['format']}, imported before)"
        assert line in again.stdout.splitlines()
    assert count_of_runs(store) == before


def test_a_measured_study_is_the_same_after_export_and_import(tmp_path: Path) -> None:
    store = a_store(tmp_path)
    measured = record(store).study_id
    report = tp.export(measured, tracking_uri=store.tracking_uri)
    assert report["tuned"]["name"] == "bf16"
    Path("report.json").write_text(json.dumps(report), "utf-8")
    (outcome,) = tp.import_reports("report.json", tracking_uri=store.tracking_uri)
    assert (outcome.agrees, outcome.study) == (True, "does bf16 pay"), outcome.differences
    assert outcome.study_id != measured
    before, after = (queries.load_variants(store, id) for id in (measured, outcome.study_id))
    for one, other in zip(before, after, strict=True):
        assert (one.name, one.role, one.config) == (other.name, other.role, other.config)
        assert [r.metrics for r in one.repeats] == [r.metrics for r in other.repeats]
        assert one.metrics == other.metrics
    one, other = (queries.load_study(store, id) for id in (measured, outcome.study_id))
    assert (one.workload, one.variants, one.policy) == (
        other.workload,
        other.variants,
        other.policy,
    )


def test_a_study_is_exported_in_another_format_than_its_own(
    store: Store, imported: dict[str, Any]
) -> None:
    study = imported["strategy 1é.json"]["study_id"]
    budget = tp.export(study, "memory-budget", tracking_uri=store.tracking_uri)
    assert budget["semantic_id"] == "PERF-MEMORY-BUDGET"
    assert [item["name"] for item in budget["candidates"]] == [
        "baseline",
        "checkpoint",
        "offload",
        "hybrid",
    ]
    assert budget["candidates"][3]["status"] == "oom"


@pytest.mark.parametrize(
    ("format", "message"),
    [
        ("closing", "is not closed"),
        ("handoff", "run 'trainperf close"),
        ("profiling", "run 'trainperf profile"),
        ("phase", "has no phase report"),
        ("trainin", "did you mean 'training'?"),
    ],
)
def test_what_cannot_be_exported_says_what_to_do(
    format: str, message: str, store: Store, imported: dict[str, Any]
) -> None:
    study = imported["strategy 1é.json"]["study_id"]
    done = trainperf(store, "export", study, "--format", format)
    assert done.exit_code == 2
    assert message in done.stderr


@pytest.mark.parametrize("command", ["phase", "profile"])
def test_an_imported_study_is_not_run_again(
    command: str, store: Store, imported: dict[str, Any]
) -> None:
    done = trainperf(store, command, imported["training.json"]["study_id"])
    assert done.exit_code == 4
    assert "was imported from 'training.json' and measured elsewhere" in done.stderr


def test_one_bad_file_keeps_all_of_them_out(folder: Path, store: Store, tmp_path: Path) -> None:
    before = count_of_runs(store)
    good, bad = tmp_path / "good.json", tmp_path / "bad.json"
    good.write_text(json.dumps(training_report(note="a new one")), "utf-8")
    bad.write_text(json.dumps(training_report(baseline={"step_time_ms": True})), "utf-8")
    done = trainperf(store, "import", str(good), str(bad))
    assert done.exit_code == 2
    assert "baseline.step_time_ms: True is no number" in done.stderr
    oom = memory_report()
    oom["candidates"][0] = {"name": "baseline", "status": "oom"}
    bad.write_text(json.dumps(oom), "utf-8")
    done = trainperf(store, "import", str(good), str(bad))
    assert (done.exit_code, "cannot be decided" in done.stderr) == (2, True)
    assert count_of_runs(store) == before


def test_a_disagreement_shows_both_decisions_and_why_also_when_it_is_compared_again(
    tmp_path: Path, store: Store
) -> None:
    file = tmp_path / "hopeful.json"
    hopeful = {"decision": "accept", "reason": "we like it"}
    file.write_text(json.dumps(training_report(decision=hopeful)), "utf-8")
    done = trainperf(store, "import", str(file))
    assert done.exit_code == 0
    assert "published accept, decided tune (gain_below_thresholds):" in done.stdout
    assert "memory gain 500.00 MiB" in done.stdout
    again = tp.compare("hopeful", tracking_uri=store.tracking_uri)
    assert "decision: published accept, here tune" in again.warnings


def test_a_closing_report_keeps_the_decision_of_its_close(
    store: Store, imported: dict[str, Any]
) -> None:
    study = imported["closing.json"]["study_id"]
    again = tp.compare(study, tracking_uri=store.tracking_uri)
    assert again.decision.reason == "global_peak_memory_saving_below_threshold"
    assert again.decision.policy == "qualification"


def test_a_report_that_was_changed_in_the_store_is_found_out(
    store: Store, imported: dict[str, Any]
) -> None:
    # The last test of this store: it spoils the study.
    study = imported["closing.json"]["study_id"]
    kept = local_folder(store.client.get_run(study).info.artifact_uri)
    assert kept is not None
    path = kept / source_path(queries.load_study(store, study))
    path.write_text(path.read_text("utf-8").replace("9700", "9400", 1), "utf-8")
    done = trainperf(store, "export", study)
    assert (done.exit_code, "evidence/source/closing.json" in done.stderr) == (4, True)
    path.unlink()
    done = trainperf(store, "export", study)
    assert (done.exit_code, "lacks evidence/source/closing.json" in done.stderr) == (4, True)
