"""Phases and traces of one real study, from the command line to MLflow and back."""

from __future__ import annotations

import gzip
import json
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from mlflow import MlflowClient
from mlflow.entities import Run
from recorded_studies import clean_surroundings

from tests.command import runs
from trainperf_mlflow.cli import cli
from trainperf_mlflow.tracking.names import NOTE

pytestmark = pytest.mark.usefixtures("warm_servers")

QUICK = ("--repeats", "1", "--iters", "2", "--warmup", "1")
PHASES = ("data", "forward", "backward", "optimizer", "other")
EXPLAINING = ("phase/", "roofline/", "mfu", "flops_per_step")  # metrics that phase adds


@dataclass(frozen=True)
class Explained:
    """A study with phases and traces, as the commands printed them and as MLflow has them."""

    folder: Path
    before: dict[str, Run]  # by variant, without those of repeats
    after: dict[str, Run]
    study: Run
    measured: dict[str, Any]
    phases: dict[str, Any]
    profile: dict[str, Any]

    def artifact(self, run: Run, path: str) -> bytes:
        client = MlflowClient(f"sqlite:///{self.folder}/mlflow.db")
        return Path(client.download_artifacts(run.info.run_id, path)).read_bytes()


def invoke(*words: str) -> Result:
    """The command in this process and folder: importing MLflow anew would take the most time."""
    return CliRunner(env={"OMP_NUM_THREADS": "1"}).invoke(cli, words)


def by_variant(folder: Path) -> dict[str, Run]:
    return {
        run.data.tags["trainperf.variant"]: run
        for run in runs(folder)
        if run.data.tags["trainperf.kind"] == "variant"
    }


@pytest.fixture(scope="module")
def explained(tmp_path_factory: pytest.TempPathFactory) -> Explained:
    folder = tmp_path_factory.mktemp("explained")
    printed = []
    with pytest.MonkeyPatch.context() as patch:
        clean_surroundings(patch, folder)
        done = invoke(
            *("measure", "--study", "where", "--candidate", "checkpoint", *QUICK),
            *("--set", "seq_len=64", "--hypothesis", "memory", "--format", "json"),
        )
        assert done.exit_code == 0, done.stderr
        before = by_variant(folder)
        printed.append(json.loads(done.stdout))
        for command in (
            ("phase", "where", "--repeats", "2", "--format", "json"),
            ("profile", "where", "--top", "4", "--steps", "1", "--format", "json"),
        ):
            done = invoke(*command)
            assert done.exit_code == 0, done.stderr
            printed.append(json.loads(done.stdout))
            # MLflow has everything, so nothing is left on disk.
            assert not (folder / ".trainperf").exists()
    study = next(run for run in runs(folder) if run.data.tags["trainperf.kind"] == "study")
    return Explained(folder, before, by_variant(folder), study, *printed)


def candidate(report: dict[str, Any], name: str) -> dict[str, Any]:
    found: dict[str, Any] = next(c for c in report["candidates"] if c["name"] == name)
    return found


def test_checkpointing_is_seen_to_trade_activations_for_recomputed_products(
    explained: Explained,
) -> None:
    plain, checkpointed = (
        json.loads(explained.artifact(explained.after[name], "phases/phases.json"))
        for name in ("baseline", "checkpoint")
    )
    before, after = (s["memory_mb"]["forward"]["activations"] for s in (plain, checkpointed))
    assert after < before / 2
    assert plain["recomputed_modules"] == 0
    assert checkpointed["recomputed_modules"] > 0
    assert checkpointed["matmul_flops"]["forward"] == plain["matmul_flops"]["forward"]
    assert checkpointed["matmul_flops"]["backward"] > 1.2 * plain["matmul_flops"]["backward"]
    saved = explained.phases["summary"]["allocated_memory_saving_mb"]
    assert set(saved) == {"forward", "backward", "optimizer"}
    assert saved["forward"] > 1
    # The saving of activations leaves the optimizer's phase as it was.
    assert saved["optimizer"] == 0


def test_recomputing_is_work_but_no_useful_one(explained: Explained) -> None:
    plain, checkpointed = (
        explained.after[name].data.metrics for name in ("baseline", "checkpoint")
    )
    assert checkpointed["flops_per_step"] > 1.1 * plain["flops_per_step"]
    for name in ("baseline", "checkpoint"):
        found = candidate(explained.phases, name)
        metrics, peaks = explained.after[name].data.metrics, found["peaks"]
        # Both are held against the baseline's work and the same roof.
        per_second = plain["flops_per_step"] / found["step_time_ms"] * 1000
        assert metrics["mfu"] == pytest.approx(per_second / (peaks["tflops"]["fp32"] * 1e12))
        assert found["roofline_evidence"] == peaks["evidence_level"] == "measured"
        points = {point["name"]: point for point in found["roofline"]}
        step = points.pop("step")
        assert {"forward", "backward", "optimizer"} <= set(points)
        assert step["flops"] == pytest.approx(sum(p["flops"] for p in points.values()))
        assert step["moved_bytes"] == pytest.approx(sum(p["moved_bytes"] for p in points.values()))
        assert points["optimizer"]["bound"] == "memory"
        assert metrics["roofline/step_fraction"] == step["fraction"] > 0
    assert candidate(explained.phases, "baseline")["peaks"] == peaks


def test_tracker_study_and_trace_agree_on_the_peak(explained: Explained) -> None:
    for name, run in explained.after.items():
        of_study = run.data.metrics["peak_mem_mb"]
        of_phases = candidate(explained.phases, name)["peak_memory_mb"]
        of_trace = candidate(explained.profile, name)["peak_memory_mb"]
        # Each is of another step; nothing but the data's order differs.
        assert of_phases == pytest.approx(of_study, rel=0.01)
        assert of_trace == pytest.approx(of_study, rel=0.01)


def test_the_variants_get_phase_metrics_that_add_up_and_keep_their_own(
    explained: Explained,
) -> None:
    for name, run in explained.after.items():
        metrics = run.data.metrics
        step = candidate(explained.phases, name)["step_time_ms"]
        assert sum(metrics[f"phase/{phase}_ms"] for phase in PHASES) == pytest.approx(step)
        assert metrics["phase/backward_peak_mem_mb"] > 0
        untouched = {k: v for k, v in metrics.items() if not k.startswith(EXPLAINING)}
        assert untouched == explained.before[name].data.metrics
        # Beside the digests of the new files nothing was told anew.
        told = {k: v for k, v in run.data.tags.items() if not k.startswith("trainperf.sha256/p")}
        assert told == explained.before[name].data.tags
        assert run.info.status == "FINISHED"


def test_the_reports_have_the_sources_fields_and_are_on_the_study(explained: Explained) -> None:
    phases, profile = explained.phases, explained.profile
    study = explained.study
    # What both say together is a file of its own.
    for file, report in (("phases/phase_memory", phases), ("profile/trace_evidence", profile)):
        # What is told beside the report is no part of its format.
        beside = ("assessment", "trace_places")
        of_report = {key: value for key, value in report.items() if key not in beside}
        assert json.loads(explained.artifact(study, f"{file}.json")) == of_report
    shared = {
        *("schema_version", "semantic_id", "run_mode", "run_label", "task", "stage", "config"),
        *("sources", "candidates", "experiment", "standard_metrics"),
    }
    assert shared | {"evidence_level", "measurement", "safety", "summary"} <= set(phases)
    assert shared | {"profile", "trace_root"} <= set(profile)
    assert phases["schema_version"] == "training-phase-memory/v1"
    assert profile["schema_version"] == "profiling-trace-evidence/v1"
    assert phases["measurement"]["timing_for_adoption"] is False
    assert profile["profile"]["timing_for_adoption"] is False
    assert phases["safety"]["admitted"] is True
    assert phases["summary"]["successful_candidates"] == ["baseline", "checkpoint"]
    assert set(phases["summary"]["global_peak_phase"]) == {"baseline", "checkpoint"}
    assert [len(item["runs"]) for item in phases["candidates"]] == [2, 2]
    assert profile["profile"]["missing_strategies"] == []
    assert profile["profile"]["active_steps"] == 1
    for item in profile["candidates"]:
        assert len(item["top_operators"]) == 4
        assert "allocator_slack_mb" not in item  # a CPU has no caching allocator
        assert item["step_time_ms"] > 0


def test_phases_and_traces_make_the_studys_assessment_and_leave_its_decision(
    explained: Explained, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = explained.study
    made = json.loads(explained.artifact(study, "assessment.json"))
    assert made == explained.profile["assessment"]
    comparison = json.loads(explained.artifact(study, "comparison.json"))
    assert comparison["assessment"] == made
    assert comparison["decision"]["reason"] == explained.measured["reason"]
    assert explained.measured["assessment"]["missing"][0].startswith("no phases yet")
    assert "recompute" in {statement["code"] for statement in made["statements"]}
    # Two repeats show no trend of times, and say so; a peak is counted.
    assert "fewer than 3 repeats" in made["missing"][0]
    assert made["candidates"][0]["memory"]["forward"]["trend"] == "shrank"
    assert made["verdict"] == "supported"
    assert "Why: hypothesis memory: supported by checkpoint" in study.data.tags[NOTE]
    monkeypatch.chdir(explained.folder)
    done = invoke("compare", "where")
    assert done.exit_code == 0, done.output
    assert "hypothesis memory: supported by checkpoint" in done.stdout
    assert "takes the most time" in done.stdout


def test_each_variant_has_its_gzipped_trace_where_the_report_says(explained: Explained) -> None:
    files = explained.profile["profile"]["trace_files_by_strategy"]
    for name, run in explained.after.items():
        run_id, _, path = files[name][0].partition("/")
        assert run_id == run.info.run_id
        shown = Path(explained.profile["trace_places"][name])
        assert shown.read_bytes() == explained.artifact(run, path)
        events = json.loads(gzip.decompress(explained.artifact(run, path)))["traceEvents"]
        marks = {event["name"] for event in events if event.get("cat") == "user_annotation"}
        assert {f"phase.{phase}" for phase in PHASES[:-1]} <= marks
        summary = json.loads(explained.artifact(run, "profile/summary.json"))
        assert summary["timing_for_adoption"] is False
        assert summary["profiler_slowdown"] == pytest.approx(
            summary["step_ms"] / summary["plain_step_ms"]
        )


def test_a_closed_study_is_left_alone(
    explained: Explained, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(explained.folder)
    client = MlflowClient(f"sqlite:///{explained.folder}/mlflow.db")
    study_id = explained.study.info.run_id
    client.set_tag(study_id, "trainperf.closed", "v1")
    try:
        for command in ("phase", "profile"):
            done = invoke(command, "where")
            assert done.exit_code == 4
            assert "closed ('v1')" in done.stderr
    finally:
        client.delete_tag(study_id, "trainperf.closed")


@pytest.mark.parametrize(
    "words",
    [("phase", "where", "--repeats", "0"), ("profile", "where", "--steps", "0"), ("phase", "no")],
)
def test_wrong_usage_is_refused_before_anything_runs(
    explained: Explained, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(explained.folder)
    done = invoke(*words)
    assert done.exit_code == 2
    said = done.stderr.splitlines()[-1]
    assert said.startswith("trainperf: ") or "is not in the range x>=1" in said
    assert "round 1" not in done.stderr


TASKS = """
    import torch
    import trainperf_mlflow as tp

    def plain(config):
        weight = torch.zeros(int(config["size"]), requires_grad=True)
        return lambda: (weight * 2).sum()

    class Parts(tp.Task):
        def __init__(self, size, watched):
            self.weight = torch.nn.Parameter(torch.zeros(size))
            self.watched = watched

        def zero_grad(self):
            self.weight.grad = None

        def next_batch(self):
            return 2.0

        def forward(self, batch):
            # What the study measured fits; what a mark or a profiler sees does not.
            if self.watched and self.seen > 2:
                raise torch.OutOfMemoryError("out of memory: tried to allocate 2 GiB")
            self.seen += 1
            return (self.weight * batch).sum()

        seen = 0

        def optimizer_step(self):
            pass

    def parts(config):
        return Parts(int(config["size"]), config.get("grows", False))
"""


def own_study(task: str, candidate: str) -> None:
    Path("explained_task.py").write_text(textwrap.dedent(TASKS))
    done = invoke(
        *("measure", "--study", "own", "--task", f"explained_task:{task}", "--baseline", "size=10"),
        *("--candidate", candidate, "--repeats", "1", "--iters", "1", "--warmup", "1"),
    )
    assert done.exit_code == 0, done.stderr


def test_a_plain_callable_has_no_phases_but_a_trace() -> None:
    own_study("plain", "large:size=20")
    done = invoke("phase", "own", "--repeats", "2")
    assert done.exit_code == 3
    assert "unsupported" in done.stderr
    # Once while it runs, once at the end, however many variants it stopped.
    assert done.stderr.count("return a trainperf_mlflow.Task") == 2
    assert "baseline, large: unsupported" in done.stderr
    done = invoke("profile", "own", "--steps", "1")
    assert done.exit_code == 0, done.stderr
    assert "aten::mul" in done.stdout


def test_a_variant_out_of_memory_is_told_and_the_others_are_measured() -> None:
    own_study("parts", "big:grows=true")
    done = invoke("phase", "own", "--repeats", "2", "--format", "json")
    assert done.exit_code == 0, done.stderr
    report = json.loads(done.stdout)
    assert {item["name"]: item["status"] for item in report["candidates"]} == {
        "baseline": "ok",
        "big": "oom",
    }
    assert [run["status"] for run in candidate(report, "big")["runs"]] == ["oom", "oom"]
    assert "2 GiB" in candidate(report, "big")["error"]
    assert report["summary"]["successful_candidates"] == ["baseline"]
    done = invoke("profile", "own", "--format", "json")
    assert json.loads(done.stdout)["profile"]["missing_strategies"] == ["big"]


def test_another_workload_than_the_studys_is_no_evidence_for_it() -> None:
    text = Path.cwd() / "text.txt"
    text.write_text("one thing and another. " * 400)
    done = invoke(
        *("measure", "--study", "own", "--probe", *QUICK, "--set", f"data={text}"),
        *("--set", "seq_len=16"),
    )
    assert done.exit_code == 0, done.stderr
    text.write_text("something else entirely. " * 400)
    done = invoke("phase", "own")
    assert done.exit_code == 4
    assert "is not what study" in done.stderr
