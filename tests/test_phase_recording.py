"""What explains a study reaches its runs, or stays on disk; an interrupt loses nothing."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import trainperf_mlflow as tp
from tests.recorded_studies import a_store, a_study, record
from trainperf_mlflow.api import explaining, phasing, recovering
from trainperf_mlflow.attribution import Attempt, PhaseMeasurement, Safety, TraceMeasurement
from trainperf_mlflow.errors import EvidenceError, Interrupted, StoreError
from trainperf_mlflow.results.record import Status
from trainperf_mlflow.tracking.spool import Spool
from trainperf_mlflow.tracking.store import Store
from trainperf_mlflow.tracking.waiting import (
    WAITING_FILE,
    Kept,
    Waiting,
    parcel,
    waiting_folders,
)

ENOUGH = Safety(
    free_memory_mb_before_load=9000.0,
    total_memory_mb=10_000.0,
    projected_peak_reserved_mb=500.0,
    minimum_free_margin_mb=512.0,
    required_free_memory_mb=1012.0,
    process_memory_fraction=None,
    admitted=True,
)


def measured(variant: str, index: int, forward_mb: float) -> Attempt:
    return Attempt(
        variant=variant,
        index=index,
        status=Status.OK,
        samples_per_step=2.0,
        environment={"device_name": "a device", "packages": {"torch": "2.13"}},
        phases=PhaseMeasurement(
            step_ms=(10.0, 12.0),
            phase_ms={"forward": (4.0, 5.0), "backward": (6.0, 7.0)},
            peak_mem_mb={"forward": forward_mb, "backward": 50.0},
            peak_mem_source="tensor_tracker",
        ),
    )


ALL = [
    measured("baseline", 0, 80.0),
    measured("bf16", 0, 40.0),
    measured("bf16", 1, 42.0),
    Attempt(variant="baseline", index=1, status=Status.OOM, error="out of memory"),
]


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """A recorded study, and workers that answer with given numbers."""
    store = a_store(tmp_path)
    record(store, "asked")
    monkeypatch.setattr(explaining, "Launcher", lambda: contextlib.nullcontext(Nobody))
    monkeypatch.setattr(explaining, "describe", lambda *arguments: a_study().workload)
    monkeypatch.setattr(phasing, "_check_memory", lambda found, projected: ENOUGH)
    return store


class Nobody:
    worker = None


def answering(monkeypatch: pytest.MonkeyPatch, *answers: Attempt | BaseException) -> None:
    def explain(*arguments: Any) -> Iterator[Attempt]:
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
            yield answer

    monkeypatch.setattr(explaining, "explain", explain)


def runs(store: Store) -> list[Any]:
    return list(store.client.search_runs([store.experiment_id]))


def study_of(store: Store) -> str:
    (study,) = (run for run in runs(store) if run.data.tags["trainperf.kind"] == "study")
    return str(study.info.run_id)


def summary_of(store: Store, variant: str) -> dict[str, Any]:
    run = next(
        run
        for run in store.client.search_runs([store.experiment_id])
        if run.data.tags.get("trainperf.variant") == variant
        and run.data.tags["trainperf.kind"] == "variant"
    )
    path = store.client.download_artifacts(run.info.run_id, "phases/phases.json")
    found: dict[str, Any] = json.loads(Path(path).read_text())
    return {**found, "metrics": run.data.metrics}


def test_a_variants_phases_are_means_over_the_repeats_that_succeeded(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    answering(monkeypatch, *ALL)
    report = tp.phase("asked", repeats=2, tracking_uri=store.tracking_uri)
    bf16, baseline = summary_of(store, "bf16"), summary_of(store, "baseline")
    assert bf16["metrics"]["phase/forward_ms"] == 4.5
    assert bf16["metrics"]["phase/forward_peak_mem_mb"] == 41.0
    assert bf16["global_peak_phase"] == "backward"
    # One repeat ran out of memory: that is the variant's status, and its numbers stay.
    assert (baseline["status"], baseline["error"]) == ("oom", "out of memory")
    assert baseline["repeats"] == 1
    assert baseline["global_peak_phase"] == "forward"
    assert report["summary"] == {
        "candidate_count": 2,
        "successful_candidates": ["bf16"],
        "global_peak_phase": {"baseline": "forward", "bf16": "backward"},
        "compared_candidate": "bf16",
        "allocated_memory_saving_mb": {"forward": 39.0, "backward": 0.0},
        "allocated_memory_saving_mb_by_candidate": {"bf16": {"forward": 39.0, "backward": 0.0}},
    }
    assert report["safety"]["required_free_memory_mb"] == 1012.0
    assert report["config"]["device"] == "a device"
    assert [run["status"] for run in report["candidates"][0]["runs"]] == ["ok", "oom"]
    assert not Path(".trainperf").exists()


def test_an_interrupt_keeps_what_was_measured_before_it(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    answering(monkeypatch, ALL[1], Interrupted(15))
    with pytest.raises(Interrupted, match="1 measured repeats are kept") as caught:
        tp.phase("asked", tracking_uri=store.tracking_uri)
    assert caught.value.exit_code == 143
    assert summary_of(store, "bf16")["repeats"] == 1


def test_where_nothing_could_be_measured_each_variant_says_why(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    answering(
        monkeypatch,
        *(Attempt(variant=n, index=0, status=Status.OOM, error=f"no room for {n}")
          for n in ("baseline", "bf16")),
    )  # fmt: skip
    with pytest.raises(tp.MeasurementError, match=r"no room for baseline.*no room for bf16"):
        tp.phase("asked", tracking_uri=store.tracking_uri)
    assert summary_of(store, "bf16")["status"] == "oom"


def test_what_the_store_does_not_take_stays_on_disk_until_it_is_recovered(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mlflow import MlflowClient

    real, taken = MlflowClient.log_text, []

    def fails_later(client: MlflowClient, *arguments: Any, **more: Any) -> None:
        if taken:
            raise OSError("the disk of the server is full")
        taken.append(arguments)
        real(client, *arguments, **more)

    answering(monkeypatch, *ALL)
    monkeypatch.setattr(MlflowClient, "log_text", fails_later)
    with pytest.raises(StoreError, match=r"is full.*kept in '.*phase-.*trainperf recover"):
        tp.phase("asked", repeats=2, tracking_uri=store.tracking_uri)
    (folder,) = Path(".trainperf").iterdir()
    kept = [Attempt.from_json(path.read_text()) for path in sorted(folder.glob("*-000?.json"))]
    assert {(attempt.variant, attempt.index) for attempt in kept} == {
        (attempt.variant, attempt.index) for attempt in ALL
    }
    # Still away: everything goes on waiting.
    with pytest.raises(StoreError, match="is full"):
        tp.recover(tracking_uri=store.tracking_uri)
    assert folder.exists()
    monkeypatch.setattr(MlflowClient, "log_text", real)
    study = Waiting.from_json((folder / "waiting.json").read_bytes()).study_id
    (row,) = tp.recover(study)  # into the store that it was measured for
    assert (row["explained"], row["sent"], row["complete"]) == (["phase"], 0, True)
    assert summary_of(store, "bf16")["metrics"]["phase/forward_ms"] == 4.5
    assert {f.path for f in store.client.list_artifacts(study, "plots")} >= {"plots/phases.png"}
    assert "phases/phase_memory.json" in {
        file.path for file in store.client.list_artifacts(study, "phases")
    }
    forward = store.client.get_metric_history(
        next(r for r in runs(store) if r.data.tags.get("trainperf.variant") == "bf16"
             and r.data.tags["trainperf.kind"] == "variant").info.run_id,
        "phase/forward_ms",
    )  # fmt: skip
    assert len(forward) == 1
    assert tp.recover() == []
    assert not Path(".trainperf").exists()


def test_a_trace_that_the_store_did_not_take_is_sent_by_recover_with_its_digest(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mlflow import MlflowClient

    def gone(*arguments: Any, **more: Any) -> None:
        raise OSError("connection refused")

    study = next(r for r in runs(store) if r.data.tags["trainperf.kind"] == "study").info.run_id
    kept = Kept(study, "profile")
    trace = Path("trace.json.gz")
    (kept.path / trace).write_bytes(b"made up")
    kept.put(store, [parcel(study, {"profile/trace_evidence.json": {"runs": []}}, trace=trace)])
    with monkeypatch.context() as patched:
        patched.setattr(MlflowClient, "log_artifact", gone)
        with pytest.raises(StoreError, match=r"connection refused.*trainperf recover"):
            kept.send(store, {"plots/trace_timeline.png": b"png"})
    kept.leave()
    assert [row["explained"] for row in tp.recover()] == [["profile"]]
    sent = Path(store.client.download_artifacts(study, "profile/trace.json.gz"))
    assert sent.read_bytes() == b"made up"
    tags = store.client.get_run(study).data.tags
    digest = hashlib.sha256(b"made up").hexdigest()
    assert tags["trainperf.sha256/profile/trace.json.gz"] == digest
    assert tp.recover() == []


def test_results_of_a_study_that_was_closed_meanwhile_are_not_sent(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = store.client.search_runs(
        [store.experiment_id], "tags.`trainperf.kind` = 'study'"
    )[0].info.run_id  # fmt: skip
    kept = Kept(study, "profile")
    kept.put(store, [parcel(study, {"profile/trace_evidence.json": {}})])
    with pytest.raises(StoreError, match="being sent by another command"):
        tp.recover()
    kept.leave()
    store.client.set_tag(study, "trainperf.closed", "v1")
    with pytest.raises(EvidenceError, match=r"closed meanwhile, as 'v1'.*profile results.*delete"):
        tp.recover()
    assert "profile" not in {file.path for file in store.client.list_artifacts(study)}


def test_a_full_disk_ends_no_measurement_that_the_store_still_takes(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*arguments: Any) -> None:
        raise OSError(28, "No space left on device")

    told = io.StringIO()
    answering(monkeypatch, *ALL)
    monkeypatch.setattr("trainperf_mlflow.tracking.waiting.write_whole", full)
    tp.phase("asked", repeats=2, tracking_uri=store.tracking_uri, progress=told)
    assert summary_of(store, "bf16")["repeats"] == 2
    assert told.getvalue().count("No space left on device") == 1


@pytest.mark.parametrize("command", ["phase", "profile"])
def test_what_is_measured_of_a_study_while_it_is_closed_stays_on_disk(
    store: Store, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    study = study_of(store)

    def explain(*arguments: Any) -> Iterator[Attempt]:
        store.client.set_tag(study, "trainperf.closed", "v1")
        yield ALL[-1]

    monkeypatch.setattr(explaining, "explain", explain)
    with pytest.raises(EvidenceError, match=rf"closed meanwhile, as 'v1'.*kept in '.*{command}-"):
        getattr(tp, command)("asked", tracking_uri=store.tracking_uri)
    (folder,) = Path(".trainperf").iterdir()
    waiting = Waiting.from_json((folder / WAITING_FILE).read_bytes())
    assert (waiting.study_id, waiting.kind) == (study, command)
    for run in runs(store):
        assert not {metric for metric in run.data.metrics if metric.startswith("phase/")}
        files = {file.path for file in store.client.list_artifacts(run.info.run_id)}
        assert not files & {"phases", "profile", "plots", "assessment.json"}


def test_a_trace_is_found_in_its_folder_wherever_that_is_moved(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mlflow import MlflowClient

    def explain(*arguments: Any) -> Iterator[Attempt]:
        (folder,) = Path(".trainperf").glob("profile-*")
        explaining.trace_path(folder, "bf16").write_bytes(b"made up")
        trace = TraceMeasurement(
            active_steps=2, step_ms=12.0, plain_step_ms=10.0, activities=("cpu",), trace_bytes=7,
            operators=(), phase_ms={},
        )  # fmt: skip
        yield Attempt(variant="bf16", index=0, status=Status.OK, samples_per_step=2.0, trace=trace)

    def gone(*arguments: Any, **more: Any) -> None:
        raise OSError("connection refused")

    monkeypatch.setattr(explaining, "explain", explain)
    with monkeypatch.context() as patched:
        patched.setattr(MlflowClient, "log_artifact", gone)
        with pytest.raises(StoreError, match="connection refused"):
            tp.profile("asked", tracking_uri=store.tracking_uri)
    Path(".trainperf").rename("elsewhere")
    monkeypatch.setenv("TRAINPERF_HOME", "elsewhere")
    (row,) = tp.recover("asked")
    assert (row["study_id"], row["explained"]) == (study_of(store), ["profile"])
    (run_id,) = (
        run.info.run_id
        for run in runs(store)
        if run.data.tags.get("trainperf.variant") == "bf16"
        and run.data.tags["trainperf.kind"] == "variant"
    )
    sent = Path(store.client.download_artifacts(run_id, "profile/trace.json.gz"))
    assert sent.read_bytes() == b"made up"


def waiting_of(store: Store, study: str, kind: str) -> Kept:
    """Results that wait, and that a command still has."""
    kept = Kept(study, kind)
    kept.put(store, [parcel(study, {f"{kind}/made_up.json": {"kind": kind}})])
    return kept


def test_a_folder_that_another_command_has_just_removed_hides_no_other(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = [waiting_of(store, study_of(store), kind).path for kind in ("phase", "profile")]
    real = Path.glob

    def glob(path: Path, pattern: str) -> list[Path]:
        return [path / "sent" / WAITING_FILE, *real(path, pattern)]

    monkeypatch.setattr(Path, "glob", glob)
    assert [folder.path for folder in waiting_folders(Spool())] == kept


def test_what_was_sent_is_told_and_assessed_though_what_came_later_cannot_be_sent(
    store: Store,
) -> None:
    study = study_of(store)
    waiting_of(store, study, "phase").leave()
    later = waiting_of(store, study, "profile")
    said: list[str] = []
    (row,) = tp.recover(warn=said.append)
    assert (row["explained"], row["complete"]) == (["phase"], False)
    assert "being sent by another command" in said[0]
    assert "assessment.json" in {file.path for file in store.client.list_artifacts(study)}
    later.leave()
    (row,) = tp.recover()
    assert (row["explained"], row["complete"]) == (["profile"], True)


def test_what_was_sent_is_told_though_it_cannot_be_assessed(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(*arguments: Any) -> None:
        raise StoreError("connection refused")

    waiting_of(store, study_of(store), "phase").leave()
    monkeypatch.setattr(recovering, "assess_again", gone)
    said: list[str] = []
    (row,) = tp.recover(warn=said.append)
    assert (row["explained"], row["complete"], said) == (["phase"], False, ["connection refused"])
