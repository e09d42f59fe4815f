"""Links that open MLflow's UI at the right page of the right store."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from recorded_studies import a_store, clean_surroundings, record

from trainperf_mlflow.tracking.links import study_links, ui_command
from trainperf_mlflow.tracking.store import Store


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    clean_surroundings(monkeypatch, tmp_path)
    return a_store(tmp_path)


def query_of(link: str) -> dict[str, list[str]]:
    return parse_qs(urlsplit(link).fragment.partition("?")[2])


def test_a_file_store_is_shown_by_a_command_and_links_to_it(store: Store, tmp_path: Path) -> None:
    recorder = record(store)
    links = study_links(store, recorder.study_id)
    assert links["command"] == (
        f"mlflow ui --backend-store-uri sqlite:///{tmp_path}/mlflow.db --port 5000"
    )
    assert links["study"] == (
        f"http://localhost:5000/#/experiments/{store.experiment_id}/runs/{recorder.study_id}"
        "?workflowType=machine_learning"
    )
    assert all(
        query_of(link)["workflowType"] == ["machine_learning"]
        for name, link in links.items()
        if name != "command"
    )


def test_the_compare_page_shows_the_variants_and_the_curves_their_repeats(store: Store) -> None:
    recorder = record(store)
    links = study_links(store, recorder.study_id)
    compared = json.loads(query_of(links["compare"])["runs"][0])
    assert compared == [recorder.variant_runs["baseline"], recorder.variant_runs["bf16"]]
    curves = query_of(links["curves"])
    assert len(json.loads(curves["runs"][0])) == 4
    assert json.loads(curves["plot_metric_keys"][0]) == ["steps/step_time_ms"]


def test_a_servers_links_are_its_own_and_without_its_password(store: Store) -> None:
    recorder = record(store)
    server = replace(store, tracking_uri="https://me:hidden@mlflow.example/base/")
    links = study_links(server, recorder.study_id)
    assert "command" not in links
    assert links["study"].startswith("https://mlflow.example/base/#/experiments/")
    assert "hidden" not in str(links)


def test_the_command_for_a_database_does_not_show_its_password(store: Store) -> None:
    database = replace(store, tracking_uri="postgresql://me:hidden@host/db")
    assert ui_command(database) == (
        'mlflow ui --backend-store-uri "$MLFLOW_TRACKING_URI" --port 5000'
    )
