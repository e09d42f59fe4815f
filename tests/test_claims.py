"""Claims on a study: of all who close it at once one goes on, and none is left behind."""

from __future__ import annotations

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest
from recorded_studies import a_store

from trainperf_mlflow.errors import StoreError
from trainperf_mlflow.tracking import claims, names
from trainperf_mlflow.tracking.claims import claims_on
from trainperf_mlflow.tracking.closing import StudyRuns, study_runs
from trainperf_mlflow.tracking.store import Store


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return a_store(tmp_path_factory.mktemp("claims"))


@pytest.fixture
def study(store: Store) -> StudyRuns:
    run = store.client.create_run(store.experiment_id, run_name="open")
    return study_runs(store, str(run.info.run_id))


def claims_now(study: StudyRuns) -> tuple[str, ...]:
    return claims_on(study.store.client.get_run(study.study_id).data.tags)


@pytest.mark.parametrize(("later_by", "stays"), [(60.0, True), (-60.0, False)])
def test_of_two_that_see_each_other_the_later_withdraws_and_the_earlier_waits_for_it(
    monkeypatch: pytest.MonkeyPatch, study: StudyRuns, later_by: float, stays: bool
) -> None:
    rival = f"{names.CLAIM_PREFIX}rival"
    client, write = study.store.client, claims.Claim.write
    polls: list[set[str]] = []

    def write_both(mine: claims.Claim) -> None:
        if not polls:
            told = {"host": "elsewhere", "pid": 1, "at": time.time() + later_by}
            client.set_tag(study.study_id, rival, json.dumps(told))
        write(mine)

    def sleep(seconds: float) -> None:
        polls.append(set(claims_now(study)))
        if len(polls) == 3:
            client.delete_tag(study.study_id, rival)

    monkeypatch.setattr(claims.Claim, "write", write_both)
    monkeypatch.setattr(claims, "time", SimpleNamespace(time=time.time, sleep=sleep))
    held = claims.claim(study)
    assert [rival in found for found in polls] == [True] * 3
    assert [len(found) == 2 for found in polls] == [stays] * 3
    assert claims_now(study) == (held.key,)


def test_of_many_at_once_each_has_its_turn_and_none_gives_up(
    monkeypatch: pytest.MonkeyPatch, study: StudyRuns
) -> None:
    monkeypatch.setattr(claims, "_WAIT_S", 0.01)
    monkeypatch.setattr(claims, "_POLLS", 3000)
    together = threading.Barrier(3, timeout=60)
    inside: list[int] = []

    def hold(number: int) -> int:
        together.wait()
        held = claims.claim(study)
        inside.append(number)
        time.sleep(0.02)
        found = len(inside)
        inside.remove(number)
        held.release()
        return found

    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(hold, range(3))) == [1, 1, 1]
    assert claims_now(study) == ()


@pytest.mark.parametrize("failure", [KeyboardInterrupt(), RuntimeError("the store is gone")])
@pytest.mark.parametrize(("call", "number"), [("set_tag", 1), ("get_run", 2)])
def test_a_claim_that_is_cut_short_once_it_is_written_is_withdrawn(
    monkeypatch: pytest.MonkeyPatch,
    study: StudyRuns,
    failure: BaseException,
    call: str,
    number: int,
) -> None:
    client = type(study.store.client)
    real, calls = getattr(client, call), list[Any]()

    def cut_short(self: Any, *given: Any) -> Any:
        calls.append(given)
        found = real(self, *given)
        if len(calls) == number:
            raise failure
        return found

    with monkeypatch.context() as patched:
        patched.setattr(client, call, cut_short)
        with pytest.raises((KeyboardInterrupt, StoreError)):
            claims.claim(study)
    assert len(calls) == number
    assert claims_now(study) == ()
