"""The gates of the close, per candidate and for the study (course project 74)."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainperf_mlflow.decisions.qualification import (
    QUALIFICATION_GATES,
    CandidateQualification,
    Qualification,
    qualify_memory_candidates,
)


def item(name: str, memory: Any, rate: Any, loss: Any = 2.0, **more: Any) -> dict[str, Any]:
    values = {"peak_memory_mb": memory, "samples_per_s": rate, "eval_loss": loss}
    return {"name": name, "status": "ok", **values, **more}


BASELINE = item("baseline", 10000.0, 2.0)
GOOD = item("checkpoint", 9488.0, 1.4, 2.01)  # exactly at all three gates


def qualified(*items: dict[str, Any], feasible: Any = "all", **more: Any) -> Qualification:
    names = [one["name"] for one in items] if feasible == "all" else feasible
    return qualify_memory_candidates([BASELINE, *items], names, **more)


def record(*items: dict[str, Any], **more: Any) -> CandidateQualification:
    (made,) = qualified(*items, **more).candidate_records
    return made


def test_a_candidate_at_every_gate_qualifies_and_the_study_is_accepted() -> None:
    made = qualified(GOOD)
    (one,) = made.candidate_records
    assert (one.decision, one.failed_gates, one.missing_evidence) == ("accept", (), ())
    assert (one.memory_saving_mb, one.throughput_ratio) == (512.0, 0.7)
    assert made.qualified_candidates == ("checkpoint",)
    assert (made.decision, made.next_action) == ("accept", "write_part05_handoff")
    assert made.reason == "at_least_one_candidate_passed_profiling_qualification"
    assert Qualification.from_json(made.to_json()) == made


@pytest.mark.parametrize(
    ("change", "gate", "decision"),
    [
        ({"peak_memory_mb": 9488.01}, "memory_saving", "tune"),
        ({"samples_per_s": 1.3999}, "throughput_ratio", "tune"),
        ({"eval_loss": 2.0101}, "loss_delta", "reject"),
        ({"status": "oom"}, "run_status", "reject"),
    ],
)
def test_a_failed_gate_is_named_and_hard_ones_reject(change, gate, decision) -> None:
    made = record({**GOOD, **change})
    assert (made.decision, made.failed_gates) == (decision, (gate,))


def test_what_breaks_the_budget_is_rejected_and_no_budget_is_missing_evidence() -> None:
    over = record(GOOD, feasible=[])
    assert (over.decision, over.failed_gates) == ("reject", ("memory_budget",))
    unknown = record(GOOD, feasible=None)
    assert (unknown.decision, unknown.missing_evidence) == ("tune", ("memory_budget",))


def test_missing_evidence_keeps_a_candidate_from_qualifying() -> None:
    made = qualified(GOOD, missing_evidence={"checkpoint": ["profile_trace", "profile_trace"]})
    assert made.candidate_records[0].missing_evidence == ("profile_trace",)
    assert made.candidate_records[0].decision == "tune"
    assert made.reason == "candidate_requires_more_evidence_or_threshold_tuning"


@pytest.mark.parametrize("wrong", [math.nan, math.inf, True, "9000", None])
@pytest.mark.parametrize("key", ["peak_memory_mb", "samples_per_s", "eval_loss"])
def test_a_number_that_is_none_is_missing_evidence_and_passes_no_gate(key, wrong) -> None:
    made = record({**GOOD, key: wrong})
    assert made.decision == "tune"
    assert made.missing_evidence == (key,)
    assert made.failed_gates == ()


def test_losses_of_different_kinds_are_never_subtracted() -> None:
    base = {**BASELINE, "loss": 3.0}
    only_training_loss = {**GOOD, "eval_loss": None, "loss": 3.0}
    made = qualify_memory_candidates([base, only_training_loss], ["checkpoint"])
    assert made.candidate_records[0].missing_evidence == ("eval_loss",)
    without_eval = [{**one, "eval_loss": None, "loss": 3.0} for one in (base, GOOD)]
    made = qualify_memory_candidates(without_eval, ["checkpoint"])
    assert made.candidate_records[0].loss_delta == 0.0


def test_only_memory_below_its_gate_has_a_reason_of_its_own() -> None:
    small = item("checkpoint", 9600.0, 1.9)
    made = qualified(small)
    assert made.reason == "global_peak_memory_saving_below_threshold"
    assert made.next_action == "collect_phase_memory_evidence"
    measured = qualified(small, phase_report=True)
    assert measured.next_action == "retain_phase_evidence_and_do_not_adopt_at_fixed_workload"
    rejected_beside = qualified(small, item("offload", 9600.0, 0.1), feasible=["checkpoint"])
    assert rejected_beside.reason == "global_peak_memory_saving_below_threshold"
    also_slow = qualified(small, item("hybrid", 9000.0, 1.0))
    assert also_slow.reason == "candidate_requires_more_evidence_or_threshold_tuning"
    lacking = qualified(small, missing_evidence={"checkpoint": ["profile_trace"]})
    assert lacking.reason == "candidate_requires_more_evidence_or_threshold_tuning"


def test_a_study_of_which_every_candidate_fails_hard_restores_the_baseline() -> None:
    made = qualified(GOOD, feasible=[])
    assert (made.decision, made.reason) == ("reject", "all_candidates_failed_hard_gates")
    assert made.next_action == "restore_baseline"
    assert qualified().decision == "reject"


def test_one_qualified_candidate_is_enough() -> None:
    made = qualified(item("offload", 9900.0, 0.1, 5.0), GOOD)
    assert made.decision == "accept"
    assert made.qualified_candidates == ("checkpoint",)


@pytest.mark.parametrize("wrong", [math.nan, math.inf, True, "1", -1.0])
@pytest.mark.parametrize("gate", list(QUALIFICATION_GATES))
def test_a_wrong_qualification_gate_is_refused(gate, wrong) -> None:
    with pytest.raises(ValueError, match=f"gates: {gate} is"):
        qualified(GOOD, gates={**QUALIFICATION_GATES, gate: wrong})
    with pytest.raises(ValueError, match=f"gates: {gate} is missing"):
        qualified(GOOD, gates={k: v for k, v in QUALIFICATION_GATES.items() if k != gate})


def test_names_that_identify_nobody_are_refused() -> None:
    with pytest.raises(ValueError, match="no candidate has the name 'baseline'"):
        qualify_memory_candidates([GOOD], ["checkpoint"])
    with pytest.raises(ValueError, match="a name of its own"):
        qualified(GOOD, GOOD)


VALUES = st.tuples(st.floats(8000, 11000), st.floats(0.5, 3), st.floats(1.9, 2.1))
RANK = {"reject": 0, "tune": 1, "accept": 2}


@given(VALUES, st.tuples(*[st.floats(0, 1)] * 3))
@settings(max_examples=50, deadline=None)
def test_a_candidate_that_gets_better_never_qualifies_less(values, better) -> None:
    memory, rate, loss = values
    less, more, gained = better
    before = record(item("checkpoint", memory, rate, loss)).decision
    after = record(item("checkpoint", memory * (1 - less / 2), rate + more, loss - gained)).decision
    assert RANK[after] >= RANK[before]


@given(st.lists(VALUES, min_size=1, max_size=4), st.randoms(use_true_random=False))
@settings(max_examples=30, deadline=None)
def test_the_order_of_qualified_candidates_does_not_matter(values, shuffler: random.Random) -> None:
    items = [item(f"candidate {place}", *numbers) for place, numbers in enumerate(values)]
    one, other = qualified(*items), qualified(*shuffler.sample(items, len(items)))
    assert (one.decision, one.reason) == (other.decision, other.reason)
    assert {*one.qualified_candidates} == {*other.qualified_candidates}


@given(st.floats(0.0101, 9), st.booleans())
@settings(max_examples=20, deadline=None)
def test_hard_gates_beat_any_saving(worse, over_budget) -> None:
    tempting = item("checkpoint", 1.0, 1e6, 2.0 if over_budget else 2.0 + worse)
    assert record(tempting, feasible=[] if over_budget else "all").decision == "reject"
