"""What identical code differs by: the numbers of a calibration, and studies that stand on it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from mlflow import MlflowClient
from paired_blocks import normal_ratios, pairs_from

import trainperf_mlflow as tp
from trainperf_mlflow.analysis.calibration import (
    between_processes,
    calibration_of,
    estimate_identical,
    margin_pct,
    smallest_detectable_pct,
    unfit,
)
from trainperf_mlflow.analysis.paired import BETWEEN_PROCESSES, MARGIN_PCT, spread_of
from trainperf_mlflow.api.measuring import _calibration
from trainperf_mlflow.cli import cli
from trainperf_mlflow.decisions.study import decide_study
from trainperf_mlflow.reporting.table import to_text
from trainperf_mlflow.results.comparison import Comparison
from trainperf_mlflow.results.estimates import PairedEstimate
from trainperf_mlflow.results.study import Calibration
from trainperf_mlflow.tracking.queries import load_study, load_variants
from trainperf_mlflow.tracking.store import read_store

pytestmark = pytest.mark.usefixtures("warm_servers")


def calibration(**changes: Any) -> Calibration:
    settings: dict[str, Any] = {
        "run_id": "0" * 32, "calibrated_at": 0.0, "workload": "w", "noise_floor_pct": 0.3,
        "between_process_pct": 0.2, "smallest_detectable_pct": 1.0, "pairs": 32,
        "process_pairs": 8,
    }  # fmt: skip
    return Calibration(**{**settings, **changes})


def identical(seed: int, **spread: float) -> tuple[PairedEstimate, Calibration]:
    pairs = pairs_from(normal_ratios(seed, process_pairs=8, **spread))
    time, between = estimate_identical(pairs, "cpu", data_workers=False)
    assert time is not None
    found = calibration_of(time, between, "run", 0.0, "w")
    assert found is not None
    return time, found


def test_a_calibration_narrows_the_margin_of_its_own_workload_only() -> None:
    assert margin_pct(None) == MARGIN_PCT
    assert margin_pct(calibration()) == 0.5  # never less
    assert margin_pct(calibration(noise_floor_pct=0.7)) == 0.7
    assert margin_pct(calibration(noise_floor_pct=3.0)) == MARGIN_PCT  # never more
    assert margin_pct(calibration(same_workload=False)) == MARGIN_PCT


def test_processes_that_differ_more_than_usual_widen_the_intervals_of_later_studies() -> None:
    assert between_processes(None) == BETWEEN_PROCESSES
    assert between_processes(calibration()) == BETWEEN_PROCESSES
    assert between_processes(calibration(between_process_pct=1.2)) == pytest.approx(0.012)


def test_the_spread_between_processes_is_an_upper_bound_in_four_of_five_cases() -> None:
    chance = np.random.default_rng(7)
    found = [
        spread_of(
            pairs_from(normal_ratios(chance, process_pairs=8, within=0.004, between=0.01)),
            "cpu",
            data_workers=False,
        )
        for _ in range(300)
    ]
    assert 0.72 < np.mean([value >= 0.01 for value in found]) < 0.88


def test_a_noisier_machine_has_a_higher_floor_and_finds_only_larger_changes() -> None:
    quiet, noisy = (identical(3, within=within)[1] for within in (0.002, 0.02))
    assert quiet.noise_floor_pct < 0.5 < noisy.noise_floor_pct
    assert quiet.smallest_detectable_pct < noisy.smallest_detectable_pct


def test_the_smallest_detectable_change_adds_margin_half_width_and_power() -> None:
    time, found = identical(5)
    # All of the half-width of 1 % comes from 12 pairs, as many as a study of the default size has.
    time = time.model_copy(update={"low_pct": -1.0, "high_pct": 1.0, "pairs": 12})
    found = found.model_copy(update={"between_process_pct": 0.0, "noise_floor_pct": 1.0})
    half = np.hypot(1.0, 1.96 * 0.5 / np.sqrt(3))
    expected = 1.0 + half * (1 + 1.2816 / 1.96)
    assert smallest_detectable_pct(time, found) == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"direction": "slower", "estimate_pct": -4.0}, "identical code was measured as slower"),
        ({"stalls": "some steps stall"}, "some steps stall"),
    ],
)
def test_a_machine_that_calls_identical_code_different_is_unfit(
    changes: dict[str, Any], told: str
) -> None:
    time, found = identical(3)
    assert unfit(time, found) is None
    assert (unfit(time.model_copy(update=changes), found) or "").startswith(told)
    assert unfit(time, found.model_copy(update={"noise_floor_pct": 6.0})) is not None
    assert unfit(None, None) is not None


# --- once for real -----------------------------------------------------------------------------

TASK = """
def make_task(config):
    def step():
        return sum(range(config["n"]))
    return step
"""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("calibration")
    (folder / "counting.py").write_text(TASK)
    return folder


def plan(**changes: Any) -> dict[str, Any]:
    fast = {"warmup": 1, "iters": 10, "blocks": 4, "repeats": 1}
    return {"task": "counting:make_task", "baseline": {"n": 9000}, **fast, **changes}


@pytest.fixture(scope="module")
def calibrated(store: Path) -> Comparison:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(store)
        patch.setenv("OMP_NUM_THREADS", "1")
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        return tp.calibrate(plan(repeats=3))


def test_a_calibration_measures_the_baseline_against_itself(calibrated: Comparison) -> None:
    (twin,) = calibrated.candidates
    assert calibrated.baseline is not None
    assert (twin.variant, twin.pairs) == ("baseline again", 3)
    assert twin.changed_variable is None
    assert calibrated.decision.decision == "measure"
    found = calibrated.calibration
    assert found is not None
    assert (found.run_id, found.process_pairs) == (calibrated.study_id, 3)
    assert found.noise_floor_pct > 0
    assert calibrated.noise is not None


def test_mlflow_holds_a_calibrations_numbers_under_a_kind_of_its_own(
    calibrated: Comparison, store: Path
) -> None:
    run = MlflowClient(f"sqlite:///{store}/mlflow.db").get_run(calibrated.study_id)
    found = calibrated.calibration
    assert found is not None
    assert run.data.tags["trainperf.kind"] == "calibration"
    assert len(run.data.tags["trainperf.machine_digest"]) == 64
    assert run.data.metrics == {
        "noise_floor_pct": found.noise_floor_pct,
        "between_process_pct": found.between_process_pct,
        "smallest_detectable_pct": found.smallest_detectable_pct,
    }


def test_a_calibration_is_listed_and_found_by_its_name_or_the_beginning_of_its_id(
    calibrated: Comparison, store: Path
) -> None:
    uri = f"sqlite:///{store}/mlflow.db"
    rows = tp.decisions(tracking_uri=uri)
    (row,) = rows[rows["kind"] == "calibration"].to_dict("records")
    assert (row["study_id"], row["decision"]) == (calibrated.study_id, "measure")
    for command, ref in (("show", row["study"]), ("runs", calibrated.study_id[:8])):
        done = CliRunner().invoke(cli, [command, ref, "--tracking-uri", uri])
        assert (done.exit_code, "baseline again" in done.stdout) == (0, True), done.output


def test_a_later_study_cites_the_calibration_and_takes_its_margin_from_it(
    calibrated: Comparison, store: Path
) -> None:
    uri, told = f"sqlite:///{store}/mlflow.db", list[str]()
    opened = read_store(uri)
    # Whatever this machine is like while the test runs: it was fit.
    opened.client.set_tag(calibrated.study_id, "trainperf.reason", "calibrated")
    study = load_study(opened, calibrated.study_id).model_copy(update={"kind": "study"})
    cited = _calibration(opened, study, told.append)
    assert cited is not None
    assert (cited.run_id, cited.same_workload) == (calibrated.study_id, True)
    # Another baseline on the same device: the machine is known, its workload is not.
    near = _calibration(opened, study.model_copy(update={"baseline_digest": "x"}), told.append)
    assert near == cited.model_copy(update={"same_workload": False})
    elsewhere = study.model_copy(update={"machine_digest": "another"})
    assert _calibration(opened, elsewhere, told.append) is None
    assert told == []

    study = study.model_copy(update={"calibration": cited})
    comparison = decide_study(study, load_variants(opened, calibrated.study_id))
    time = comparison.candidates[0].time
    assert time is not None
    assert time.margin_pct == margin_pct(cited)
    assert f"(run {calibrated.study_id[:8]})" in " ".join(to_text(comparison).split())


def test_a_candidate_that_changes_nothing_is_no_plan_of_a_study() -> None:
    with pytest.raises(tp.PlanError, match="does not differ from the baseline"):
        tp.measure(plan(candidates=["same:n=9000"]))
