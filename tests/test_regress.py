"""``trainperf regress``: one change over a primary and adjacent workloads, from their studies."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from recorded_studies import a_failed_repeat, a_repeat, a_store, a_study, clean_surroundings

import trainperf_mlflow as tp
from trainperf_mlflow.cli import cli
from trainperf_mlflow.decisions.regression import RegressionContract
from trainperf_mlflow.decisions.regression_study import (
    Regression,
    RegressionWorkload,
    decide_regression,
)
from trainperf_mlflow.errors import PlanError
from trainperf_mlflow.reporting.regression import regression_text
from trainperf_mlflow.results.record import Status
from trainperf_mlflow.results.repeats import Convergence
from trainperf_mlflow.results.study import Variant, Workload
from trainperf_mlflow.tracking.recorder import Recorder
from trainperf_mlflow.tracking.store import Store

CHANGE = {"precision": "bf16"}
SLOW, FAST = {"forward": 10.0, "backward": 30.0}, {"forward": 12.0, "backward": 15.0}
ROLES = {"primary": "main", "adjacent": ["short", "small"]}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """A store with a primary study and two adjacent ones that pass; tests add their own."""
    folder = tmp_path_factory.mktemp("regress")
    with pytest.MonkeyPatch.context() as patch:
        clean_surroundings(patch, folder)
        store = a_store(folder)
        measured(store, "main", phases=FAST)
        measured(store, "short", gain_ms=1.0, phases=FAST)
        measured(store, "small", gain_ms=-3.0)
        yield store


@pytest.fixture(autouse=True)
def _beside_the_store(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", store.tracking_uri)


def measured(
    store: Store,
    name: str,
    *,
    gain_ms: float = 20.0,
    loss: float = 2.4,
    status: str = "ok",
    phases: Mapping[str, Any] | None = None,
    changed: Mapping[str, Any] = CHANGE,
    hypothesis: str | None = "backward",
    variant: str = "bf16",
    others: tuple[Variant, ...] = (),
    trained: Sequence[float | None] = (),
    **fields: Any,
) -> str:
    """A study whose candidate gains so much, with the phases (of baseline, candidate) if given.

    Args:
        trained: by how much a longer training ends worse, seed by seed; None: it diverged.
    """
    if trained:
        fields["plan"] = {"convergence_steps": 200}
    config = {"model": "tiny", "precision": "fp32", "batch_size": 2, "seq_len": len(name)}
    candidate = Variant(
        name=variant,
        role="candidate",
        config={**config, **changed},
        changed=dict(changed),
        changed_variable=next(iter(changed)),
    )
    workload = Workload(
        digest=name.encode().hex().ljust(64, "0"), identity={"seed": 42}, device="cpu",
        name="quick", source="stdlib",
    )  # fmt: skip
    variants = (Variant(name="baseline", role="baseline", config=config), candidate, *others)
    study = a_study(name, variants=variants, workload=workload, hypothesis=hypothesis, **fields)
    recorder = Recorder.start(store, study)
    checked: dict[str, Any] = {"quality_checked": True, "blocks": ()}
    for each in variants:
        values = {"step_time_ms": 50.0 - (gain_ms if each.role == "candidate" else 0.0)}
        values |= {"samples_per_s": 2000 / values["step_time_ms"], "peak_mem_mb": 100.0}
        values["eval_loss"] = loss if each.role == "candidate" else 2.4
        repeat = a_repeat(recorder.study_id, each.name, reported=values, **checked)
        if status != "ok" and each.role == "candidate":
            repeat = a_failed_repeat(recorder.study_id, each.name, 0)
        recorder.record_repeat(repeat)
    for index, worse in enumerate(trained):
        for each in ("baseline", variant):
            gone = each == variant and worse is None
            ended = 3.0 + index + (worse or 0.0 if each == variant else 0.0)
            run = Convergence(
                index=index,
                seed=42 + index,
                status=Status.DIVERGED if gone else Status.OK,
                error="the loss became nan in step 7" if gone else None,
                steps=200,
                eval_loss=None if gone else ended,
                quality_checked=True,
            )
            recorder.keep_convergence(each, run)
    if trained:
        recorder.record_convergence()
    recorder.kill()
    if phases is not None:
        store.client.log_text(recorder.study_id, "{}", "phases/phase_memory.json")
        for each, times in zip(("baseline", variant), (SLOW, phases), strict=True):
            run = {"phases": {"phase_ms": {k: [v] for k, v in times.items()}, "step_ms": [50.0]}}
            summary = {"phase_ms": times, "runs": [run] * 3, "step_ms": 50.0}
            store.client.log_text(
                recorder.variant_runs[each], json.dumps(summary), "phases/phases.json"
            )
    return recorder.study_id


def regressed(**fields: Any) -> Regression:
    return tp.regress(**{**ROLES, **fields})


def test_a_gain_that_holds_everywhere_is_accepted_and_recorded_with_its_studies(
    store: Store,
) -> None:
    found = regressed()
    assert (found.decision.decision, found.decision.reason) == (
        "accept",
        "benefit_and_guardrails_passed",
    )
    assert (found.decision.confidence, found.decision.rollback) == ("unconfirmed", False)
    assert found.decision.next_action == "freeze_candidate_and_thresholds"
    evidence = found.evidence
    assert evidence.primary is not None
    assert evidence.primary.time_gain_ms == 20.0
    assert [row.time_gain_ms for row in evidence.adjacent] == [1.0, -3.0]
    assert evidence.primary.original_bottleneck_delta_ms == 15.0
    assert (evidence.original_bottleneck, evidence.candidate_bottleneck) == ("backward", "backward")
    run = store.client.get_run(found.study_id)
    tags = {k.removeprefix("trainperf."): v for k, v in run.data.tags.items()}
    assert (tags["kind"], tags["decision"], tags["rollback"]) == ("regression", "accept", "false")
    assert tags["primary_study"] == found.workloads[0].study_id
    assert tags["adjacent_studies"].split(",") == [w.study_id for w in found.workloads[1:]]
    assert (tags["hypothesis"], tags["candidate_bottleneck"]) == ("backward", "backward")
    assert f"/runs/{found.workloads[1].study_id}" in run.data.tags["mlflow.note.content"]
    assert run.data.metrics["delta/step_time_ms"] == 20.0
    assert run.info.status == "FINISHED"
    path = store.client.download_artifacts(found.study_id, "regression.json")
    assert Regression.from_json(Path(path).read_bytes()) == found
    rows = tp.decisions().set_index("study_id")
    assert rows.loc[found.study_id, "kind"] == "regression"
    assert found.study_id in set(tp.decisions(decision="accept")["study_id"])


def test_single_point_gain_and_adjacent_regression_are_told_apart(store: Store) -> None:
    measured(store, "slower", gain_ms=-3.5)
    found = regressed(adjacent=["short", "slower"])
    assert (found.decision.decision, found.decision.rollback) == ("tune", False)
    codes = {item.code: item.text for item in found.shortfalls}
    assert set(codes) == {"adjacent_slower", "single_point_gain"}
    assert "slower by 3.50 ms" in codes["adjacent_slower"]
    assert found.decision.next_action == "adjust_and_rerun_regression"


def test_a_failed_workload_and_lost_quality_end_in_a_rollback(store: Store) -> None:
    measured(store, "broken", status="oom")
    found = regressed(adjacent=["broken", "small"])
    assert found.decision.reason == "hard_failure_or_primary_missing"
    assert (found.decision.rollback, found.decision.next_action) == (True, "restore_baseline")
    assert found.evidence.hard_failures == (found.workloads[1].workload_id,)
    measured(store, "worse", loss=2.43, phases=FAST)
    found = regressed(adjacent=["small", "worse"])
    assert found.decision.reason == "quality_guardrail_failed"
    assert regressed(adjacent=["small", "worse"], thresholds={"max_quality_delta": 0.04})


@pytest.mark.parametrize(
    ("loss", "trained", "decision", "reason", "said"),
    [
        (2.4, (0.3, 0.31, 0.29), "reject", "quality_guardrail_failed", "worse by over 0.02"),
        (2.4, (0.0, 0.0, None), "reject", "hard_failure_or_primary_missing", "seed 44"),
        # What a longer training shows stands above the eval loss of some ten steps.
        (2.45, (0.0, 0.01, 0.005), "accept", "benefit_and_guardrails_passed", "the same"),
        (2.4, (0.0, 0.3, -0.2), "accept", "benefit_and_guardrails_passed", "not shown"),
        (2.45, (0.0, 0.3, -0.2), "reject", "quality_guardrail_failed", "not shown"),
    ],
)
def test_what_longer_training_leads_to_decides_about_quality(
    store: Store, loss: float, trained: tuple[float | None, ...], decision: str, reason: str,
    said: str,
) -> None:  # fmt: skip
    study = measured(store, "trained", loss=loss, trained=trained, phases=FAST)
    found = regressed(primary=study)
    assert (found.decision.decision, found.decision.reason) == (decision, reason)
    assert said in found.decision.text
    assert found.workloads[0].convergence is not None
    assert said in found.workloads[0].convergence.text


def test_without_stage_times_the_answer_is_tune(store: Store) -> None:
    measured(store, "bare")
    found = regressed(primary="bare")
    assert found.decision.reason == "benefit_or_bottleneck_evidence_incomplete"
    assert [item.code for item in found.shortfalls] == ["bottleneck_not_reduced"]
    assert "was not measured" in found.decision.text
    measured(store, "unsaid", hypothesis=None)
    assert regressed(primary="unsaid").original_bottleneck is None


def test_without_a_hypothesis_the_phase_that_took_most_is_the_bottleneck(store: Store) -> None:
    phases = {"forward": 41.0, "backward": 9.0}
    measured(store, "found", hypothesis=None, phases=phases)
    found = regressed(primary="found")
    assert (found.original_bottleneck, found.evidence.candidate_bottleneck) == (
        "backward",
        "forward",
    )
    measured(store, "kept", hypothesis="memory")
    assert [item.code for item in regressed(primary="kept").shortfalls] == [
        "bottleneck_not_reduced"
    ]


def test_a_contract_that_does_not_hold_is_refused_before_anything_is_written(
    store: Store,
) -> None:
    measured(store, "other change", changed={"fused": True})
    two = Variant(name="fp16", role="candidate", config={"precision": "fp16"})
    measured(store, "several", others=(two,))
    bad: dict[str, dict[str, Any]] = {
        "adjacent_workload_missing": {"adjacent": []},
        "primary_workload_count_invalid": {"primary": None},
        "duplicate_workload_id": {"adjacent": ["short", "short"]},
        "changed_variable_differs": {"adjacent": ["other change"]},
        "baseline_is_candidate": {"contract": {"baseline_id": "a", "candidate_id": "a"}},
        "candidates bf16, fp16; say which": {"primary": "several"},
        "no candidate 'bf61' (did you mean 'bf16'?)": {"candidate": "bf61"},
        "unknown threshold 'max_quality'": {"thresholds": {"max_quality": 1.0}},
        "unknown key 'gate' (did you mean 'gates'?)": {"contract": {"gate": {}}},
        "no study 'nobody'": {"adjacent": ["nobody"]},
        "0 or more": {"thresholds": {"max_quality_delta": -1.0}},
        "names its workloads already": {"contract": {"workloads": [{"role": "primary"}]}},
    }
    before = len(tp.decisions())
    for told, fields in bad.items():
        with pytest.raises(PlanError) as error:
            regressed(**fields)
        assert told in str(error.value)
    assert len(tp.decisions()) == before
    assert regressed(primary="several", candidate="bf16").contract.candidate_id == "bf16"


def test_a_contract_file_brings_names_gates_and_whole_records(store: Store, tmp_path: Path) -> None:
    side = {"step_time_ms": 70.0, "peak_mem_mb": 7000.0, "throughput": 18.0, "quality": 0.98}
    record = {
        "workload_id": "b1-s512", "role": "adjacent", "status": "ok",
        "baseline": side, "candidate": {**side, "step_time_ms": 76.0},
        "baseline_stages_ms": {"backward": 35.0}, "candidate_stages_ms": {"backward": 31.0},
    }  # fmt: skip
    contract = {
        "baseline_id": "train-base-v1",
        "candidate_id": "bf16-v2",
        "original_bottleneck": "backward",
        "gates": {"max_adjacent_slowdown_ms": 6.0},
        "workloads": [record, {"role": "primary", "study": "main", "workload_id": "b2-s1024"}],
    }
    file = tmp_path / "contract.json"
    file.write_text(json.dumps(contract))
    made = CliRunner().invoke(cli, ["regress", "--contract", str(file), "--format", "json"])
    found = json.loads(made.stdout)
    assert made.exit_code == 0, made.output
    assert {"study_id", "policy", "best_candidate", "candidates"} <= set(found)
    assert (found["decision"], found["candidates"][0]["delta"]["step_time_ms"]) == ("accept", 20.0)
    assert found["contract"]["candidate_id"] == "bf16-v2"
    assert found["evidence"]["primary"]["workload_id"] == "b2-s1024"
    strict = ["--contract", str(file), "--threshold", "max_adjacent_slowdown_ms=5"]
    made = CliRunner().invoke(cli, ["regress", *strict])
    assert "adjacent b1-s512: loses 6.00 ms of time" in made.output
    assert "tune bf16-v2" in made.output
    record["baseline"] = {**side, "step_time_ms": "70"}
    file.write_text(json.dumps(contract))
    made = CliRunner().invoke(cli, ["regress", "--contract", str(file)])
    assert (made.exit_code, "step_time_ms is '70'" in made.output) == (2, True)


def test_the_command_shows_workloads_bottleneck_and_what_does_not_pass(store: Store) -> None:
    measured(store, "less", gain_ms=9.0, phases={"forward": 12.0, "backward": 31.0})
    words = ["regress", "--primary", "less", "--adjacent", "short;small", "--study", "all three"]
    made = CliRunner().invoke(cli, words)
    assert made.exit_code == 0, made.output
    for told in (
        "all three",
        "primary quick b2-s4 6c657373: gains 9.00 ms of time",
        "adjacent quick b2-s5 73686f72: gains 1.00 ms of time",
        "[seq_len 5]",
        "bottleneck: backward did not shrink (+1.00 ms)",
        "now backward takes the most time",
        "time gain 9.00 ms (at least 10 wanted)",
        "next: adjust_and_rerun_regression (adjust, and run the regression again)",
        "of time, memory unchanged, gains",
        "eval loss unchanged",
    ):
        assert told in " ".join(made.output.split())
    assert max(map(len, made.output.splitlines())) <= 100


def test_a_regression_is_no_study_and_says_which_it_gathers(store: Store) -> None:
    found = regressed(name="a regression")
    for refused in (
        lambda: tp.compare("a regression"),
        lambda: tp.report("a regression"),
        lambda: tp.runs(found.study_id),
        lambda: regressed(primary=found.study_id),
    ):
        with pytest.raises(PlanError, match=f"is a regression and no study.*{ids(found)[0]}"):
            refused()


def test_a_regression_is_shown_with_its_decision_and_its_studies(store: Store) -> None:
    found = regressed(name="shown again")
    shown = CliRunner().invoke(cli, ["show", "shown again"])
    assert shown.exit_code == 0, shown.output
    for told in (
        "primary quick b2-s4",
        "accept bf16, unconfirmed (benefit_and_guardrails_passed",
        "next: freeze_candidate_and_thresholds",
        "regression.json",
        *(f"trainperf show {study_id}" for study_id in ids(found)),
    ):
        assert told in shown.stdout
    as_json = CliRunner().invoke(cli, ["show", found.study_id[:8], "--format", "json"])
    assert json.loads(as_json.stdout)["decided"]["decision"]["decision"] == "accept"
    assert tuple(tp.show(found.study_id).studies) == tuple(ids(found))  # type: ignore[union-attr]


def ids(found: Regression) -> list[str]:
    return [str(workload.study_id) for workload in found.workloads]


# --- the evidence guard ------------------------------------------------------------------------


def in_pairs(
    low: float | None, high: float | None, role: str = "primary", **fields: Any
) -> RegressionWorkload:
    """A workload that gains 20 ms by its point values, measured in pairs."""
    side = {"step_time_ms": 50.0, "peak_mem_mb": 1.0, "throughput": 1.0, "quality": 1.0}
    record: dict[str, Any] = {
        "workload_id": role, "role": role, "status": "ok",
        "baseline": side, "candidate": {**side, "step_time_ms": 30.0},
        "baseline_stages_ms": SLOW, "candidate_stages_ms": FAST,
    }  # fmt: skip
    known: dict[str, Any] = {"paired": True, "bottleneck_trend": "shrank", **fields}
    return RegressionWorkload(
        workload_id=role, role=role, record=record, saved_ms_low=low, saved_ms_high=high, **known
    )


def guarded(*workloads: RegressionWorkload) -> tuple[str, str]:
    contract = RegressionContract(baseline_id="a", candidate_id="b", changed_variable="c")
    made = decide_regression("r", contract, workloads, "backward").decision
    return made.reason, made.confidence


def test_a_gain_that_the_pairs_contradict_passes_no_gate_and_is_told() -> None:
    said = "the plain means say 20 ms faster, the pairs measured side by side 18 % slower"
    fine = in_pairs(-3.0, 21.0, "adjacent")
    for low, high in ((None, None), (-9.0, -1.0), (10.0, 30.0)):
        against = in_pairs(low, high, contradicted=said)
        for workloads in (
            (against, fine),
            (in_pairs(10.0, 30.0), in_pairs(-3.0, 21.0, "adjacent", contradicted=said)),
        ):
            assert guarded(*workloads) == ("gain_not_confirmed", "unconfirmed")
            contract = RegressionContract(baseline_id="a", candidate_id="b", changed_variable="c")
            made = decide_regression("r", contract, workloads, "backward")
            assert said in made.decision.text
            assert said in regression_text(made)
            # Neither is a tune for another reason confirmed.
            tuned = decide_regression("r", contract, workloads, "forward").decision
            assert (tuned.decision, tuned.confidence) == ("tune", "unconfirmed")


def test_a_tune_of_workloads_without_intervals_is_not_confirmed() -> None:
    contract = RegressionContract(baseline_id="a", candidate_id="b", changed_variable="c")
    for low, confidence in ((None, "unconfirmed"), (20.0, "confirmed")):
        ends: tuple[Any, Any] = (low, low and 25.0)
        workloads = (in_pairs(*ends, bottleneck_trend="grew"), in_pairs(*ends, "adjacent"))
        made = decide_regression("r", contract, workloads, "forward").decision
        assert (made.decision, made.confidence) == ("tune", confidence)


def test_an_accept_stands_where_it_holds_at_the_worse_end_of_every_interval() -> None:
    sure = in_pairs(-3.0, 21.0, "adjacent")
    passed, unsure = "benefit_and_guardrails_passed", ("gain_not_confirmed", "unconfirmed")
    assert guarded(in_pairs(10.0, 30.0), sure) == (passed, "confirmed")
    assert guarded(in_pairs(9.9, 30.0), sure) == unsure
    assert guarded(in_pairs(None, None), sure) == unsure
    assert guarded(in_pairs(10.0, 30.0), in_pairs(-3.1, 21.0, "adjacent")) == unsure
    assert guarded(in_pairs(10.0, 30.0, bottleneck_trend="unclear"), sure) == unsure
    bare = in_pairs(None, None, paired=False, bottleneck_trend=None)
    assert guarded(bare, sure) == (passed, "unconfirmed")


def test_a_change_that_was_not_in_effect_is_never_accepted() -> None:
    idle = in_pairs(10.0, 30.0, effect_verified=False)
    found = guarded(idle, in_pairs(-3.0, 21.0, "adjacent"))
    assert found == ("change_without_effect", "unconfirmed")
