"""Acceptance over a primary and adjacent workloads, with the checks of course project 74."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import trainperf_mlflow as tp
from trainperf_mlflow.decisions.regression import (
    GATES,
    RegressionContract,
    RegressionEvidence,
    regression_evidence,
    regression_shortfalls,
)

CONTRACT = {
    "baseline_id": "train-base-v1",
    "candidate_id": "checkpoint-v2",
    "changed_variable": "activation_strategy",
}


def side(time: Any, memory: Any, rate: Any, quality: Any) -> dict[str, Any]:
    return {"step_time_ms": time, "peak_mem_mb": memory, "throughput": rate, "quality": quality}


def stages(forward: Any, backward: Any, update: Any) -> dict[str, Any]:
    return {"forward": forward, "backward": backward, "update": update}


def primary(**changes: Any) -> dict[str, Any]:
    return {
        "workload_id": "b2-s1024",
        "role": "primary",
        "status": "ok",
        "baseline": side(120.0, 11000.0, 16.0, 1.00),
        "candidate": side(105.0, 8200.0, 15.0, 1.01),
        "baseline_stages_ms": stages(30.0, 65.0, 25.0),
        "candidate_stages_ms": stages(34.0, 45.0, 26.0),
        **changes,
    }


def adjacent(name: str = "b1-s512", **changes: Any) -> dict[str, Any]:
    return {
        "workload_id": name,
        "role": "adjacent",
        "status": "ok",
        "baseline": side(70.0, 7000.0, 18.0, 0.98),
        "candidate": side(68.0, 5600.0, 17.8, 0.99),
        "baseline_stages_ms": stages(20.0, 35.0, 15.0),
        "candidate_stages_ms": stages(22.0, 31.0, 15.0),
        **changes,
    }


def adopted(*records: dict[str, Any], bottleneck: str = "backward", **gates: Any) -> dict:
    evidence = tp.build_regression_evidence(records, bottleneck)
    return tp.decide_regression_adoption(evidence, {**GATES, **gates})


def shortfalls(*records: dict[str, Any], bottleneck: str = "backward") -> list[str]:
    return [item.code for item in regression_shortfalls(regression_evidence(records, bottleneck))]


# --- the contract ------------------------------------------------------------------------------


def test_a_sound_contract_names_its_primary_workload() -> None:
    assert tp.validate_regression_contract(CONTRACT, [primary(), adjacent()]) == {
        "is_valid": True,
        "issues": [],
        "primary_workload": "b2-s1024",
    }


@pytest.mark.parametrize("key", list(CONTRACT))
@pytest.mark.parametrize("wrong", ["", "  ", None, 7])
def test_a_contract_without_an_identity_is_refused(key, wrong) -> None:
    checked = tp.validate_regression_contract({**CONTRACT, key: wrong}, [primary(), adjacent()])
    assert checked["issues"] == [f"{key}_missing"]
    assert checked["is_valid"] is False


@pytest.mark.parametrize(
    ("records", "issues"),
    [
        ([adjacent()], ["primary_workload_count_invalid"]),
        (
            [primary(), primary(workload_id="b"), adjacent()],
            ["primary_workload_count_invalid"],
        ),
        ([primary(), adjacent(), adjacent()], ["duplicate_workload_id"]),
        ([primary(), adjacent("b2-s1024")], ["duplicate_workload_id"]),
        ([primary()], ["adjacent_workload_missing"]),
        ([primary(), adjacent(workload_id=None)], ["workload_id_missing"]),
        ([primary(), adjacent(workload_id=["a"])], ["workload_id_missing"]),
        ([primary(), adjacent(), adjacent("c", role="near")], ["workload_role_unknown"]),
        ([], ["primary_workload_count_invalid", "adjacent_workload_missing"]),
    ],
)
def test_workloads_that_make_no_regression_are_told_by_code(records, issues) -> None:
    checked = tp.validate_regression_contract(CONTRACT, records)
    assert checked["issues"] == issues
    assert checked["is_valid"] is False


def test_a_candidate_is_not_accepted_against_itself() -> None:
    same = {**CONTRACT, "candidate_id": CONTRACT["baseline_id"]}
    checked = tp.validate_regression_contract(same, [primary(), adjacent()])
    assert checked["issues"] == ["baseline_is_candidate"]


def test_all_problems_of_a_contract_are_told_in_the_sources_order() -> None:
    checked = tp.validate_regression_contract({}, [adjacent(), adjacent()])
    assert checked["issues"] == [
        "baseline_id_missing",
        "candidate_id_missing",
        "changed_variable_missing",
        "primary_workload_count_invalid",
        "duplicate_workload_id",
    ]
    assert checked["primary_workload"] is None


# --- the evidence ------------------------------------------------------------------------------


def test_the_evidence_has_gains_the_old_bottleneck_and_the_new_one() -> None:
    made = tp.build_regression_evidence([primary(), adjacent()], "backward")
    assert made["primary"] == {
        "workload_id": "b2-s1024",
        "role": "primary",
        "time_gain_ms": 15.0,
        "memory_gain_mb": 2800.0,
        "throughput_gain": -1.0,
        "quality_delta": 0.01,
        "original_bottleneck_delta_ms": 20.0,
        "candidate_bottleneck": "backward",
    }
    assert [row["workload_id"] for row in made["adjacent"]] == ["b1-s512"]
    assert made["original_bottleneck_reduced"] is True
    assert (made["original_bottleneck"], made["candidate_bottleneck"]) == ("backward", "backward")
    assert made["hard_failures"] == []


def test_a_bottleneck_that_moved_is_named() -> None:
    made = tp.build_regression_evidence(
        [primary(candidate_stages_ms=stages(60.0, 20.0, 25.0)), adjacent()], "backward"
    )
    assert made["candidate_bottleneck"] == "forward"


def test_only_the_primary_workload_says_whether_the_bottleneck_shrank() -> None:
    grown = primary(candidate_stages_ms=stages(10.0, 65.0, 26.0))
    made = tp.build_regression_evidence([grown, adjacent()], "backward")
    assert made["original_bottleneck_reduced"] is False  # equal is not less


def test_update_is_another_name_of_our_optimizer_phase() -> None:
    ours = {"forward": 34.0, "backward": 45.0, "optimizer": 20.0}
    made = tp.build_regression_evidence([primary(candidate_stages_ms=ours)], "optimizer")
    assert made["primary"]["original_bottleneck_delta_ms"] == 5.0


def test_memory_is_a_bottleneck_that_shrinks_with_the_peak() -> None:
    evidence = regression_evidence([primary()], "memory")
    assert evidence.original_bottleneck_reduced
    assert adopted(primary(), adjacent(), bottleneck="memory")["decision"] == "accept"
    same = primary(candidate=side(105.0, 11000.0, 15.0, 1.0))
    assert shortfalls(same, bottleneck="memory") == ["bottleneck_not_reduced"]


def test_a_failed_workload_is_kept_by_its_name_and_gives_no_numbers() -> None:
    made = tp.build_regression_evidence([primary(), {**adjacent(), "status": "oom"}], "backward")
    assert made["hard_failures"] == ["b1-s512"]
    assert made["adjacent"] == []
    gone = tp.build_regression_evidence([{"workload_id": "b2-s1024", "role": "primary"}], "forward")
    assert gone["hard_failures"] == ["b2-s1024"]
    assert gone["primary"] is None


@pytest.mark.parametrize("wrong", [math.nan, math.inf, True, "105"])
def test_regression_evidence_with_a_wrong_number_is_refused_with_its_path(wrong) -> None:
    for key, place in (("step_time_ms", 0), ("peak_mem_mb", 1), ("throughput", 2), ("quality", 3)):
        values = [105.0, 8200.0, 15.0, 1.0]
        values[place] = wrong
        with pytest.raises(ValueError, match=f"'b2-s1024': candidate: {key} is .*finite number"):
            tp.build_regression_evidence([primary(candidate=side(*values))], "backward")
    with pytest.raises(ValueError, match=r"candidate_stages_ms: update is .*finite number"):
        tp.build_regression_evidence(
            [primary(candidate_stages_ms=stages(1.0, 2.0, wrong))], "backward"
        )


def test_regression_evidence_with_a_missing_field_is_refused_with_its_path() -> None:
    with pytest.raises(ValueError, match="'b2-s1024': baseline: quality is missing"):
        tp.build_regression_evidence(
            [primary(baseline={"step_time_ms": 1.0, "peak_mem_mb": 1.0, "throughput": 1.0})],
            "backward",
        )
    with pytest.raises(ValueError, match="candidate_stages_ms has no phase 'data'"):
        tp.build_regression_evidence(
            [primary(baseline_stages_ms={**stages(1, 2, 3), "data": 1.0})], "data"
        )
    short = {key: value for key, value in primary().items() if key != "candidate"}
    with pytest.raises(ValueError, match="'b2-s1024': candidate is missing"):
        tp.build_regression_evidence([short], "backward")
    with pytest.raises(ValueError, match="role is 'near'; give primary or adjacent"):
        tp.build_regression_evidence([primary(role="near")], "backward")
    with pytest.raises(ValueError, match="workload 0: workload_id is None"):
        tp.build_regression_evidence([primary(workload_id=None)], "backward")


def test_contract_and_evidence_survive_json() -> None:
    contract = RegressionContract(**CONTRACT)
    assert RegressionContract.from_json(contract.to_json()) == contract
    evidence = regression_evidence([primary(), adjacent()], "backward")
    assert RegressionEvidence.from_json(evidence.to_json()) == evidence


# --- the decision ------------------------------------------------------------------------------


def test_the_sources_three_states_are_decided_with_rollback_and_next_action() -> None:
    assert adopted(primary(), adjacent()) == {
        "decision": "accept",
        "reason": "benefit_and_guardrails_passed",
        "rollback": False,
        "next_action": "freeze_candidate_and_thresholds",
    }
    slower = adjacent(candidate=side(76.0, 5600.0, 17.8, 0.99))
    assert adopted(primary(), slower) == {
        "decision": "tune",
        "reason": "benefit_or_bottleneck_evidence_incomplete",
        "rollback": False,
        "next_action": "adjust_and_rerun_regression",
    }
    assert adopted(primary(status="failed")) == {
        "decision": "reject",
        "reason": "hard_failure_or_primary_missing",
        "rollback": True,
        "next_action": "restore_baseline",
    }


def test_without_a_primary_workload_there_is_nothing_to_accept() -> None:
    assert adopted(adjacent())["reason"] == "hard_failure_or_primary_missing"


def test_each_regression_gate_passes_exactly_at_its_value() -> None:
    # In binary, 1.02 - 1.00 is a little more than 0.02 and 120.1 - 110.1 a little less than 10.
    at_gates = (
        primary(
            baseline=side(120.1, 1.0, 1.0, 1.00),
            candidate=side(110.1, 1.0, 1.0, 1.02),
            candidate_stages_ms=stages(30.0, 64.999, 25.0),
        ),
        adjacent(candidate=side(73.0, 1.0, 1.0, 1.00)),
    )
    assert adopted(*at_gates)["decision"] == "accept"
    assert adopted(*at_gates, min_primary_time_gain_ms=10.001)["decision"] == "tune"
    assert adopted(*at_gates, max_adjacent_slowdown_ms=2.999)["decision"] == "tune"
    assert adopted(*at_gates, max_quality_delta=0.0199)["reason"] == "quality_guardrail_failed"


def test_quality_is_signed_and_read_on_every_workload() -> None:
    better = adjacent(candidate=side(68.0, 1.0, 1.0, 0.1))
    assert adopted(primary(), better)["decision"] == "accept"
    worse = adjacent(candidate=side(68.0, 1.0, 1.0, 1.01))
    assert adopted(primary(), worse)["reason"] == "quality_guardrail_failed"


def test_missing_phases_or_quality_are_a_reason_to_tune_and_never_to_accept() -> None:
    unknown = {"baseline_stages_ms": None, "candidate_stages_ms": None}
    assert adopted(primary(**unknown), adjacent(**unknown))["decision"] == "tune"
    assert shortfalls(primary(**unknown), adjacent()) == ["bottleneck_not_reduced"]
    unchecked = adjacent(candidate=side(68.0, 1.0, 1.0, None))
    assert adopted(primary(), unchecked)["decision"] == "tune"
    assert shortfalls(primary(), unchecked) == ["quality_not_measured"]


def test_a_single_point_gain_is_told_apart_from_a_missing_gain() -> None:
    slower = adjacent(candidate=side(76.0, 5600.0, 17.8, 0.99))
    assert shortfalls(primary(), slower) == ["adjacent_slower", "single_point_gain"]
    no_gain = primary(candidate=side(119.0, 8200.0, 15.0, 1.01))
    assert shortfalls(no_gain, slower) == ["primary_gain_too_small", "adjacent_slower"]
    assert shortfalls(primary(), adjacent()) == []
    assert shortfalls(primary(status="oom"), adjacent()) == ["workload_failed", "primary_missing"]
    (told,) = regression_shortfalls(regression_evidence([no_gain, adjacent()], "backward"))
    assert told.text == "b2-s1024: time gain 1.00 ms (at least 10 wanted)"


GAIN = st.floats(-100, 100).map(lambda value: round(value, 3))


@given(GAIN, GAIN, st.floats(0.0201, 5), st.booleans(), st.integers(0, 1))
@settings(max_examples=50, deadline=None)
def test_failures_and_quality_beat_any_gain(gain, adjacent_gain, worse, fails, where) -> None:
    records = [
        primary(candidate=side(120.0 - gain, 1.0, 1.0, 1.0)),
        adjacent(candidate=side(70.0 - adjacent_gain + 100, 1.0, 1.0, 0.98)),
    ]
    if fails:
        records[where]["status"] = "failed"
    else:
        records[where]["candidate"]["quality"] += worse
    made = adopted(*records)
    assert (made["decision"], made["rollback"]) == ("reject", True)


@given(st.lists(GAIN, min_size=1, max_size=4), GAIN, st.randoms(use_true_random=False))
@settings(max_examples=40, deadline=None)
def test_the_order_of_workloads_does_not_matter(gains, gain, random) -> None:
    records = [primary(candidate=side(120.0 - gain, 1.0, 1.0, 1.0))] + [
        adjacent(f"near {place}", candidate=side(200.0 - more, 1.0, 1.0, 0.98))
        for place, more in enumerate(gains)
    ]
    shuffled = random.sample(records, len(records))
    assert adopted(*records) == adopted(*shuffled)


@given(GAIN, GAIN, GAIN, st.floats(-0.1, 0.1), *[st.floats(0, 50)] * 3, st.floats(0, 0.1))
@settings(max_examples=60, deadline=None)
def test_a_better_candidate_is_never_adopted_less(
    gain, near, phase, quality, more_gain, more_near, more_phase, less_loss
) -> None:
    rank = {"reject": 0, "tune": 1, "accept": 2}

    def made(gain, near, phase, quality):
        return adopted(
            primary(
                candidate=side(220.0 - gain - 100, 1.0, 1.0, 1.0 + quality),
                candidate_stages_ms=stages(30.0, 165.0 - phase, 25.0),
            ),
            adjacent(candidate=side(170.0 - near - 100, 1.0, 1.0, 0.98)),
        )["decision"]

    better = made(gain + more_gain, near + more_near, phase + more_phase, quality - less_loss)
    assert rank[better] >= rank[made(gain, near, phase, quality)]


@pytest.mark.parametrize("wrong", [math.nan, math.inf, True, "3", None, -1.0])
@pytest.mark.parametrize("gate", list(GATES))
def test_a_wrong_gate_is_refused_before_anything_is_compared(gate, wrong) -> None:
    with pytest.raises(ValueError, match=f"gates: {gate} is"):
        adopted(primary(), adjacent(), **{gate: wrong})
    with pytest.raises(ValueError, match=f"gates: {gate} is missing"):
        tp.decide_regression_adoption({}, {key: 1.0 for key in GATES if key != gate})


@pytest.mark.parametrize("wrong", [math.nan, True, "15"])
def test_evidence_from_elsewhere_with_a_wrong_number_is_refused(wrong) -> None:
    evidence = tp.build_regression_evidence([primary(), adjacent()], "backward")
    for key in ("time_gain_ms", "quality_delta"):
        changed = {**evidence, "primary": {**evidence["primary"], key: wrong}}
        with pytest.raises(ValueError, match=f"{key} is .*finite number"):
            tp.decide_regression_adoption(changed, GATES)
    with pytest.raises(ValueError, match="original_bottleneck_reduced is 1; give True or False"):
        tp.decide_regression_adoption({**evidence, "original_bottleneck_reduced": 1}, GATES)
    with pytest.raises(ValueError, match="adjacent is 3"):
        tp.decide_regression_adoption({**evidence, "adjacent": [3]}, GATES)
