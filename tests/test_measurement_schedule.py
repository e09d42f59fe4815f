"""In which order variants are measured."""

from collections import Counter
from itertools import islice

import pytest

from trainperf_mlflow.measurement.schedule import Round, paired_rounds, round_orders

VARIANTS = ["baseline", "bf16", "checkpoint"]


def rounds(count: int, seed: int, blocks: int = 4) -> list[Round]:
    return list(islice(paired_rounds(VARIANTS, blocks, seed), count))


def test_every_round_starts_every_variant_once_and_gives_each_all_its_blocks() -> None:
    for index, planned in enumerate(rounds(20, seed=7)):
        assert planned.number == index
        assert len(planned.blocks) == 4
        for order in (planned.starts, *planned.blocks):
            assert sorted(order) == sorted(VARIANTS)


def test_the_exact_order_of_a_seed_never_changes() -> None:
    assert list(islice(paired_rounds(["baseline", "bf16"], 3, seed=42), 2)) == [
        Round(
            number=0,
            starts=("bf16", "baseline"),
            blocks=(("baseline", "bf16"), ("bf16", "baseline"), ("baseline", "bf16")),
        ),
        Round(
            number=1,
            starts=("bf16", "baseline"),
            blocks=(("bf16", "baseline"), ("baseline", "bf16"), ("baseline", "bf16")),
        ),
    ]


def test_a_round_depends_on_its_own_index_and_not_on_how_long_the_study_goes_on() -> None:
    assert rounds(3, seed=5) == rounds(8, seed=5)[:3]
    assert len({tuple(rounds(4, seed)) for seed in range(10)}) == 10


def test_each_place_in_a_pair_goes_to_either_by_chance() -> None:
    planned = [order for seed in range(50) for one in rounds(3, seed) for order in one.blocks]
    first = Counter(order[0] for order in planned)
    assert set(first) == set(VARIANTS)
    assert all(150 < count < 250 for count in first.values())
    # Neither is the order the same within a round, as an alternating one would be.
    assert len({tuple(order.index("bf16") for order in one.blocks) for one in rounds(60, 1)}) > 20


def test_the_start_order_is_random_apart_from_that_of_the_blocks() -> None:
    starts = Counter(one.starts[0] for seed in range(60) for one in rounds(3, seed))
    assert all(40 < starts[name] < 80 for name in VARIANTS)
    assert any(one.starts != one.blocks[0] for one in rounds(20, 3))


def test_every_round_of_explanations_looks_at_every_variant_once() -> None:
    for order in round_orders(VARIANTS, 20, seed=7):
        assert sorted(order) == sorted(VARIANTS)


def test_every_second_round_of_explanations_reverses_the_one_before() -> None:
    orders = list(round_orders(VARIANTS, 10, seed=3))
    assert all(orders[i + 1] == orders[i][::-1] for i in range(0, 10, 2))


@pytest.mark.parametrize("seed", [1, 2])
def test_the_same_seed_explains_in_the_same_order(seed: int) -> None:
    assert list(round_orders(VARIANTS, 8, seed)) == list(round_orders(VARIANTS, 8, seed))
