"""Saved views and colours: for whoever opens MLflow, and never in the way of a study."""

from __future__ import annotations

import base64
import json
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from recorded_studies import a_comparison, a_store, a_study, clean_surroundings, record

from trainperf_mlflow.reporting.pictures.style import looks
from trainperf_mlflow.results.study import Variant
from trainperf_mlflow.tracking import colours
from trainperf_mlflow.tracking.gathering import create_gathering_run, finish_gathering_run
from trainperf_mlflow.tracking.links import study_links
from trainperf_mlflow.tracking.queries import DECIDED_KINDS
from trainperf_mlflow.tracking.recorder import Recorder
from trainperf_mlflow.tracking.store import Store
from trainperf_mlflow.tracking.views import VIEWS, share_views

PREFIX = "mlflow.sharedViewState."


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    clean_surroundings(monkeypatch, tmp_path)
    return a_store(tmp_path)


def experiment_tags(store: Store) -> dict[str, str]:
    return dict(store.client.get_experiment(store.experiment_id).tags)


def state_of(tag: str) -> dict[str, Any]:
    packed = json.loads(tag)["state"].removeprefix("deflate;")
    found: dict[str, Any] = json.loads(zlib.decompress(base64.b64decode(packed)))
    return found


def test_the_first_study_leaves_views_and_a_description_with_the_experiment(store: Store) -> None:
    recorder = record(store)
    tags = experiment_tags(store)
    shown = [tags[PREFIX + view.key] for view in VIEWS]
    assert [json.loads(tag)["name"] for tag in shown] == [
        "Studies and decisions",
        "Variants of a study",
        "Step curves",
        "Regressions, scopes and calibrations",
    ]
    # The first of them is the newest, and stands first in MLflow's menu.
    assert [json.loads(tag)["updatedAt"] for tag in shown] == sorted(
        (json.loads(tag)["updatedAt"] for tag in shown), reverse=True
    )
    studies = state_of(shown[0])
    assert studies["searchFilter"] == "tags.`trainperf.kind` = 'study'"
    assert "metrics.`speedup`" in studies["selectedColumns"]
    assert "Studies and decisions" in tags["mlflow.note.content"]
    assert all(len(tag) < 20_000 for tag in tags.values())  # what MLflow keeps
    assert (
        "viewStateShareKey=trainperf-studies" in study_links(store, recorder.study_id)["experiment"]
    )


def test_each_view_finds_the_runs_that_it_names(store: Store) -> None:
    recorder = record(store)
    decision = a_comparison(recorder.study, recorder.values()).decision
    others = [kind for kind in DECIDED_KINDS if kind != "study"]
    for kind in others:
        run_id = create_gathering_run(store, kind, kind, {})
        finish_gathering_run(store, run_id, {}, decision, "note", {}, {})
        assert f"{kind}s" in VIEWS[-1].title.lower()
    tags = experiment_tags(store)
    found = [
        len(store.client.search_runs([store.experiment_id], state_of(tags[key])["searchFilter"]))
        for key in (PREFIX + view.key for view in VIEWS)
    ]
    # Study; baseline and candidate; two repeats of each; what else was decided.
    assert found == [1, 2, 4, len(others)]


def test_views_and_descriptions_that_readers_changed_stay_theirs(store: Store) -> None:
    share_views(store)
    mine = {PREFIX + VIEWS[0].key: "mine", "mlflow.note.content": "mine"}
    for key, value in mine.items():
        store.client.set_experiment_tag(store.experiment_id, key, value)
    share_views(store)
    assert mine.items() <= experiment_tags(store).items()
    # Nor does a newer version of the views overwrite a description.
    store.client.set_experiment_tag(store.experiment_id, "trainperf.views", "0")
    share_views(store)
    assert experiment_tags(store)["mlflow.note.content"] == "mine"


def test_a_store_that_takes_no_views_still_records_the_study(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: Any) -> None:
        raise PermissionError("experiments are read-only here")

    monkeypatch.setattr(type(store.client), "set_experiment_tag", refused)
    recorder = record(store)
    assert recorder.complete
    # Without the view, its link would end in an error box.
    assert "viewStateShareKey" not in str(study_links(store, recorder.study_id))


def test_an_interrupt_is_no_trouble_of_a_view_and_is_not_swallowed(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    from trainperf_mlflow.errors import Interrupted

    def interrupted(*_: Any) -> None:
        raise Interrupted(15, "interrupted")

    monkeypatch.setattr(type(store.client), "get_experiment", interrupted)
    with pytest.raises(Interrupted):
        share_views(replace(store))


def test_runs_are_coloured_by_decision_and_by_role_as_the_pictures_are(store: Store) -> None:
    accepted, rejected = record(store), record(store, "another", decision="reject")

    def colour(run_id: str) -> str:
        return str(store.client.get_run(run_id).data.tags["mlflow.runColor"])

    assert colour(accepted.study_id) != colour(rejected.study_id)
    variants = accepted.study.variants
    assert {name: look.color for name, look in looks(variants).items()} == {
        name: colour(run) for name, run in accepted.variant_runs.items()
    }
    repeats = store.client.search_runs(
        [store.experiment_id],
        f"tags.`trainperf.kind` = 'repeat' AND tags.`trainperf.study_id` = '{accepted.study_id}'",
    )
    assert {run.data.tags["mlflow.runColor"] for run in repeats} == {
        colour(run) for run in accepted.variant_runs.values()
    }


def test_a_dozen_candidates_keep_the_colours_of_the_pictures() -> None:
    study = a_study(
        variants=tuple(
            Variant(name=f"v{index}", role="candidate" if index else "baseline", config={})
            for index in range(12)
        )
    )
    assert {name: look.color for name, look in looks(study.variants).items()} == {
        variant.name: colours.of_variant(study, variant.name) for variant in study.variants
    }


def test_descendants_bear_the_studys_name_so_that_a_table_of_all_can_be_read(store: Store) -> None:
    recorder = Recorder.start(store, a_study("<b>x</b>" + "y" * 300))
    run = store.client.get_run(recorder.variant_runs["baseline"])
    assert run.data.tags["trainperf.study"] == "<b>x</b>" + "y" * 300
    recorder.kill()
