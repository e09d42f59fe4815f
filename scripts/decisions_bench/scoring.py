"""Every rule judges every study that can be cut from the streams; what is counted, and how sure.

Studies overlap, so what they share is not counted twice: a rate's Wilson interval is that of as
many studies as fit into the streams one after the other.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from statistics import NormalDist
from typing import Literal, NamedTuple, TypeVar

import numpy as np

from decisions_bench.peers import Rule, Verdict, mann_whitney, mann_whitney_net, mann_whitney_p
from decisions_bench.streams import BUDGET_ROUNDS, Order, Stream, Study, starts
from trainperf_mlflow.analysis.paired import MARGIN_PCT, estimate_time
from trainperf_mlflow.analysis.sequential import (
    MIN_PROCESS_PAIRS,
    level_per_look,
    looks_allowed,
)

CHANGES_PCT = (1, 2, 5, 10)
MOST_STUDIES = 100  # of a stream
# Of each window of identical processes: as many draws of who is the candidate.
DRAWS = 4
CALIBRATED_MARGIN_PCT = 0.5
OURS, OURS_CALIBRATED = "trainperf", "trainperf, margin 0.5 %"
EQUAL = "Mann-Whitney, false as rarely as ours"
EQUAL_NET = "Mann-Whitney, false as rarely, without waits"
Kind = Literal["identical", "multiplied", "real"]


class Case(NamedTuple):
    """Two variants of a stream, and what is true of them: how much time the candidate saves."""

    kind: Kind
    baseline: int
    candidate: int
    change_pct: int  # of work, 0 where identical; in either direction
    factor: float  # the candidate's times are multiplied by it
    ratio: float  # of the candidate's true time to the baseline's

    @property
    def truth(self) -> Verdict:
        return "same" if self.ratio == 1 else "slower" if self.ratio > 1 else "faster"


class Judged(NamedTuple):
    """What a rule said of a study."""

    stream: int
    condition: str
    case: Case
    rule: str
    order: Order
    verdict: Verdict
    rounds: int  # that it used
    pairs: int

    @property
    def wrong(self) -> bool:
        """A change that is none, or the other way round."""
        return self.verdict in ("faster", "slower") and self.verdict != self.case.truth

    @property
    def right(self) -> bool:
        return self.verdict == self.case.truth


class Covered(NamedTuple):
    """Whether a study's interval at 95 % holds the truth; ``rounds`` it was made from."""

    stream: int
    condition: str
    held: bool
    rounds: int


Studied = TypeVar("Studied", Judged, Covered)


class Rate(NamedTuple):
    """A share with its 95 % Wilson interval, from so many studies without overlap."""

    share: float
    low: float
    high: float
    studies: int


def cases(stream: Stream) -> Iterator[Case]:
    """Identical code, the same with one side multiplied, and variants with truly more work."""
    yield Case("identical", 0, 1, 0, 1.0, 1.0)
    for change in CHANGES_PCT:
        for factor in (1 + change / 100, 1 / (1 + change / 100)):
            yield Case("multiplied", 0, 1, change, factor, factor)
    work = stream.about["work"]
    for index, amount in enumerate(work):
        if amount != work[0]:
            change = round(100 * (amount / work[0] - 1))
            yield Case("real", 0, index, change, 1.0, amount / work[0])
            yield Case("real", index, 0, change, 1.0, work[0] / amount)


def score(
    streams: Sequence[Stream], peers: Sequence[Rule], note: Callable[[str], None] = print
) -> list[Judged]:
    """What all rules say of all studies."""
    judged = [one for i, stream in enumerate(streams) for one in _ours(i, stream)]
    note(f"ours has judged {len(judged)} studies")
    for index, stream in enumerate(streams):
        judged += _theirs(index, stream, peers)
        note(f"{stream.about['condition']}, {stream.about['workload']}: judged by all")
    for name, net in ((EQUAL, False), (EQUAL_NET, True)):
        for condition in conditions(streams):
            rule = _equal_rule(name, net, condition, streams, judged)
            for index, stream in enumerate(streams):
                if stream.about["condition"] == condition:
                    judged += _theirs(index, stream, [rule], orders=("pairs",))
    return judged


def coverage(streams: Sequence[Stream]) -> list[Covered]:
    """Of the interval at its first look, the one with the fewest process pairs.

    A multiplied change moves interval and truth alike, so only identical and real ones count.
    """
    covered = []
    for index, stream in enumerate(streams):
        for case in cases(stream):
            if case.kind == "multiplied" or case.ratio < 1:
                continue  # the swapped sides have the same interval
            truth = 100 * (1 - case.ratio)
            for study in _studies(stream, case, MIN_PROCESS_PAIRS):
                made = estimate_time(study.pairs(study.rounds), device="cpu")
                if made is not None and made.low_pct is not None and made.high_pct is not None:
                    held = made.low_pct <= truth <= made.high_pct
                    covered.append(
                        Covered(index, stream.about["condition"], held, MIN_PROCESS_PAIRS)
                    )
    return covered


def conditions(streams: Iterable[Stream]) -> list[str]:
    return list(dict.fromkeys(stream.about["condition"] for stream in streams))


def judge_ours(study: Study, margin_pct: float) -> tuple[Verdict, int]:
    """Our verdict with a budget, and after how many rounds: the product's own ladder of looks."""
    looks = looks_allowed(MIN_PROCESS_PAIRS, adaptive=True)
    level = level_per_look(len(looks))
    used = study.rounds
    pairs = study.pairs(study.rounds)
    for rounds in (look for look in looks if look <= study.rounds):
        made = estimate_time(
            pairs[: rounds * study.stream.pairs_per_round],
            device="cpu",
            level=level,
            looks=len(looks),
            margin_pct=margin_pct,
        )
        used = rounds
        if made is not None and made.direction != "undecided":
            return made.direction, used
    return "undecided", used


def rate(
    judged: Sequence[Studied],
    hit: Callable[[Studied], bool],
    streams: Sequence[Stream],
) -> Rate | None:
    """In which share it happened; None where nothing was judged."""
    if not judged:
        return None
    share = sum(map(hit, judged)) / len(judged)
    used: dict[int, list[int]] = {}
    for one in judged:
        used.setdefault(one.stream, []).append(one.rounds)
    apart = sum(streams[i].rounds / float(np.mean(rounds)) for i, rounds in used.items())
    studies = max(1, math.floor(apart))
    return Rate(share, *wilson(share, studies), studies)


def wilson(share: float, studies: float, level: float = 0.95) -> tuple[float, float]:
    """Wilson's interval of a share.

    >>> [round(bound, 3) for bound in wilson(0.0, 100)]
    [0.0, 0.037]
    """
    z = NormalDist().inv_cdf((1 + level) / 2)
    centre = (share + z * z / (2 * studies)) / (1 + z * z / studies)
    half = z / (1 + z * z / studies)
    half *= math.sqrt(share * (1 - share) / studies + z * z / (4 * studies**2))
    return max(0.0, centre - half), min(1.0, centre + half)


def threshold_for(p_values: Sequence[float], share: float) -> float:
    """The largest threshold below which no larger share of these p values lies.

    >>> threshold_for([0.5, 0.01, 0.2, 0.001], 0.25)
    0.01
    """
    return sorted(p_values)[min(len(p_values) - 1, math.floor(share * len(p_values)))]


def _studies(stream: Stream, case: Case, rounds: int) -> Iterator[Study]:
    rounds = min(rounds, stream.rounds)
    for first in starts(stream, rounds, MOST_STUDIES):
        study = Study(stream, first, rounds, case.baseline, case.candidate, case.factor)
        if case.kind == "real":
            yield study
            continue
        # The same draws for all cases and rules.
        chance = random.Random(first)
        for _ in range(DRAWS):
            yield study._replace(swapped=tuple(chance.random() < 0.5 for _ in range(rounds)))


def _all_draws(stream: Stream, case: Case) -> Iterator[Study]:
    """Each window with every choice of candidates; all the other way round would be the same."""
    rounds = min(BUDGET_ROUNDS, stream.rounds)
    for first in starts(stream, rounds, MOST_STUDIES):
        for others in itertools.product((False, True), repeat=rounds - 1):
            yield Study(
                stream, first, rounds, case.baseline, case.candidate, swapped=(False, *others)
            )


def _ours(index: int, stream: Stream) -> Iterator[Judged]:
    for name, margin in ((OURS, MARGIN_PCT), (OURS_CALIBRATED, CALIBRATED_MARGIN_PCT)):
        for case in cases(stream):
            for study in _studies(stream, case, BUDGET_ROUNDS):
                verdict, rounds = judge_ours(study, margin)
                yield _judged(index, stream, case, name, "pairs", verdict, rounds)


def _theirs(
    index: int, stream: Stream, peers: Sequence[Rule], orders: Sequence[Order] | None = None
) -> Iterator[Judged]:
    for case in cases(stream):
        drawn: set[int] = set()
        for study in _studies(stream, case, BUDGET_ROUNDS):
            sides = {order: study.sides(order) for order in _orders(case, study, drawn)}
            for rule in peers:
                for order in orders or (rule.own_order, "pairs"):
                    if order in sides:
                        verdict = rule.judge(sides[order])
                        yield _judged(index, stream, case, rule.name, order, verdict, study.rounds)


def _orders(case: Case, study: Study, drawn: set[int]) -> tuple[Order, ...]:
    """Sides that are taken by time need identical code, and one draw: roles do not matter there."""
    if case.kind == "real" or study.first in drawn:
        return ("pairs",)
    drawn.add(study.first)
    return ("pairs", "sequence", "abba")


def _judged(
    index: int,
    stream: Stream,
    case: Case,
    rule: str,
    order: Order,
    verdict: Verdict,
    rounds: int,
) -> Judged:
    pairs = rounds * stream.pairs_per_round
    return Judged(index, stream.about["condition"], case, rule, order, verdict, rounds, pairs)


def _equal_rule(
    name: str, net: bool, condition: str, streams: Sequence[Stream], judged: Sequence[Judged]
) -> Rule:
    """Mann-Whitney with the threshold at which it is wrong no more often than ours, looked up on
    the very windows on which it is judged, to its advantage, with every choice of candidates."""
    own = [stream for stream in streams if stream.about["condition"] == condition]
    identical = [
        mann_whitney_p(study.sides("pairs"), net)
        for stream in own
        for case in cases(stream)
        if case.kind == "identical"
        for study in _all_draws(stream, case)
    ]
    ours = [
        one.wrong
        for one in judged
        if (one.rule, one.condition, one.case.kind) == (OURS, condition, "identical")
    ]
    threshold = threshold_for(identical, sum(ours) / len(ours))
    judge = partial(mann_whitney_net if net else mann_whitney, threshold=threshold)
    return Rule(name, "written here", judge)
