"""Pairs that something from outside slowed do not count, whichever side it met."""

from __future__ import annotations

import made_studies
import numpy as np
import pytest
from paired_blocks import normal_ratios, pairs_from, with_blocks

from trainperf_mlflow.analysis.gate import Pair, gated
from trainperf_mlflow.analysis.noise import disturbances, usual_references_ms
from trainperf_mlflow.analysis.paired import estimate_time, pairs_of
from trainperf_mlflow.analysis.round_ratios import pairs_counted
from trainperf_mlflow.results.repeats import Watch
from trainperf_mlflow.results.values import BlockValues, VariantValues

QUIET, SLOW = Watch(reference_ms=(0.3, 0.3)), Watch(reference_ms=(0.3, 0.45))


def watched(block: BlockValues, slow: bool, factor: float = 1.25) -> BlockValues:
    """Where the core is slow, the block takes so much longer."""
    factor = factor if slow else 1.0
    times = {name: getattr(block, name) * factor for name in ("mean_ms", "low_ms")}
    times |= {f"net_{name}": value for name, value in times.items()}
    return block.model_copy(update={**times, "watch": SLOW if slow else QUIET})


def slowed(pairs: list[Pair], sides: np.ndarray) -> list[Pair]:
    return [
        Pair(pair.process_pair, *(watched(b, bool(s)) for b, s in zip(pair[1:], own, strict=True)))
        for pair, own in zip(pairs, sides, strict=True)
    ]


def test_a_core_that_is_slow_now_and_then_costs_pairs_and_not_the_verdict() -> None:
    pairs = pairs_from(normal_ratios(1, 0.05, 6))
    sides = np.random.default_rng(2).random((24, 2)) < 0.3
    made = estimate_time(slowed(pairs, sides), device="cpu")
    assert made is not None
    hit = int(sides.any(axis=1).sum())
    assert (made.pairs, made.set_aside, made.disturbed_pairs) == (24 - hit, hit, hit)
    assert made.signal == "net"
    assert made.direction == "faster"
    assert made.low_pct is not None
    assert made.high_pct is not None
    assert made.low_pct < 4.88 < made.high_pct < 7


def test_what_slows_one_side_only_is_taken_for_its_own() -> None:
    pairs = pairs_from(normal_ratios(3, 0.0, 6))
    sides = np.zeros((24, 2), bool)
    sides[::2, 1] = True
    made = estimate_time(slowed(pairs, sides), device="cpu")
    assert made is not None
    assert (made.pairs, made.set_aside, made.disturbed_pairs) == (24, 0, 12)
    assert "nearly all disturbances met the candidate" in made.signal_reason


def test_too_few_undisturbed_pairs_are_no_reason_to_drop_the_others() -> None:
    pairs = pairs_from(normal_ratios(4, 0.0, 4))
    sides = np.ones((16, 2), bool)
    sides[[0, 1, 5, 6, 10]] = False
    kept = gated(slowed(pairs, sides), waits_count=False)
    assert (len(kept.pairs), kept.disturbed) == (16, 11)
    assert kept.kept_because is not None
    assert "too few" in kept.kept_because


@pytest.mark.parametrize(("waits_count", "left"), [(True, 12), (False, 16)])
def test_a_wait_that_the_signal_is_without_disturbs_no_pair(waits_count: bool, left: int) -> None:
    pairs = [
        pair._replace(baseline=pair.baseline.model_copy(update={"run_delay": 0.4}))
        if index % 4 == 0
        else pair
        for index, pair in enumerate(pairs_from(normal_ratios(5, 0.0, 4)))
    ]
    assert len(gated(pairs, waits_count).pairs) == left


def test_the_picture_shows_as_set_aside_what_the_estimate_set_aside() -> None:
    def with_watches(values: VariantValues, slow: set[tuple[int, int]]) -> VariantValues:
        repeats = tuple(
            repeat.model_copy(
                update={
                    "blocks": tuple(
                        watched(block, (repeat.index, block.index) in slow)
                        for block in repeat.blocks
                    )
                }
            )
            for repeat in values.repeats
        )
        return values.model_copy(update={"repeats": repeats})

    plain = with_blocks(made_studies.variant("baseline"), [[50.0, 50.1, 49.9, 50.0]] * 3)
    baseline = with_watches(plain, {(0, 1)})
    candidate = with_watches(plain.model_copy(update={"role": "candidate"}), {(2, 3)})
    made = estimate_time(pairs_of(baseline, candidate), device="cpu")
    assert made is not None
    counted = pairs_counted(baseline, candidate, made)
    assert [place for place, own in enumerate(counted) if not own] == [1, 11]
    assert (made.set_aside, made.pairs) == (2, 10)


def watched_blocks(references_ms: list[float]) -> list[BlockValues]:
    block = pairs_from([[0.0]])[0].baseline
    return [
        block.model_copy(update={"started_at": float(place), "watch": Watch(reference_ms=(ms, ms))})
        for place, ms in enumerate(references_ms)
    ]


@pytest.mark.parametrize("order", [1, -1])
def test_a_core_that_is_slow_most_of_the_time_is_still_told_from_a_fast_one(order: int) -> None:
    times = ([0.45] * 7 + [0.3] * 3)[::order]
    blocks = watched_blocks(times)
    usual = usual_references_ms(blocks)
    assert usual == [pytest.approx(0.3)] * 10
    codes = [disturbances(block, ms) for block, ms in zip(blocks, usual, strict=True)]
    assert codes == [("slow_core",) if ms == 0.45 else () for ms in times]


def test_a_clock_that_falls_for_good_is_usual_after_a_while() -> None:
    blocks = watched_blocks([0.3] * 30 + [0.4] * 70)
    usual = usual_references_ms(blocks[::-1])[::-1]
    slow = [bool(disturbances(block, ms)) for block, ms in zip(blocks, usual, strict=True)]
    assert not any(slow[:30])
    assert not any(slow[30 + 12 :])


@pytest.mark.parametrize("share", [0.2, 0.35, 0.5])
def test_identical_code_on_a_core_that_is_slow_at_times_keeps_the_level(share: float) -> None:
    chance, studies, changed = np.random.default_rng(6), 60, 0
    for seed in range(studies):
        pairs = pairs_from(normal_ratios(seed, 0.0, 6, within=0.01, between=0.003))
        made = estimate_time(slowed(pairs, chance.random((24, 2)) < share), device="cpu")
        assert made is not None
        changed += made.direction in ("faster", "slower")
    assert changed <= 0.05 * studies
