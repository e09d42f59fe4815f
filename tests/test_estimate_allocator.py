"""The simulated caching allocator keeps the rules of the real one."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainperf_mlflow.measurement.allocator import (
    MIB,
    ROUND,
    CachingAllocator,
    ExactAllocator,
)

SIZES = st.one_of(st.integers(1, 4096), st.integers(1, 3 * MIB), st.integers(1, 40 * MIB))
# Each step allocates a size, or frees one of those that are there (by a number that picks it).
STEPS = st.lists(st.tuples(SIZES, st.booleans(), st.integers(0, 1000)), max_size=60)


@given(STEPS)
def test_blocks_hold_their_requests_never_overlap_and_add_up(
    steps: list[tuple[int, bool, int]],
) -> None:
    allocator = CachingAllocator()
    held: dict[int, int] = {}
    for size, frees, pick in steps:
        if frees and held:
            handle = sorted(held)[pick % len(held)]
            allocator.free(handle)
            del held[handle]
        else:
            handle = allocator.allocate(size)
            assert handle not in held
            held[handle] = size
        blocks = sorted((address, allocator.size_of(address)) for address in held)
        for (address, length), (following, _) in pairwise(blocks):
            assert address + length <= following
        for address, length in blocks:
            assert length % ROUND == 0
            # A large block may keep up to 1 MiB that is not split off.
            assert held[address] <= length < held[address] + ROUND + MIB + 1
        assert allocator.allocated == sum(length for _, length in blocks)
        assert allocator.allocated <= allocator.reserved


@given(st.lists(SIZES, min_size=1, max_size=40), st.randoms())
def test_all_memory_comes_back_and_is_taken_again(sizes: list[int], random: object) -> None:
    allocator = CachingAllocator()
    handles = [allocator.allocate(size) for size in sizes]
    random.shuffle(handles)  # type: ignore[attr-defined]
    for handle in handles:
        allocator.free(handle)
    assert allocator.allocated == 0
    reserved = allocator.reserved
    for size in sizes:
        allocator.allocate(size)
    assert allocator.reserved == reserved


@pytest.mark.parametrize(
    ("size", "allocated", "reserved"),
    [
        (1, 512, 2 * MIB),
        (513, 1024, 2 * MIB),
        (MIB, MIB, 2 * MIB),
        (MIB + 1, MIB + 512, 20 * MIB),
        (int(8.125 * MIB), int(8.125 * MIB), 20 * MIB),
        (10 * MIB, 10 * MIB, 10 * MIB),
        # What is left of a segment of 12 MiB is no more than 1 MiB and is not split off.
        (11 * MIB, 12 * MIB, 12 * MIB),
        (11 * MIB - 512, 11 * MIB - 512, 12 * MIB),
    ],
)
def test_a_request_takes_the_block_and_segment_of_the_rules(
    size: int, allocated: int, reserved: int
) -> None:
    allocator = CachingAllocator()
    allocator.allocate(size)
    assert (allocator.allocated, allocator.reserved) == (allocated, reserved)


def test_the_smallest_block_that_fits_is_taken() -> None:
    allocator = CachingAllocator()
    large, small = allocator.allocate(40 * MIB), allocator.allocate(30 * MIB)
    allocator.free(large)
    allocator.free(small)
    assert allocator.allocate(29 * MIB) == small


def test_exact_counting_rounds_nothing() -> None:
    allocator = ExactAllocator()
    first, second = allocator.allocate(3), allocator.allocate(700)
    assert allocator.allocated == 703
    allocator.free(first)
    allocator.free(second)
    assert allocator.allocated == 0
