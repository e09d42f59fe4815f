"""What the measurements say about time, losses and the machine, and how surely."""

from __future__ import annotations

from typing import Literal

from trainperf_mlflow.results.record import Record

# What the interval shows about time: undecided where it reaches over a margin.
Direction = Literal["faster", "slower", "same", "undecided"]


class PairedEstimate(Record):
    """What pairs of neighbouring blocks say about a candidate's time per sample.

    Percentages are of the baseline's time and positive where the candidate saves time. ``low``
    and ``high`` bound the interval; they are None where there are too few pairs for one.
    """

    estimate_pct: float
    low_pct: float | None
    high_pct: float | None
    speedup: float
    # Per step of the baseline's samples.
    saved_ms: float
    saved_ms_low: float | None
    saved_ms_high: float | None
    level: float  # of this interval, corrected for looks and candidates
    looks: int  # that the plan allows
    pairs: int  # that count
    process_pairs: int
    disturbed_pairs: int  # in which something from outside slowed a block
    set_aside: int = 0  # disturbed pairs that do not count
    margin_pct: float
    direction: Direction
    signal: Literal["net", "gated wall"]
    signal_reason: str
    stalls: str | None = None  # why usual and mean steps allow no verdict
    pair_s: float  # what a pair takes in this study, all included
    # How many more pairs would give a direction; None where none is open or more is hopeless.
    more_pairs: int | None = None
    what_would_settle: str | None = None


class LossCurve(Record):
    """The training losses of the measured steps, candidate - baseline, paired by seed."""

    verdict: Literal["same", "different", "not_shown"]
    text: str
    equal: bool = False  # exactly, in every step with every seed
    seeds: int = 0
    steps: int = 0
    mean_difference: float | None = None
    max_difference: float | None = None  # mean over the seeds, where it is largest
    max_at_step: int | None = None  # of the measured ones, from 1
    seed_spread: float | None = None  # standard deviation between the baseline's own seeds
    # The most that seeds alone would cause: on average over the steps, and at a single one.
    mean_limit: float | None = None
    step_limit: float | None = None


class ConvergenceCheck(Record):
    """The eval loss after a longer training, candidate - baseline, paired by seed."""

    verdict: Literal["better", "same", "worse", "not_shown", "diverged"]
    text: str
    steps: int
    seeds: int
    margin: float
    # The mean, and the bounds of its 95 % interval; None where there are too few seeds.
    difference: float | None = None
    low: float | None = None
    high: float | None = None
    method: str | None = None  # of the interval


class Noise(Record):
    """How quiet the machine was while a study was measured."""

    level: Literal["quiet", "noisy", "unfit"]
    text: str  # in words, with what disturbed it
    causes: tuple[str, ...] = ()
    blocks: int
    disturbed_blocks: int
    measured_again: int  # blocks, because they or their neighbours were disturbed
