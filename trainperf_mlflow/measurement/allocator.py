"""What an allocator counts for a request: the bytes themselves, or a caching allocator's block.

The rules are those of torch's CUDA caching allocator (c10/cuda/CUDACachingAllocator.cpp)
with its default settings.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass, field
from typing import Protocol

KIB, MIB = 1024, 1024**2
ROUND = 512  # every request is rounded up to a multiple
SMALL_REQUEST = MIB  # up to here a request is served from the pool of small blocks
SMALL_SEGMENT = 2 * MIB
MIDDLE_REQUEST = 10 * MIB  # below it a large request takes a segment of a fixed size
MIDDLE_SEGMENT = 20 * MIB
ROUND_SEGMENT = 2 * MIB  # larger segments are rounded up to a multiple


class Allocator(Protocol):
    """Hands out handles; ``allocated`` is the sum of their bytes, ``reserved`` of the segments."""

    allocated: int
    reserved: int

    def allocate(self, size: int) -> int:
        """A handle for ``size`` > 0 bytes."""

    def free(self, handle: int) -> None:
        """Give a handle back."""

    def size_of(self, handle: int) -> int:
        """The bytes that are counted for a handle."""


class ExactAllocator:
    """Counts what was asked for, as the tracker of tensors on a CPU does.

    >>> allocator = ExactAllocator()
    >>> allocator.size_of(allocator.allocate(700))
    700
    """

    def __init__(self) -> None:
        self.allocated = 0
        self.reserved = 0
        self._sizes: dict[int, int] = {}
        self._next = 0

    def allocate(self, size: int) -> int:
        self._next += 1
        self._sizes[self._next] = size
        self.allocated += size
        self.reserved = max(self.reserved, self.allocated)
        return self._next

    def free(self, handle: int) -> None:
        self.allocated -= self._sizes.pop(handle)

    def size_of(self, handle: int) -> int:
        return self._sizes[handle]


@dataclass
class _Block:
    address: int
    size: int
    pool: _Pool
    free: bool = False
    before: _Block | None = None  # its neighbours in the same segment
    after: _Block | None = None


@dataclass
class _Pool:
    """Free blocks by size, then address: the first that is large enough is the best fit."""

    small: bool
    free: list[tuple[int, int]] = field(default_factory=list)
    blocks: dict[int, _Block] = field(default_factory=dict)  # the free ones by address

    def add(self, block: _Block) -> None:
        block.free = True
        insort(self.free, (block.size, block.address))
        self.blocks[block.address] = block

    def remove(self, block: _Block) -> None:
        block.free = False
        del self.free[bisect_left(self.free, (block.size, block.address))]
        del self.blocks[block.address]

    def take(self, size: int) -> _Block | None:
        index = bisect_left(self.free, (size, 0))
        if index == len(self.free):
            return None
        block = self.blocks[self.free[index][1]]
        self.remove(block)
        return block


class CachingAllocator:
    """The CUDA caching allocator on one stream, without a device.

    A block's remainder is split off only where it is at least 512 bytes (small
    pool) or more than 1 MiB (large pool): what is not split off counts as
    allocated. Freed blocks merge with free neighbours; segments are never
    given back.

    >>> allocator = CachingAllocator()
    >>> allocator.size_of(allocator.allocate(700)), allocator.reserved // MIB
    (1024, 2)
    """

    def __init__(self) -> None:
        self.allocated = 0
        self.reserved = 0
        self._small, self._large = _Pool(small=True), _Pool(small=False)
        self._used: dict[int, _Block] = {}  # by address

    def allocate(self, size: int) -> int:
        size = rounded(size)
        pool = self._small if size <= SMALL_REQUEST else self._large
        block = pool.take(size) or self._new_segment(size, pool)
        self._split(block, size)
        self._used[block.address] = block
        self.allocated += block.size
        return block.address

    def free(self, handle: int) -> None:
        block = self._used.pop(handle)
        self.allocated -= block.size
        for neighbour in (block.before, block.after):
            if neighbour is not None and neighbour.free:
                block.pool.remove(neighbour)
                block = _merged(*sorted((block, neighbour), key=lambda item: item.address))
        block.pool.add(block)

    def size_of(self, handle: int) -> int:
        return self._used[handle].size

    def _new_segment(self, size: int, pool: _Pool) -> _Block:
        length = segment_size(size)
        block = _Block(address=self.reserved, size=length, pool=pool)
        self.reserved += length
        return block

    def _split(self, block: _Block, size: int) -> None:
        remaining = block.size - size
        if not (remaining >= ROUND if block.pool.small else remaining > SMALL_REQUEST):
            return
        rest = _Block(block.address + size, remaining, block.pool, before=block, after=block.after)
        if block.after is not None:
            block.after.before = rest
        block.after, block.size = rest, size
        block.pool.add(rest)


def _merged(first: _Block, second: _Block) -> _Block:
    first.size += second.size
    first.after = second.after
    if second.after is not None:
        second.after.before = first
    return first


def rounded(size: int) -> int:
    """The smallest multiple of 512 bytes that holds ``size`` bytes.

    >>> rounded(1), rounded(512), rounded(513)
    (512, 512, 1024)
    """
    return max(ROUND, -(-size // ROUND) * ROUND)


def segment_size(size: int) -> int:
    """The bytes that a rounded request of ``size`` takes from the device where nothing is free.

    >>> [segment_size(size * MIB) // MIB for size in (1, 2, 10, 11)]
    [2, 20, 10, 12]
    """
    if size <= SMALL_REQUEST:
        return SMALL_SEGMENT
    if size < MIDDLE_REQUEST:
        return MIDDLE_SEGMENT
    return -(-size // ROUND_SEGMENT) * ROUND_SEGMENT
