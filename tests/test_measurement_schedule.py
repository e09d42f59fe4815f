"""In which order variants are measured."""

from collections import Counter

import pytest

from trainperf_mlflow.measurement.schedule import round_actions, round_orders

VARIANTS = ["baseline", "bf16", "checkpoint"]


def test_every_round_measures_every_variant_once() -> None:
    for order in round_orders(VARIANTS, 20, seed=7):
        assert sorted(order) == sorted(VARIANTS)


def test_every_second_round_reverses_the_one_before() -> None:
    orders = list(round_orders(VARIANTS, 10, seed=3))
    assert all(orders[i + 1] == orders[i][::-1] for i in range(0, 10, 2))


def test_the_same_seed_gives_the_same_order_and_another_seed_another() -> None:
    assert list(round_orders(VARIANTS, 8, 1)) == list(round_orders(VARIANTS, 8, 1))
    assert len({tuple(round_orders(VARIANTS, 8, seed)) for seed in range(10)}) > 5


def test_the_baseline_is_not_always_first() -> None:
    places = Counter(
        order.index("baseline") for seed in range(30) for order in round_orders(VARIANTS, 2, seed)
    )
    assert set(places) == {0, 1, 2}
    # Over a round and its reverse each variant stands on average in the middle.
    assert sum(place * count for place, count in places.items()) / 60 == 1.0


def spoken(order: list[str], blocks: int, isolation: str) -> list[str]:
    actions = round_actions(order, 0, blocks, isolation)  # type: ignore[arg-type]
    return [
        f"{action.kind} {action.variant}" + (f" {action.block}" if action.kind == "block" else "")
        for action in actions
    ]


def test_process_isolation_ends_one_process_before_the_next_starts() -> None:
    assert spoken(["b", "a"], 2, "process") == [
        "start b", "warmup b", "block b 0", "block b 1", "finish b",
        "start a", "warmup a", "block a 0", "block a 1", "finish a",
    ]  # fmt: skip


def test_resident_processes_take_turns_and_reverse_the_order_of_each_block() -> None:
    assert spoken(["b", "a"], 3, "resident") == [
        "start b", "start a", "warmup b", "warmup a",
        "block b 0", "block a 0", "block a 1", "block b 1", "block b 2", "block a 2",
        "finish b", "finish a",
    ]  # fmt: skip


@pytest.mark.parametrize("isolation", ["process", "resident"])
@pytest.mark.parametrize("blocks", [1, 2, 5])
def test_each_variant_gets_all_its_blocks_in_order(isolation: str, blocks: int) -> None:
    actions = list(round_actions(VARIANTS, 4, blocks, isolation))  # type: ignore[arg-type]
    for variant in VARIANTS:
        own = [action for action in actions if action.variant == variant]
        assert [action.kind for action in own] == [
            "start", "warmup", *["block"] * blocks, "finish",
        ]  # fmt: skip
        assert [action.block for action in own if action.kind == "block"] == list(range(blocks))
        assert {action.round for action in own} == {4}
