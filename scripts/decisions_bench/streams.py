"""Recorded step times: what a stream holds, its file, and the studies that are cut from it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from trainperf_mlflow.analysis.gate import Pair
from trainperf_mlflow.analysis.signal import block_values
from trainperf_mlflow.results.repeats import Block, Watch
from trainperf_mlflow.results.values import BlockValues

# All rules get the steps of so many rounds, 24 pairs; ours may stop before.
BUDGET_ROUNDS = 6
Order = Literal["pairs", "sequence", "abba"]


class Stream(NamedTuple):
    """Rounds of fresh processes, in each of them sets with one block of every variant.

    ``about`` says where it is from: ``condition``, ``workload``, ``isolation`` and ``work``, how
    much work a variant's step is (the first two variants are identical), and facts for the docs.
    Times are in ms; waits are how long the working thread was runnable without a core, nan where
    the system does not tell.
    """

    about: dict[str, Any]
    step_ms: np.ndarray  # round, set, variant, step
    wait_ms: np.ndarray  # round, set, variant, step
    block_ms: np.ndarray  # round, set, variant
    cpu_ms: np.ndarray  # round, set, variant
    started_at: np.ndarray  # round, set, variant; Unix seconds
    reference_ms: np.ndarray  # round, set, variant, 2: the fixed computation before and after

    @property
    def rounds(self) -> int:
        return len(self.step_ms)

    @property
    def pairs_per_round(self) -> int:
        return int(self.step_ms.shape[1])


class Sides(NamedTuple):
    """What a rule sees of a study: each side's step times, ms, in the order of measurement.

    ``net`` is without the waits for a core.
    """

    before: np.ndarray
    after: np.ndarray
    before_net: np.ndarray
    after_net: np.ndarray


class Study(NamedTuple):
    """Consecutive rounds of a stream, as a comparison of two of its variants.

    The candidate's times are multiplied by ``factor``. In rounds that are ``swapped`` the two
    variants change roles: which of two identical processes is the candidate is left to chance.
    """

    stream: Stream
    first: int
    rounds: int
    baseline: int
    candidate: int
    factor: float = 1.0
    swapped: tuple[bool, ...] = ()

    def sides(self, order: Order) -> Sides:
        """The blocks as the order gives them to baseline and candidate.

        In pairs each side has the blocks of its variant. In sequence, which needs identical
        variants, the same blocks are taken by time: the baseline has the first half of them,
        for "abba" the first and the last quarter.
        """
        steps, net = (self._blocks(values) for values in (self.stream.step_ms, self._net()))
        if order == "pairs":
            mine = np.tile([True, False], len(steps) // 2)
        else:
            place = np.argsort(np.argsort(self._blocks(self.stream.started_at)))
            share = place / len(place)
            mine = share < 0.5 if order == "sequence" else (share < 0.25) | (share >= 0.75)
        return Sides(
            steps[mine].ravel(),
            steps[~mine].ravel() * self.factor,
            net[mine].ravel(),
            net[~mine].ravel() * self.factor,
        )

    def pairs(self, rounds: int) -> list[Pair]:
        """The pairs of the first ``rounds`` rounds, as our analysis reads them."""
        alone = self.stream.about["isolation"] == "process"
        pairs = []
        for number in range(self.first, self.first + rounds):
            for place in range(self.stream.pairs_per_round):
                baseline, candidate = self._roles(number)
                before = self._values(number, place, baseline, 1.0)
                after = self._values(number, place, candidate, self.factor)
                processes = (number, place, place) if alone else (number, 0, 0)
                pairs.append(Pair(processes, before, after))
        return pairs

    def _values(self, number: int, place: int, variant: int, factor: float) -> BlockValues:
        where = (number, place, variant)
        stream, waits = self.stream, self.stream.wait_ms[where] * factor
        known = bool(np.isfinite(waits).all())
        before, after = stream.reference_ms[where]
        block = Block(
            index=place,
            started_at=float(stream.started_at[where]),
            wall_ms=float(stream.block_ms[where]) * factor,
            step_ms=tuple((stream.step_ms[where] * factor).tolist()),
            losses=(),
            step_run_delay_ms=tuple(waits.tolist()) if known else (),
            run_delay_ms=float(waits.sum()) if known else None,
            cpu_ms=float(stream.cpu_ms[where]) * factor,
            watch=Watch(reference_ms=(float(before), float(after))),
        )
        values = block_values(block, None)
        assert values is not None
        return values

    def _blocks(self, values: np.ndarray) -> np.ndarray:
        """The study's part of the values, baseline and candidate in turn."""
        numbers = range(self.first, self.first + self.rounds)
        own = np.stack([values[number][:, list(self._roles(number))] for number in numbers])
        return own.reshape(-1, *own.shape[3:])

    def _roles(self, number: int) -> tuple[int, int]:
        """Baseline and candidate of a round."""
        if self.swapped and self.swapped[number - self.first]:
            return self.candidate, self.baseline
        return self.baseline, self.candidate

    def _net(self) -> np.ndarray:
        """Wall time where the waits are not known, as in our own analysis."""
        waits = self.stream.wait_ms
        return self.stream.step_ms - (waits if np.isfinite(waits).all() else 0.0)


def save(stream: Stream, path: Path) -> None:
    arrays = {name: getattr(stream, name) for name in Stream._fields if name != "about"}
    path.parent.mkdir(parents=True, exist_ok=True)
    # A hundredth of a microsecond is enough for times, but not for dates.
    small = {name: a if name == "started_at" else a.astype("f4") for name, a in arrays.items()}
    np.savez_compressed(path, about=np.array(json.dumps(stream.about)), **small)


def load(path: Path) -> Stream:
    with np.load(path) as file:
        about = json.loads(str(file["about"]))
        arrays = [file[name].astype(float) for name in Stream._fields if name != "about"]
    return Stream(about, *arrays)


def load_all(folder: Path) -> list[Stream]:
    return [load(path) for path in sorted(folder.glob("*.npz"))]


def starts(stream: Stream, rounds: int, most: int) -> Sequence[int]:
    """Where studies of so many rounds begin: everywhere, or at ``most`` places evenly apart."""
    last = stream.rounds - rounds
    if last < 0:
        return ()
    return sorted({round(place) for place in np.linspace(0, last, min(most, last + 1))})
