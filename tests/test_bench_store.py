"""The store's benchmark works, and a study is decided by as many calls however large it is."""

from __future__ import annotations

import re
import runpy
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from command import REPOSITORY
from mlflow import MlflowClient
from recorded_studies import a_repeat, a_store, a_study, clean_surroundings

from trainperf_mlflow import api
from trainperf_mlflow.api import reading
from trainperf_mlflow.decisions.study import decide_study
from trainperf_mlflow.tracking import queries
from trainperf_mlflow.tracking.queries import DECIDED_KINDS
from trainperf_mlflow.tracking.recorder import Recorder
from trainperf_mlflow.tracking.store import Store


def test_the_short_benchmark_prints_each_question_beside_the_plain_calls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clean_surroundings(monkeypatch, tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "")  # and what the script sets ends with the test
    # In this process: importing MLflow anew would take longer than the questions.
    script = runpy.run_path(str(REPOSITORY / "scripts" / "bench_store.py"))
    script["main"](["--short"])
    printed = capsys.readouterr().out
    for title, calls in (
        (r"tp\.decisions\(\)", f"{len(DECIDED_KINDS)} search_runs"),
        (r"  mlflow\.search_runs\(studies\)", "1 search_runs"),
        (r"read and decide on 3 repeats", "1 search_runs"),
        (r"  mlflow\.get_run, one by one", "9 get_run"),
        (r"tp\.compare\(\).*report", "search_runs"),
    ):
        assert re.search(rf"^{title} +[\d.]+ +[\d.]+  .*{calls}", printed, re.MULTILINE)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each method of MLflow's client was called."""
    counts: Counter[str] = Counter()

    def counting(name: str) -> Any:
        original = getattr(MlflowClient, name)

        def call(*arguments: Any, **named: Any) -> Any:
            counts[name] += 1
            return original(*arguments, **named)

        return call

    for name in dir(MlflowClient):
        if not name.startswith("_") and callable(getattr(MlflowClient, name)):
            monkeypatch.setattr(MlflowClient, name, counting(name))
    return counts


def decided(store: Store, repeats: int) -> str:
    recorder = Recorder.start(store, a_study(f"{repeats} repeats"))
    for index in range(repeats):
        for variant, step_ms in (("baseline", 50.0), ("bf16", 40.0)):
            recorder.record_repeat(a_repeat(recorder.study_id, variant, index, step_ms))
    assert recorder.finish_study(decide_study(recorder.study, recorder.values()), "note")
    return recorder.study_id


def test_a_study_is_decided_by_one_query_and_no_call_for_a_repeat(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, calls: Counter[str]
) -> None:
    clean_surroundings(monkeypatch, tmp_path)
    store = a_store(tmp_path)
    # Drawn and written once a study, and slow.
    monkeypatch.setattr(reading, "compared_pictures", lambda *_: {})
    monkeypatch.setattr(reading, "attach_report", lambda *_: None)
    few, many = decided(store, 1), decided(store, 4)
    seen = []
    for study_id in (few, many):
        calls.clear()
        study = queries.load_study(store, study_id)
        comparison = decide_study(study, queries.load_variants(store, study_id, study))
        assert comparison.candidates[0].pairs == len(comparison.baseline.repeats)  # type: ignore[union-attr]
        assert calls["search_runs"] == 1
        read = Counter(calls)
        calls.clear()
        api.compare(study_id, tracking_uri=store.tracking_uri)
        seen.append((read, Counter(calls)))
    assert seen[0] == seen[1]
