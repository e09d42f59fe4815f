"""What pairs of blocks say about time: signal, interval, direction, and what would settle it."""

from __future__ import annotations

import math

import numpy as np
import pytest
from paired_blocks import a_block, normal_ratios, pairs_from

from trainperf_mlflow.analysis.gate import Pair
from trainperf_mlflow.analysis.paired import advice, estimate_time, more_for, pairs_of
from trainperf_mlflow.analysis.sequential import (
    hopeless,
    level_per_look,
    looks_allowed,
    pairs_to_settle,
)
from trainperf_mlflow.analysis.signal import block_values, choose_signal
from trainperf_mlflow.results.estimates import PairedEstimate
from trainperf_mlflow.results.record import Status
from trainperf_mlflow.results.repeats import Block
from trainperf_mlflow.results.values import BlockValues, RepeatValues, VariantValues


def estimate(pairs: list[Pair], **fields: object) -> PairedEstimate:
    made = estimate_time(pairs, device="cpu", **fields)  # type: ignore[arg-type]
    assert made is not None
    return made


# --- the signal --------------------------------------------------------------------------------


def test_one_thread_gives_wall_time_less_its_waits() -> None:
    signal = choose_signal([a_block(), a_block(cpu=1.04)], "cpu", data_workers=False)
    assert signal.name == "net"
    assert "one thread" in signal.reason
    block = a_block(low_ms=80.0, net_low_ms=50.0, mean_ms=90.0, net_mean_ms=55.0)
    assert (signal.low(block), signal.mean(block)) == (50.0, 55.0)


@pytest.mark.parametrize(
    ("block", "device", "workers", "why"),
    [
        (a_block(cpu=1.9), "cpu", False, "several threads"),
        (a_block(), "cuda:0", False, "cuda:0"),
        (a_block(), "cpu", True, "other processes"),
        (a_block(net_low_ms=None), "cpu", False, "does not tell"),
    ],
)
def test_anything_else_gives_the_gated_wall_time(block, device, workers, why) -> None:  # type: ignore[no-untyped-def]
    signal = choose_signal([a_block(), block], device, workers)
    assert signal.name == "gated wall"
    assert why in signal.reason
    assert signal.low(a_block(low_ms=80.0)) == 80.0


def test_a_block_is_read_by_step_and_a_wait_belongs_to_its_step() -> None:
    block = Block(
        index=3,
        started_at=5.0,
        wall_ms=140.0,
        step_ms=(20.0, 20.0, 20.0, 80.0),
        losses=(1.0,) * 4,
        step_run_delay_ms=(0.0, 0.0, 1.0, 60.0),
        run_delay_ms=61.0,
        cpu_ms=70.0,
    )
    values = block_values(block, 2.0)
    assert values is not None
    assert (values.mean_ms, values.low_ms) == (35.0, 20.0)
    # Of four steps the fastest quarter is one: 20 ms, of which it waited 1.
    assert (values.net_mean_ms, values.net_low_ms) == (19.75, 19.0)
    assert values.run_delay == pytest.approx(61 / 140)
    assert (values.cpu, values.wall_s) == (0.5, 0.14)


def test_a_block_without_time_has_no_values_and_one_without_waits_no_net() -> None:
    block = Block(index=0, started_at=0.0, wall_ms=0.0, step_ms=(0.0,), losses=(None,))
    assert block_values(block, None) is None
    timed = block.model_copy(update={"wall_ms": 3.0, "step_ms": (3.0,)})
    values = block_values(timed, None)
    assert values is not None
    assert (values.net_low_ms, values.run_delay, values.cpu) == (None, None, None)


# --- pairs -------------------------------------------------------------------------------------


def test_blocks_pair_by_round_and_place_and_only_where_both_succeeded() -> None:
    def variant(name: str, *repeats: RepeatValues) -> VariantValues:
        role = "baseline" if name == "baseline" else "candidate"
        return VariantValues(name=name, role=role, status=Status.OK, repeats=repeats)  # type: ignore[arg-type]

    def repeat(index: int, blocks: int, status: Status = Status.OK) -> RepeatValues:
        own = tuple(a_block(place, 10.0 * (index + 1) + place) for place in range(blocks))
        return RepeatValues(index=index, status=status, blocks=own)

    base = variant("baseline", repeat(0, 2), repeat(1, 2), repeat(2, 2, Status.FAILED))
    tuned = variant("tuned", repeat(0, 2), repeat(1, 1), repeat(2, 2), repeat(3, 2))
    found = pairs_of(base, tuned)
    assert [(pair.process_pair[0], pair.baseline.index) for pair in found] == [
        (0, 0),
        (0, 1),
        (1, 0),
    ]
    assert all(pair.baseline.mean_ms == pair.candidate.mean_ms for pair in found)


@pytest.mark.parametrize("time_ms", [0.0, -1.0, math.nan, math.inf, 1e308])
@pytest.mark.parametrize("field", ["mean_ms", "low_ms", "net_mean_ms", "net_low_ms"])
def test_a_time_that_no_step_takes_is_in_no_pair(field: str, time_ms: float) -> None:
    def variant(role: str, *blocks: BlockValues) -> VariantValues:
        repeat = RepeatValues(index=0, status=Status.OK, blocks=blocks)
        return VariantValues(name=role, role=role, status=Status.OK, repeats=(repeat,))  # type: ignore[arg-type]

    good = variant("baseline", a_block(0), a_block(1))
    bad = variant("candidate", a_block(0, **{field: time_ms}), a_block(1))
    for pairs in (pairs_of(good, bad), pairs_of(bad, good)):
        assert [pair.baseline.index for pair in pairs] == [1]
        assert estimate(pairs).estimate_pct == 0


def test_no_pairs_say_nothing() -> None:
    assert estimate_time([], device="cpu") is None


# --- the estimate ------------------------------------------------------------------------------


def test_a_known_difference_is_found_in_percent_ms_and_as_a_speedup() -> None:
    made = estimate(pairs_from(normal_ratios(1, effect=math.log(1.25)), base_ms=100.0))
    assert made.direction == "faster"
    assert made.speedup == pytest.approx(1.25, rel=0.01)
    assert made.estimate_pct == pytest.approx(20.0, abs=0.5)
    assert made.saved_ms == pytest.approx(20.0, abs=0.5)
    assert made.low_pct is not None
    assert made.high_pct is not None
    assert made.low_pct < made.estimate_pct < made.high_pct
    assert made.saved_ms_low == pytest.approx(made.low_pct)
    assert (made.pairs, made.process_pairs) == (12, 3)
    assert made.what_would_settle is None


@pytest.mark.parametrize(
    ("effect", "direction"), [(0.05, "faster"), (-0.05, "slower"), (0.0, "same")]
)
def test_the_direction_is_what_all_of_the_interval_shows(effect: float, direction: str) -> None:
    assert estimate(pairs_from(normal_ratios(2, effect, within=0.003))).direction == direction


def test_a_batch_twice_as_large_is_compared_per_sample() -> None:
    pairs = [
        Pair(
            (row, 0, 0),
            a_block(index, 100.0 + row, samples_per_step=2.0),
            a_block(index, 160.0 + index, samples_per_step=4.0),
        )
        for row in range(3)
        for index in range(4)
    ]
    made = estimate(pairs)
    assert made.direction == "faster"
    assert made.estimate_pct == pytest.approx(20.0, abs=1.0)


def test_swapping_the_roles_gives_the_inverse() -> None:
    pairs = pairs_from(normal_ratios(3, effect=0.08))
    there = estimate(pairs)
    back = estimate([Pair(pair.process_pair, pair.candidate, pair.baseline) for pair in pairs])
    assert there.speedup * back.speedup == pytest.approx(1.0)
    assert {there.direction, back.direction} == {"faster", "slower"}


@pytest.mark.parametrize("process_pairs", [1, 2])
def test_fewer_than_three_process_pairs_never_give_a_verdict(process_pairs: int) -> None:
    made = estimate(pairs_from(normal_ratios(4, 0.5, process_pairs)))
    assert made.direction == "undecided"
    assert (made.low_pct, made.high_pct, made.saved_ms_low) == (None, None, None)
    assert made.more_pairs == 12 - made.pairs or made.more_pairs == 4
    assert "more pairs" in str(made.what_would_settle)


def test_processes_that_differ_widen_the_interval() -> None:
    alike = estimate(pairs_from(normal_ratios(5, 0.05, 6, within=0.002, between=0.0)))
    apart = estimate(pairs_from(normal_ratios(5, 0.05, 6, within=0.002, between=0.03)))

    def width(made: PairedEstimate) -> float:
        assert made.low_pct is not None
        assert made.high_pct is not None
        return made.high_pct - made.low_pct

    assert width(apart) > 3 * width(alike)
    # Also where they happen to agree, they are known to differ a little.
    assert width(alike) > 2 * 1.9 * 0.5 / math.sqrt(6)


def test_pairs_with_processes_of_their_own_are_not_widened_twice() -> None:
    ratios = normal_ratios(6, 0.05, 3).ravel()
    shared = pairs_from(ratios.reshape(3, 4))
    own = pairs_from(ratios.reshape(12, 1))
    assert estimate(own).low_pct > estimate(shared).low_pct  # type: ignore[operator]


def test_a_level_for_several_candidates_widens_the_interval() -> None:
    pairs = pairs_from(normal_ratios(7, 0.02))
    one, many = (estimate(pairs, level=level_per_look(1, count)) for count in (1, 3))
    assert many.low_pct < one.low_pct  # type: ignore[operator]


def test_steps_that_stall_allow_no_verdict_and_are_named() -> None:
    pairs = pairs_from(normal_ratios(8, 0.10))
    stalling = [
        Pair(p.process_pair, p.baseline, p.candidate.model_copy(update={"net_mean_ms": 70.0}))
        for p in pairs
    ]
    made = estimate(stalling)
    assert made.direction == "undecided"
    assert "candidate stall" in str(made.stalls)
    assert estimate(pairs).stalls is None


def test_a_neighbour_that_hits_either_side_by_chance_is_no_stall() -> None:
    chance = np.random.default_rng(9)
    pairs = []
    for pair in pairs_from(normal_ratios(9, 0.10, 6)):
        hit = chance.random(2) < 0.3
        blocks = [
            block.model_copy(update={"net_mean_ms": block.mean_ms * (1.5 if slow else 1.0)})
            for block, slow in zip(pair[1:], hit, strict=True)
        ]
        pairs.append(Pair(pair.process_pair, blocks[0], blocks[1]))  # type: ignore[arg-type]
    made = estimate(pairs)
    assert made.stalls is None
    assert made.direction == "faster"


def test_the_gate_sets_disturbed_pairs_aside_but_never_all() -> None:
    pairs = pairs_from(normal_ratios(10, 0.05, 4), cpu=2.0)
    worse = {"low_ms": 200.0, "run_delay": 0.4}
    some = [
        p._replace(candidate=p.candidate.model_copy(update=worse)) if index % 4 == 0 else p
        for index, p in enumerate(pairs)
    ]
    made = estimate(some)
    assert (made.signal, made.pairs, made.disturbed_pairs) == ("gated wall", 12, 4)
    assert made.direction == "faster"
    every = [p._replace(candidate=p.candidate.model_copy(update=worse)) for p in pairs]
    assert (estimate(every).pairs, estimate(every).disturbed_pairs) == (16, 16)


# --- coverage ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("within", "between"), [(0.005, 0.0023), (0.012, 0.005), (0.019, 0.010)])
@pytest.mark.parametrize("process_pairs", [3, 6])
def test_the_interval_holds_the_truth_across_process_pairs(
    within: float, between: float, process_pairs: int
) -> None:
    chance = np.random.default_rng(11)
    truth = 100 * (1 - math.exp(-0.03))
    studies = [
        estimate(pairs_from(normal_ratios(chance, 0.03, process_pairs, within, between)))
        for _ in range(250)
    ]
    held = sum(made.low_pct <= truth <= made.high_pct for made in studies) / len(studies)  # type: ignore[operator]
    # Where processes differ twice as much as was known, the seen spread makes up for most of it.
    assert held >= (0.90 if between > 0.005 else 0.95)
    assert not any(made.direction == "slower" for made in studies)


def test_identical_code_gets_no_verdict_that_it_changed() -> None:
    chance = np.random.default_rng(12)
    level = level_per_look(4)
    directions = [
        estimate(pairs_from(normal_ratios(chance, 0.0, k, 0.012, 0.004)), level=level).direction
        for _ in range(100)
        for k in (3, 4, 6)
    ]
    assert not {"faster", "slower"} & set(directions)


# --- looks and what would settle ---------------------------------------------------------------


def test_looking_more_often_and_more_candidates_ask_for_more_certainty() -> None:
    levels = [level_per_look(looks) for looks in range(1, 6)]
    assert levels == sorted(levels)
    assert levels[0] == pytest.approx(0.95, abs=1e-4)
    assert levels[4] == pytest.approx(0.984, abs=5e-4)
    assert level_per_look(4, 3) == pytest.approx(1 - (1 - level_per_look(4)) / 3)


def test_the_looks_of_pocock_keep_the_level_together() -> None:
    chance = np.random.default_rng(13)
    # Sums of equally many observations at each of the four looks.
    walks = np.cumsum(chance.normal(0, 1, (20_000, 4)), axis=1) / np.sqrt([1, 2, 3, 4])
    crossed = (np.abs(walks) > 2.361).any(axis=1).mean()
    assert crossed == pytest.approx(0.05, abs=0.005)


def test_a_study_without_a_budget_looks_once_and_one_with_it_climbs_the_ladder() -> None:
    assert looks_allowed(3, adaptive=False) == (3,)
    assert looks_allowed(3, adaptive=True) == (3, 4, 6, 8)
    assert looks_allowed(20, adaptive=True) == (20,)


def test_what_is_open_says_how_many_pairs_and_how_long() -> None:
    made = estimate(pairs_from(normal_ratios(14, 0.02, within=0.02)))
    assert made.direction == "undecided"
    assert made.more_pairs is not None
    assert made.more_pairs % 4 == 0
    assert made.what_would_settle == advice(made.more_pairs, made.pair_s)
    assert more_for(made, -50.0) == 4


def test_what_patience_cannot_settle_says_so() -> None:
    assert pairs_to_settle(12, half_width=30.0, distance=0.1) is None
    assert pairs_to_settle(12, half_width=math.inf, distance=1.0) is None
    assert "quiet" in advice(None, 1.0)


def test_a_study_is_hopeless_only_if_nothing_open_fits_into_what_is_left() -> None:
    assert hopeless([None, 40], pairs_left=12)
    assert not hopeless([None, 8], pairs_left=12)
    assert not hopeless([], pairs_left=12)
