"""``trainperf measure --ladder``: one study a length, stopped at the safety boundary, decided
within its scope. The lengths are recorded here instead of being measured."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner
from recorded_studies import a_failed_repeat, a_repeat, a_store, a_study, clean_surroundings

import trainperf_mlflow as tp
from trainperf_mlflow.api import laddering
from trainperf_mlflow.cli import cli
from trainperf_mlflow.decisions.policies import POLICIES
from trainperf_mlflow.decisions.study import decide_study
from trainperf_mlflow.errors import MeasurementError, PlanError
from trainperf_mlflow.evidence.formats import activation_scope
from trainperf_mlflow.evidence.reading import parse_document
from trainperf_mlflow.plan import Plan
from trainperf_mlflow.results.comparison import Comparison
from trainperf_mlflow.results.repeats import Repeat
from trainperf_mlflow.tracking import queries
from trainperf_mlflow.tracking.recorder import Recorder
from trainperf_mlflow.tracking.store import Store

pytestmark = pytest.mark.usefixtures("warm_servers")

LADDER = {
    "ladder": [64, 128, 256],
    "set": {"optimizer": "sgd", "momentum": 0.0, "batch_size": 2},
    "candidates": ["checkpoint"],
}
# MiB of baseline and checkpoint at a length: activations grow with it.
PEAKS: dict[str, Callable[[int], float]] = {
    "baseline": lambda length: 1000.0 + 10.0 * length,
    "checkpoint": lambda length: 1000.0 + 2.0 * length,
}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    folder = tmp_path_factory.mktemp("ladder")
    with pytest.MonkeyPatch.context() as patch:
        clean_surroundings(patch, folder)
        yield a_store(folder)


@pytest.fixture
def measured(store: Store, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the lengths do; tests change it before they climb."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", store.tracking_uri)
    lengths: dict[str, Any] = {"oom": {}, "repeats": 3, "asked": []}

    def measure(plan: Plan, **where: Any) -> Comparison:
        config = dict(plan.set)
        length = int(str(config["seq_len"]))
        lengths["asked"].append(length)
        limits = {**POLICIES[plan.policy_name].thresholds, **plan.threshold}
        study = a_study(
            str(plan.study), variants=plan.variants(), policy=plan.policy_name,
            plan=plan.model_dump(mode="json"), thresholds=limits,
        )  # fmt: skip
        recorder = Recorder.start(store, study)
        for variant, peak in PEAKS.items():
            for index in range(lengths["repeats"]):
                # Without blocks: too few pairs would leave every gain unconfirmed.
                values = {"step_time_ms": 50.0, "samples_per_s": 40.0, "eval_loss": 2.4}
                values["peak_mem_mb"] = peak(length)
                fields = {"reported": values, "blocks": (), "quality_checked": True, "effects": ()}
                repeat = a_repeat(recorder.study_id, variant, index, **fields)
                if variant in lengths["oom"].get(length, ()):
                    repeat = a_failed_repeat(recorder.study_id, variant, index)
                assert isinstance(repeat, Repeat)
                recorder.record_repeat(repeat)
        try:
            comparison = decide_study(recorder.study, recorder.values())
        except MeasurementError as error:
            recorder.fail(str(error))
            raise
        assert recorder.finish_study(comparison, "note")
        return comparison

    monkeypatch.setattr(laddering, "measure", measure)
    return lengths


def predicted(monkeypatch: pytest.MonkeyPatch) -> None:
    def estimate(plan: Plan, **_: Any) -> Any:
        length = int(str(plan.set["seq_len"]))
        variants = [
            SimpleNamespace(variant=name, peak_mem_mb=peak(length)) for name, peak in PEAKS.items()
        ]
        return SimpleNamespace(variants=variants)

    monkeypatch.setattr(laddering, "estimate", estimate)


def artifact(store: Store, run_id: str, path: str) -> bytes:
    return Path(store.client.download_artifacts(run_id, path)).read_bytes()


def test_a_ladder_is_one_study_a_length_under_one_run_with_the_sources_report(
    store: Store, measured: dict[str, Any]
) -> None:
    found = tp.measure_ladder({**LADDER, "study": "lengths"})
    assert measured["asked"] == [64, 128, 256]
    assert (found.verdict.comparison_seq_len, found.stopped) == (256, None)
    assert found.verdict.tested_seq_lens == (64, 128, 256)
    assert found.verdict.decision == "accept_for_activation_memory_scope"
    assert found.verdict.metrics.memory_saving_mb == 2048.0
    assert found.verdict.promotable_to_full_training is False
    run = store.client.get_run(found.study_id)
    tags = {k.removeprefix("trainperf."): v for k, v in run.data.tags.items()}
    assert (tags["kind"], tags["decision"], tags["policy"]) == (
        "scope",
        "accept",
        "activation-scope",
    )
    assert tags["reason"] == "checkpoint_passed_activation_memory_and_throughput_gates"
    studies = [str(rung.study_id) for rung in found.rungs]
    assert tags["scope_studies"].split(",") == studies
    for study_id in studies:
        study = store.client.get_run(study_id)
        assert study.data.tags["mlflow.parentRunId"] == found.study_id
        assert study.data.tags["trainperf.kind"] == "study"
    assert f"/runs/{studies[0]}" in run.data.tags["mlflow.note.content"]
    report = artifact(store, found.study_id, "evidence/activation_scope.json")
    verdict = json.loads(artifact(store, found.study_id, "activation_scope.json"))
    assert verdict["evidence"]["sha256"] == hashlib.sha256(report).hexdigest()
    # What the source's format says, and whoever imports it finds again.
    document = parse_document(report, "report")
    assert activation_scope.ScopeReport.read(document).summary.comparisons[0].accepted is True
    assert [r["seq_len"] for r in document.content["length_records"]] == [64, 128, 256]
    assert document.content["config"]["optimizer_momentum"] == 0.0
    assert queries.find_study(store, "lengths") == found.study_id
    rows = tp.decisions().set_index("study_id")
    assert rows.loc[found.study_id, "kind"] == "scope"


def test_a_ladder_stops_where_a_length_runs_out_of_memory(
    store: Store, measured: dict[str, Any]
) -> None:
    measured["oom"] = {128: ("baseline",)}
    found = tp.measure_ladder(LADDER)
    assert measured["asked"] == [64, 128]
    assert found.stopped == "out of memory at seq_len 128: baseline"
    assert (found.verdict.comparison_seq_len, found.verdict.tested_seq_lens) == (64, (64, 128))
    assert found.decision.decision == "accept"
    assert found.rungs[1].status == {"baseline": "oom", "checkpoint": "ok"}


def test_a_ladder_stops_before_a_length_that_is_predicted_not_to_fit(
    measured: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    predicted(monkeypatch)
    found = tp.measure_ladder(LADDER, device_memory_mb=2300.0)
    assert measured["asked"] == [64, 128]
    assert found.stopped is not None
    assert "predicted at seq_len 256: baseline needs 3560 MiB, there are 2300" in found.stopped
    assert found.rungs[2].study_id is None
    assert found.verdict.tested_seq_lens == (64, 128)


def test_gates_that_are_not_met_give_tune(measured: dict[str, Any]) -> None:
    short = {**LADDER, "ladder": [32, 64]}
    limits = {"minimum_memory_saving_mb": 513.0}
    found = tp.measure_ladder({**short, "threshold": limits})
    assert (found.verdict.decision, found.decision.decision) == ("tune", "tune")
    assert found.verdict.gates["minimum_memory_saving_mb"] == 513.0
    # The comparison's own rule has to accept, too.
    found = tp.measure_ladder({**short, "threshold": {"min_memory_saving_mb": 5000.0}})
    assert found.verdict.decision == "tune"


def test_a_ladder_without_a_length_to_compare_fails_and_leaves_no_run_running(
    store: Store, measured: dict[str, Any]
) -> None:
    measured["oom"] = {64: ("baseline", "checkpoint")}
    with pytest.raises(MeasurementError, match="begin the ladder with a shorter length"):
        tp.measure_ladder({**LADDER, "study": "too long"})
    run = store.client.get_run(queries.find_study(store, "too long"))
    assert run.info.status == "FAILED"
    shown = CliRunner().invoke(cli, ["show", "too long"])
    assert "is a scope that came to no decision: no length has" in shown.stdout, shown.output
    assert "shorter length" in run.data.tags["trainperf.error"]


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"ladder": [64]}, "two lengths or more"),
        ({"ladder": [128, 64]}, "each longer than the one before"),
        ({"ladder": [64, "128"]}, "'128' cannot be used"),
        ({"set": {}}, "the optimizer is adamw"),
        ({"set": {"optimizer": "sgd", "momentum": 0.9}}, "with momentum 0.9"),
        ({"set": {**LADDER["set"], "seq_len": 8}}, "seq_len is given twice"),  # type: ignore[dict-item]
        ({"candidates": ["bf16"]}, "give the candidate checkpoint alone"),
        ({"candidates": ["checkpoint", "bf16"]}, "give the candidate checkpoint alone"),
        ({"repeats": 2}, "each side needs 3 or more"),
        ({"ladder": [64, 2_000_000]}, "2000000"),
        ({"threshold": {"minimum_memory": 1.0}}, "did you mean"),
        ({"ladder": None}, "the plan has no ladder"),
    ],
)
def test_a_ladder_that_cannot_answer_is_refused(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(PlanError) as error:
        tp.measure_ladder({**LADDER, **changes})
    assert told in str(error.value)


def test_the_command_climbs_a_ladder_and_prints_its_verdict(
    store: Store, measured: dict[str, Any]
) -> None:
    settings = ["--set", "optimizer=sgd", "--set", "momentum=0", "--candidate", "checkpoint"]
    words = ["measure", "--ladder", "seq_len=64,128", *settings]
    done = CliRunner().invoke(cli, words)
    assert done.exit_code == 0, done.output
    assert "seq_len 64: baseline 1640.0 MiB (ok, 3 repeats)" in done.stdout
    assert "accept_for_activation_memory_scope" in done.stdout
    shown = CliRunner().invoke(cli, ["show", queries.find_study(store, "quick: activation scope")])
    # The same lines, then the studies that it stands on.
    assert shown.stdout.startswith(done.stdout.rstrip())
    assert shown.stdout.count("trainperf show ") == 2
    refused = CliRunner().invoke(cli, ["report", "quick: activation scope"])
    assert (refused.exit_code, "is a scope and no study" in refused.stderr) == (2, True)
    done = CliRunner().invoke(cli, [*words, "--format", "json"])
    found = json.loads(done.stdout)
    assert (found["decision"], found["verdict"]["comparison_seq_len"]) == ("accept", 128)
    assert found["candidates"][0]["delta"]["peak_mem_mb"] == 1024.0
    for bad, told in (
        (["--ladder", "length=64,128"], "not of the form seq_len=N,N"),
        (["--ladder", "seq_len=64,x"], "'x' cannot be used"),
        (["--device-memory", "100"], "give --ladder"),
    ):
        done = CliRunner().invoke(cli, ["measure", *settings, *bad])
        assert (done.exit_code, told in done.stderr) == (2, True), done.stderr
