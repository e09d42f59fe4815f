"""What a close takes from other studies: the scope of activation memory, pressure, regressions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from closing_studies import add_regression, artifact_of, explain, record_closable
from recorded_studies import a_store, clean_surroundings

import trainperf_mlflow as tp
from trainperf_mlflow import api
from trainperf_mlflow.tracking import names
from trainperf_mlflow.tracking.store import Store

SGD = {"optimizer": "sgd", "momentum": 0.0, "seq_len": 256}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return a_store(tmp_path_factory.mktemp("linked"))


@pytest.fixture(autouse=True)
def surroundings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    clean_surroundings(monkeypatch, tmp_path)


@pytest.fixture(scope="module")
def study(store: Store) -> str:
    return record_closable(store, "full training", explained=False).study_id


@pytest.fixture(scope="module")
def scope(store: Store) -> str:
    return record_closable(store, "scope", repeats=3, explained=False, base=SGD).study_id


def verdict(store: Store, study: str, **links: str) -> dict[str, Any]:
    found = api.close(study, check=True, tracking_uri=store.tracking_uri, **links)
    scopes: dict[str, Any] = found.decision_scopes
    return scopes


def test_the_scope_is_accepted_within_itself_and_never_promoted(
    store: Store, study: str, scope: str
) -> None:
    alone = verdict(store, study)["full_training_adoption"]
    scopes = verdict(store, study, scope_study=scope)
    found = scopes["activation_memory_mechanism"]
    assert found["decision"] == "accept_for_activation_memory_scope"
    assert found["promotable_to_full_training"] is False
    assert (found["comparison_seq_len"], found["metrics"]["memory_saving_mb"]) == (256, 1000.0)
    assert found["evidence"]["path"].startswith(scope)
    assert "result_does_not_establish_adamw_full_training_adoption" in found["limitations"]
    assert scopes["full_training_adoption"] == alone
    assert (alone["decision"], alone["optimizer"], alone["seq_len"]) == ("tune", "AdamW", 128)


def test_a_ladder_that_fails_a_gate_is_to_be_tuned(store: Store, study: str) -> None:
    ladder = record_closable(
        store,
        "weak scope",
        repeats=3,
        explained=False,
        base=SGD,
        change={"checkpoint": {"peak_mem_mb": 9600.0}},
    )
    found = verdict(store, study, scope_study=ladder.study_id)["activation_memory_mechanism"]
    assert found["decision"] == "tune"
    assert found["reason"] == "checkpoint_failed_activation_scope_gates"


def test_a_ladder_may_be_a_report_of_its_own(store: Store, study: str, scope: str) -> None:
    from trainperf_mlflow.api.gathering import gathered

    with gathered(store, scope) as found:
        report = dict(found._scope(found.main))
    ladder = record_closable(store, "ladder", explained=False, base=SGD).study_id
    report["summary"] = {**report["summary"], "tested_seq_lens": [64, 128, 256]}
    store.client.log_text(ladder, json.dumps(report), names.SCOPE_FILE)
    judged = verdict(store, study, scope_study=ladder)["activation_memory_mechanism"]
    assert judged["tested_seq_lens"] == [64, 128, 256]
    assert judged["evidence"]["path"] == f"{ladder}/{names.SCOPE_FILE}"


@pytest.mark.parametrize(
    ("repeats", "base", "words"),
    [
        (1, {**SGD, "optimizer": "adamw"}, "config.optimizer is 'AdamW', not 'SGD'"),
        (
            1,
            {**SGD, "momentum": 0.9, "batch_size": 4},
            "config.batch_size is 4, not 2; config.optimizer_momentum is 0.9, not 0.0",
        ),
        (2, SGD, "at least 3 successful repeats"),
    ],
)
def test_what_is_no_scope_of_this_training_is_refused(
    store: Store, study: str, repeats: int, base: dict[str, Any], words: str
) -> None:
    other = record_closable(store, "no scope", repeats=repeats, explained=False, base=base)
    with pytest.raises(tp.EvidenceError, match="--scope-study") as caught:
        verdict(store, study, scope_study=other.study_id)
    assert words in str(caught.value)


def test_pressure_is_the_same_training_with_a_longer_sequence(store: Store, study: str) -> None:
    base = {"seq_len": 128, "optimizer": "sgd"}
    other = record_closable(store, "pressure", explained=False, base=base)
    with pytest.raises(tp.EvidenceError, match="--pressure-study") as caught:
        verdict(store, study, pressure_study=other.study_id)
    assert "config.optimizer is 'SGD', not 'AdamW'" in str(caught.value)
    assert "config.seq_len is 128, not 'more than 128'" in str(caught.value)


def test_a_study_is_no_link_of_itself(store: Store, study: str) -> None:
    with pytest.raises(tp.PlanError, match="--scope-study is the study itself"):
        verdict(store, study, scope_study=study)


def test_linked_evidence_is_held_and_the_lineage_shows_it(store: Store, scope: str) -> None:
    longer = record_closable(store, "longer", explained=False, base={"seq_len": 512})
    pressure = longer.study_id
    study = record_closable(store, "linked", explained=False).study_id
    regression = add_regression(store, study)
    api.close(
        study,
        "linked-v1",
        scope_study=scope,
        pressure_study=pressure,
        tracking_uri=store.tracking_uri,
    )
    handoff = tp.load_handoff(study, tracking_uri=store.tracking_uri)
    assert {"activation_memory_scope", "pressure_validation"} <= handoff.source_artifacts.keys()
    # A linked study stays open: to explain it breaks nothing.
    explain(store, longer)
    assert tp.load_handoff(study, tracking_uri=store.tracking_uri) == handoff

    for start in (study, scope, regression):
        found = tp.lineage(start, tracking_uri=store.tracking_uri)
        links = {(link.study_id, link.relation, link.on) for link in found.links}
        assert links >= {
            (study, "scope_study", scope),
            (study, "pressure_study", pressure),
            (study, "regressions", regression),
            (regression, "primary_study", study),
        }
        assert found.studies[0].study_id == start
    closed = next(s for s in found.studies if s.study_id == study)
    assert (closed.closed, closed.handoff) == ("linked-v1", names.HANDOFF_FILE)
    assert "linked -> scope_study -> scope" in str(found)

    held = json.loads(artifact_of(store, study, names.MANIFEST_FILE).read_text())["artifacts"]
    for part in ("activation_scope", "pressure", "regression"):
        artifact = next(item for item in held if item["part"] == part)
        file = artifact_of(store, artifact["run_id"], artifact["path"])
        data = file.read_bytes()
        file.write_bytes(data + b" ")
        with pytest.raises(tp.EvidenceError, match=artifact["path"]):
            tp.load_handoff(study, tracking_uri=store.tracking_uri)
        file.write_bytes(data)
