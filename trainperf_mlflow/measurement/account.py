"""From the lives of storages to memory: by phase, by category, over time.

The lives are written down while a step runs (``storages``), on real tensors or on
fake ones, and played through an allocator afterwards: only then is it known what
outlived the pass that made it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from trainperf_mlflow.measurement.allocator import Allocator

PARAMETERS, GRADIENTS, STATE = "parameters", "gradients", "optimizer_state"
ACTIVATIONS, TEMPORARIES, OTHER = "activations", "temporaries", "other"
CATEGORIES = (PARAMETERS, GRADIENTS, STATE, ACTIVATIONS, TEMPORARIES, OTHER)
SETUP, DATA, FORWARD, BACKWARD = "setup", "data", "forward", "backward"
OPTIMIZER, EVALUATION = "optimizer", "evaluation"


@dataclass
class Life:
    """One storage of one size: in which segment it was born and died (None: it stays)."""

    size: int
    born: int
    category: str | None = None  # where somebody said what it is
    died: int | None = None
    # Forward passes, and recomputed pieces of them, are numbered from 1; 0: none ran.
    made_in: int = 0
    died_in: int = 0
    kept: bool = False  # a library's workspace: not for one step only


@dataclass
class Segment:
    """One phase as it ran: births as (life, True), deaths as (life, False), in order."""

    name: str
    events: list[tuple[int, bool]] = field(default_factory=list)
    began_ns: int = 0
    times_ns: list[int] = field(default_factory=list)  # of the events
    flops: float = 0.0
    moved_bytes: int = 0


class Moment(NamedTuple):
    """What is allocated after an event of a segment; None: before its first one."""

    segment: int
    event: int | None
    bytes: int
    categories: dict[str, int]  # changes as playing goes on: copy it to keep it


class Peak(NamedTuple):
    """The most bytes of a phase, and what they were; the categories add up to it."""

    bytes: int
    categories: dict[str, int]


def moments(
    lives: Sequence[Life],
    segments: Sequence[Segment],
    warm: Sequence[int],
    measured: Sequence[int],
    allocator: Allocator,
) -> Iterator[Moment]:
    """Play the segments ``warm``, then ``measured``, and give each moment of the latter.

    A segment may be played again: what is left of its first time is freed
    before, as gradients are before the next step.
    """
    categories = [category_of(life, segments) for life in lives]
    held: dict[int, int] = {}
    current = dict.fromkeys(CATEGORIES, 0)

    def free(life: int) -> None:
        handle = held.pop(life, None)
        if handle is not None:
            current[categories[life]] -= allocator.size_of(handle)
            allocator.free(handle)

    again = set(warm) & set(measured)
    for position, index in enumerate((*warm, *measured)):
        if position == len(warm):
            for life in _born_in(again, lives, held):
                free(life)
        if position >= len(warm):
            yield Moment(index, None, allocator.allocated, current)
        for event, (life, birth) in enumerate(segments[index].events):
            if not birth:
                free(life)
            elif life not in held:  # else it was kept from the first time
                held[life] = allocator.allocate(lives[life].size)
                current[categories[life]] += allocator.size_of(held[life])
            if position >= len(warm):
                yield Moment(index, event, allocator.allocated, current)


def peaks_by_phase(played: Iterable[Moment], segments: Sequence[Segment]) -> dict[str, Peak]:
    """The highest moment of each phase; the first where several are equally high."""
    peaks: dict[str, Peak] = {}
    for moment in played:
        name = segments[moment.segment].name
        if name not in peaks or moment.bytes > peaks[name].bytes:
            peaks[name] = Peak(moment.bytes, dict(moment.categories))
    return peaks


def telling(sizes: Sequence[int], phases: Sequence[str], limit: int) -> list[int]:
    """At most ``limit`` positions that show the course of ``sizes``.

    The first and the last, each phase's peak, and the highest and the lowest of
    equally many neighbours.

    >>> telling([1, 5, 2, 1, 9, 1], ["a", "a", "b", "b", "b", "b"], 4)
    [0, 1, 4, 5]
    """
    count = len(sizes)
    if count <= limit:
        return list(range(count))
    highest: dict[str, int] = {}
    for position, phase in enumerate(phases):
        if phase not in highest or sizes[position] > sizes[highest[phase]]:
            highest[phase] = position
    found = {0, count - 1, *highest.values()}
    groups = (limit - len(found)) // 2
    for group in range(groups):
        members = range(group * count // groups, (group + 1) * count // groups)
        found |= {max(members, key=sizes.__getitem__), min(members, key=sizes.__getitem__)}
    return sorted(found)


def category_of(life: Life, segments: Sequence[Segment]) -> str:
    """What nobody said follows from where a storage was born and whether it stayed."""
    if life.category is not None:
        return life.category
    if life.made_in:
        return TEMPORARIES if life.died_in == life.made_in else ACTIVATIONS
    name = segments[life.born].name
    if name in (SETUP, DATA):  # a batch is there for the whole step
        return OTHER
    stayed = life.died is None or life.died > life.born
    return STATE if name == OPTIMIZER and stayed else TEMPORARIES


def _born_in(indices: set[int], lives: Sequence[Life], held: Iterable[int]) -> list[int]:
    return [i for i in held if lives[i].born in indices and not lives[i].kept]
