"""One real study, from the command line to MLflow and back: everything that others rely on."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from mlflow import MlflowClient
from mlflow.entities import Run

import trainperf_mlflow as tp
from tests.command import trainperf
from trainperf_mlflow.cli import cli

STUDY_NAME = 'is it "real"? <b>50 %</b>; DROP TABLE runs'


@dataclass(frozen=True)
class Measured:
    """A study that was measured by the command, and its runs."""

    folder: Path
    output: dict[str, Any]
    errors: str
    client: MlflowClient
    study: Run
    variants: dict[str, Run]
    repeats: list[Run]

    @property
    def uri(self) -> str:
        return f"sqlite:///{self.folder}/mlflow.db"


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Measured:
    folder = tmp_path_factory.mktemp("study")
    done = trainperf(
        *("measure", "--workload", "quick", "--candidate", "bf16", "--candidate", "checkpoint"),
        *("--repeats", "3", "--iters", "3", "--warmup", "1", "--set", "seq_len=64"),
        *("--study", STUDY_NAME, "--goal", "peak_mem", "--hypothesis", "memory"),
        *("--label", "first try", "--threshold", "max_cost=1000", "--format", "json"),
        cwd=folder,
    )
    assert done.returncode == 0, done.stderr
    output = json.loads(done.stdout)
    client = MlflowClient(f"sqlite:///{folder}/mlflow.db")
    experiment = client.get_experiment_by_name("trainperf")
    assert experiment is not None
    runs = client.search_runs([experiment.experiment_id], max_results=100)
    by_kind: dict[str, list[Run]] = {}
    for run in runs:
        by_kind.setdefault(run.data.tags["trainperf.kind"], []).append(run)
    assert Counter({kind: len(found) for kind, found in by_kind.items()}) == Counter(
        study=1, variant=3, repeat=9
    )
    return Measured(
        folder=folder,
        output=output,
        errors=done.stderr,
        client=client,
        study=by_kind["study"][0],
        variants={run.data.tags["trainperf.variant"]: run for run in by_kind["variant"]},
        repeats=by_kind["repeat"],
    )


def files(measured: Measured, run: Run) -> set[str]:
    return {item.path for item in measured.client.list_artifacts(run.info.run_id)}


def test_the_runs_form_a_tree_that_one_query_fetches(measured: Measured) -> None:
    study_id = measured.study.info.run_id
    for run in measured.variants.values():
        assert run.data.tags["mlflow.parentRunId"] == study_id
    for run in measured.repeats:
        parent = measured.variants[run.data.tags["trainperf.variant"]]
        assert run.data.tags["mlflow.parentRunId"] == parent.info.run_id
    everyone = [measured.study, *measured.variants.values(), *measured.repeats]
    assert {run.data.tags["trainperf.study_id"] for run in everyone} == {study_id}
    assert {run.info.status for run in everyone} == {"FINISHED"}
    digest = {run.data.tags["trainperf.workload_digest"] for run in everyone}
    assert len(digest) == 1
    assert all(run.data.tags["trainperf.schema"] for run in everyone)


def test_the_study_bears_question_and_answer(measured: Measured) -> None:
    tags = measured.study.data.tags
    assert measured.study.info.run_name == STUDY_NAME
    assert tags["trainperf.goal"] == "peak_mem"
    assert tags["trainperf.hypothesis"] == "memory"
    assert tags["trainperf.policy"] == "goal"
    assert tags["trainperf.decision"] == measured.output["decision"] == "accept"
    assert tags["trainperf.reason"] == measured.output["reason"]
    assert tags["trainperf.next_action"] == measured.output["next_action"]
    assert tags["trainperf.rollback"] == "false"
    assert tags["trainperf.best_candidate"] == measured.output["best_candidate"]
    assert tags["mlflow.note.content"].startswith("**accept")
    kept = {"study.json", "comparison.json", "blocks.json", "report.html", "report.md"}
    assert kept <= files(measured, measured.study)
    assert tags["trainperf.confidence"] == "confirmed"
    assert tags["trainperf.direction"] in ("faster", "slower", "same", "undecided")
    params = measured.study.data.params
    assert params["plan.repeats"] == "3"
    assert params["workload.weights"] == "random"
    metrics = measured.study.data.metrics
    assert {"delta/step_time_ms", "delta/step_time_pct", "speedup", "delta/peak_mem_mb"} <= set(
        metrics
    )
    assert {"delta/step_time_pct_low", "delta/step_time_pct_high"} <= set(metrics)
    assert (
        metrics["delta/step_time_pct_low"]
        <= metrics["delta/step_time_pct"]
        <= metrics["delta/step_time_pct_high"]
    )
    assert {"delta/step_time_ms_low", "delta/step_time_ms_high"} <= set(metrics)
    assert {"delta/peak_mem_pct", "delta/samples_per_s", "delta/loss", "delta/eval_loss"} <= set(
        metrics
    )


def test_each_candidate_bears_its_own_decision_and_deltas(measured: Measured) -> None:
    for name in ("bf16", "checkpoint"):
        run = measured.variants[name]
        assert run.data.tags["trainperf.role"] == "candidate"
        assert run.data.tags["trainperf.decision"] in ("accept", "tune", "reject")
        assert run.data.tags["trainperf.effect_verified"] == "true"
        assert "delta/peak_mem_mb" in run.data.metrics
    assert measured.variants["bf16"].data.tags["trainperf.changed_variable"] == "precision"
    assert measured.variants["baseline"].data.tags["trainperf.role"] == "baseline"
    assert "trainperf.decision" not in measured.variants["baseline"].data.tags


def test_a_variants_metrics_are_the_means_of_its_repeats(measured: Measured) -> None:
    wanted = {
        *("step_time_ms", "step_time_median_ms", "samples_per_s", "tokens_per_s"),
        *("peak_mem_mb", "host_peak_rss_mb", "loss", "eval_loss", "first_step_ms"),
    }
    for name, run in measured.variants.items():
        own = [r for r in measured.repeats if r.data.tags["trainperf.variant"] == name]
        for metric in wanted:
            values = [repeat.data.metrics[metric] for repeat in own]
            assert run.data.metrics[metric] == pytest.approx(sum(values) / 3)
        assert run.data.params["peak_mem_source"] == "tensor_tracker"
        # What a CPU cannot measure is absent, never 0.
        assert not {"peak_reserved_mb", "num_alloc_retries", "compile_s"} & set(run.data.metrics)


def test_every_repeat_keeps_its_series_and_its_files(measured: Measured) -> None:
    for run in measured.repeats:
        assert {"result.json", "environment.json"} <= files(measured, run)
        history = measured.client.get_metric_history(run.info.run_id, "steps/step_time_ms")
        assert [point.step for point in history] == list(range(1, 13))
        losses = measured.client.get_metric_history(run.info.run_id, "steps/loss")
        assert losses[-1].value == pytest.approx(run.data.metrics["loss"], abs=1e-6)


def test_checkpointing_changes_memory_and_not_the_loss(measured: Measured) -> None:
    base, candidate = (measured.variants[n].data.metrics for n in ("baseline", "checkpoint"))
    assert candidate["peak_mem_mb"] < 0.8 * base["peak_mem_mb"]
    assert candidate["loss"] == pytest.approx(base["loss"], rel=1e-5)
    # A byte model that learns: below the ln(256) of guessing, above what it cannot know yet.
    assert 2.0 < base["loss"] < 5.6
    assert 2.0 < base["eval_loss"] < 5.6


def test_the_workload_is_logged_as_a_dataset_with_its_digest(measured: Measured) -> None:
    dataset = measured.study.inputs.dataset_inputs[0].dataset
    digest = measured.study.data.tags["trainperf.workload_digest"]
    assert digest.startswith(dataset.digest)
    found = measured.client.search_runs(
        [measured.study.info.experiment_id], f"datasets.digest = '{dataset.digest}'"
    )
    assert measured.study.info.run_id in {run.info.run_id for run in found}


def test_machines_read_one_json_object_and_progress_goes_to_stderr(measured: Measured) -> None:
    keys = {
        *("study_id", "decision", "reason", "next_action", "rollback", "confidence", "policy"),
        *("best_candidate", "candidates", "schema_version"),
    }
    assert keys <= set(measured.output)
    for candidate in measured.output["candidates"]:
        assert {"variant", "status", "decision", "reason", "delta", "pairs"} <= set(candidate)
        assert candidate["pairs"] == 3
        assert candidate["other_decisions"]["training"]["decision"] in ("tune", "reject", "accept")
    assert measured.errors.count("round 3 of 3") == 3


def test_nothing_stays_on_disk_once_mlflow_has_it(measured: Measured) -> None:
    assert not (measured.folder / ".trainperf").exists()


def test_another_process_compares_again_and_comes_to_the_same_answer(measured: Measured) -> None:
    again = trainperf("compare", STUDY_NAME, "--format", "json", cwd=measured.folder)
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout) == measured.output


@pytest.mark.parametrize("characters", [32, 8])
def test_a_study_is_found_by_its_id_or_the_beginning_of_it(
    measured: Measured, characters: int
) -> None:
    study_id = measured.study.info.run_id
    comparison = tp.compare(study_id[:characters], tracking_uri=measured.uri)
    assert comparison.study_id == study_id


def test_python_reads_decisions_runs_and_comparison(measured: Measured) -> None:
    decisions = tp.decisions(tracking_uri=measured.uri)
    assert list(decisions["study"]) == [STUDY_NAME]
    assert list(decisions["decision"]) == ["accept"]
    assert tp.decisions(decision="reject", tracking_uri=measured.uri).empty
    runs = tp.runs(STUDY_NAME, tracking_uri=measured.uri)
    assert Counter(runs["level"]) == Counter(variant=3, repeat=9)
    assert runs["step_time_ms"].gt(0).all()
    loaded = tp.load_comparison(STUDY_NAME, tracking_uri=measured.uri)
    assert loaded.decision.decision == "accept"
    assert loaded.summary() == measured.output


def test_the_list_of_decisions_is_readable_by_people_and_machines(measured: Measured) -> None:
    store = ("--tracking-uri", measured.uri)
    table = CliRunner().invoke(cli, ["decisions", *store])
    assert table.exit_code == 0, table.stderr
    assert "accept" in table.stdout
    rows = json.loads(CliRunner().invoke(cli, ["decisions", "--format", "json", *store]).stdout)
    assert [row["study"] for row in rows] == [STUDY_NAME]


def test_the_same_seed_trains_the_same_model_in_every_variant_and_round(
    measured: Measured,
) -> None:
    by_round = Counter(
        (run.data.tags["trainperf.repeat"], run.data.params["seed"]) for run in measured.repeats
    )
    assert by_round == {("0", "42"): 3, ("1", "43"): 3, ("2", "44"): 3}
    first = {
        (r.data.tags["trainperf.variant"], r.data.tags["trainperf.repeat"]): r.data.metrics["loss"]
        for r in measured.repeats
    }
    # Another round is another initialisation.
    assert first["baseline", "0"] != first["baseline", "1"]
