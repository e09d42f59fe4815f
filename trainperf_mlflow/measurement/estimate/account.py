"""From the lives of storages to peaks: played through an allocator, by phase and category."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from trainperf_mlflow.measurement.estimate.allocator import Allocator

PARAMETERS, GRADIENTS, STATE = "parameters", "gradients", "optimizer_state"
ACTIVATIONS, TEMPORARIES = "activations", "temporaries"
CATEGORIES = (PARAMETERS, GRADIENTS, STATE, ACTIVATIONS, TEMPORARIES)
SETUP, FORWARD, BACKWARD = "setup", "forward", "backward"
OPTIMIZER, EVALUATION = "optimizer", "evaluation"


@dataclass
class Life:
    """One storage: in which segment it was born and died (None: it stays)."""

    size: int
    born: int
    recorded: bool  # autograd was recording
    category: str | None = None  # where somebody said what it is
    died: int | None = None
    kept: bool = False  # a library's workspace: not for one step only


@dataclass
class Segment:
    """One phase as it was traced: births as (life, True), deaths as (life, False), in order."""

    name: str
    events: list[tuple[int, bool]] = field(default_factory=list)
    flops: int = 0


@dataclass
class Peak:
    """The most bytes of a phase, and what they were; the categories add up to it."""

    bytes: int
    categories: dict[str, int]


def account(
    lives: Sequence[Life],
    segments: Sequence[Segment],
    warm: Sequence[int],
    measured: Sequence[int],
    allocator: Allocator,
) -> dict[str, Peak]:
    """Play the segments ``warm``, then ``measured``, and give the peaks of the latter by name.

    A segment may be played again: what is left of its first time is freed
    before, as gradients are before the next step. Of several measured segments
    of one name the highest peak counts.
    """
    categories = [category_of(life, segments) for life in lives]
    held: dict[int, int] = {}
    current = dict.fromkeys(CATEGORIES, 0)
    peaks: dict[str, Peak] = {}

    def free(life: int) -> None:
        handle = held.pop(life, None)
        if handle is not None:
            current[categories[life]] -= allocator.size_of(handle)
            allocator.free(handle)

    again = set(warm) & set(measured)
    for position, index in enumerate((*warm, *measured)):
        segment = segments[index]
        if position == len(warm):
            for life in _born_in(again, lives, held):
                free(life)
        peak = Peak(allocator.allocated, dict(current))
        for life, birth in segment.events:
            if not birth:
                free(life)
                continue
            if life in held:  # kept from the first time
                continue
            held[life] = allocator.allocate(lives[life].size)
            current[categories[life]] += allocator.size_of(held[life])
            if allocator.allocated > peak.bytes:
                peak = Peak(allocator.allocated, dict(current))
        known = peaks.get(segment.name)
        if position >= len(warm) and (known is None or peak.bytes > known.bytes):
            peaks[segment.name] = peak
    return peaks


def category_of(life: Life, segments: Sequence[Segment]) -> str:
    """What nobody said follows from where a storage was born and whether it stayed."""
    if life.category is not None:
        return life.category
    stayed = life.died is None or life.died > life.born
    name = segments[life.born].name
    if name == OPTIMIZER:
        return STATE if stayed else TEMPORARIES
    if name == FORWARD:
        return ACTIVATIONS if stayed else TEMPORARIES
    if name == BACKWARD:  # autograd records there only what checkpointing runs again
        return ACTIVATIONS if life.recorded else TEMPORARIES
    return ACTIVATIONS if name == SETUP else TEMPORARIES  # a batch that stays resident


def _born_in(indices: set[int], lives: Sequence[Life], held: Iterable[int]) -> list[int]:
    return [i for i in held if lives[i].born in indices and not lives[i].kept]
