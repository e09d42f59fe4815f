"""The published schemas of manifest, closing report and handoff, and files that break them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from trainperf_mlflow.errors import EvidenceError
from trainperf_mlflow.evidence.manifest import (
    Artifact,
    HeldRun,
    Manifest,
    ProfileEntries,
    ReportEntry,
    canonical,
    collect,
    differences,
    read_record,
)
from trainperf_mlflow.evidence.published import FOLDER, MODELS, schema_text

SHA = "ab" * 32


def manifest(*artifacts: Artifact) -> Manifest:
    return Manifest(
        run_label="v1",
        study_id="s" * 32,
        workload_digest=SHA,
        linked={},
        source_artifacts={},
        profile=ProfileEntries(report=None, trace_dir=None, phase_memory=ReportEntry(report=None)),
        artifacts=artifacts,
        measurements=(),
    )


def held(folder: Path, **fields: Any) -> HeldRun:
    known = {"part": "study", "study_id": "s", "run_id": "r", "kind": "study", "folder": folder}
    return HeldRun(**{**known, **fields})


@pytest.mark.parametrize("name", MODELS)
def test_a_published_schema_is_that_of_its_model(name: str) -> None:
    published = (FOLDER / f"{name}.json").read_text("utf-8")
    assert published == schema_text(name), "run 'python -m trainperf_mlflow.evidence.published'"
    assert json.loads(published)["properties"]["schema_version"]["const"].endswith("/v1")


def test_the_schemas_are_part_of_the_package() -> None:
    import tomllib

    project = tomllib.loads((FOLDER.parents[2] / "pyproject.toml").read_text())
    data = project["tool"]["setuptools"]["package-data"]["trainperf_mlflow"]
    assert "evidence/schemas/*.json" in data


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"schema_version": "performance-evidence-manifest/v2"}, "schema_version"),
        ({"semantic_id": "PERF-MEMORY-BUDGET"}, "semantic_id"),
        ({"unknown": 1}, "unknown"),
        ({"run_label": 1}, "run_label"),
        ({"artifacts": None}, "artifacts"),
    ],
)
def test_a_file_that_breaks_its_schema_is_refused_with_the_field(
    change: dict[str, Any], where: str
) -> None:
    content = json.loads(canonical(manifest()))
    with pytest.raises(EvidenceError, match=where):
        read_record(Manifest, json.dumps({**content, **change}).encode(), "evidence/manifest.json")


@pytest.mark.parametrize("path", ["/etc/passwd", "../x", "a/../b", "a//b", ""])
def test_a_path_that_leaves_its_run_is_refused(path: str) -> None:
    content = json.loads(canonical(manifest()))
    artifact = {"role": "plan", "part": "study", "study_id": "s", "run_id": "r", "path": path}
    content["artifacts"] = [{**artifact, "sha256": SHA, "size": 1, "fixed_at": "close"}]
    with pytest.raises(EvidenceError, match="path"):
        read_record(Manifest, json.dumps(content).encode(), "evidence/manifest.json")


def test_a_digest_or_a_size_of_another_kind_is_refused() -> None:
    content = json.loads(canonical(manifest()))
    artifact = {"role": "plan", "part": "study", "study_id": "s", "run_id": "r", "path": "a"}
    for wrong in ({"sha256": "AB" * 32, "size": 1}, {"sha256": SHA, "size": "1"}):
        content["artifacts"] = [{**artifact, **wrong, "fixed_at": "close"}]
        with pytest.raises(EvidenceError, match=r"artifacts\[0\]"):
            read_record(Manifest, json.dumps(content).encode(), "evidence/manifest.json")


@pytest.mark.parametrize("key", ["path", "sha256", "size", "run_id"])
def test_an_artifact_that_does_not_say_which_file_it_is_is_refused(key: str) -> None:
    content = json.loads(canonical(manifest()))
    artifact = {"role": "plan", "part": "study", "study_id": "s", "run_id": "r", "path": "a"}
    artifact |= {"sha256": SHA, "size": 1, "fixed_at": "close"}
    content["artifacts"] = [{k: v for k, v in artifact.items() if k != key}]
    with pytest.raises(EvidenceError, match=key):
        read_record(Manifest, json.dumps(content).encode(), "evidence/manifest.json")


def test_a_file_that_is_no_json_or_has_a_key_twice_is_refused() -> None:
    for data in (b"", b"{", b'{"run_label": "a", "run_label": "b"}', b"\xff"):
        with pytest.raises(EvidenceError, match="the manifest"):
            read_record(Manifest, data, "the manifest")


def test_a_manifest_reads_back_as_it_was_written(tmp_path: Path) -> None:
    (tmp_path / "study.json").write_text("{}")
    artifacts, _ = collect([held(tmp_path)])
    one = manifest(*artifacts)
    assert read_record(Manifest, canonical(one).encode(), "x") == one
    assert differences(one, one) == []


def test_views_and_the_closes_own_files_are_no_evidence(tmp_path: Path) -> None:
    for path in ("plots/a.png", "report.html", "evidence/closing.json", "evidence/source/a.json"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("x")
    artifacts, _ = collect([held(tmp_path)])
    assert [artifact.path for artifact in artifacts] == ["evidence/source/a.json"]


def test_what_is_recorded_but_gone_or_no_plain_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(EvidenceError, match=r"study\.json of study r is missing"):
        collect([held(tmp_path, recorded={"study.json": SHA})])
    (tmp_path / "trace").symlink_to(tmp_path / "nowhere")
    with pytest.raises(EvidenceError, match="trace of study r cannot be read"):
        collect([held(tmp_path)])


def test_two_files_that_were_swapped_are_said_to_be(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("a")
    (tmp_path / "b.json").write_text("b")
    before = manifest(*collect([held(tmp_path)])[0])
    (tmp_path / "a.json").write_text("b")
    (tmp_path / "b.json").write_text("a")
    first, second = differences(before, manifest(*collect([held(tmp_path)])[0]))
    assert "a.json" in first
    assert "swapped with b.json" in first
    assert "swapped with a.json" in second
