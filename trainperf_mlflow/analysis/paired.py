"""How much time a candidate saves, from blocks of both that were measured next to each other.

Each pair gives the log ratio of its two blocks per sample, so that what drifts slower than a pair
takes drops out. The estimate is the Hodges-Lehmann one, its interval the exact signed-rank
one, widened by how much identical processes differ: the pairs of one process pair share that
difference, and an interval from the pairs alone would leave it out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import NormalDist, median, variance

from trainperf_mlflow.analysis.gate import Pair, gated
from trainperf_mlflow.analysis.rounds import saved_by_round
from trainperf_mlflow.analysis.sequential import (
    MIN_PROCESS_PAIRS,
    PAIRS_PER_PROCESS_PAIR,
    pairs_to_settle,
)
from trainperf_mlflow.analysis.signal import Signal, choose_signal
from trainperf_mlflow.analysis.signed_rank import Interval, signed_rank_interval
from trainperf_mlflow.results.estimates import Direction, PairedEstimate
from trainperf_mlflow.results.record import Status
from trainperf_mlflow.results.values import BlockValues, VariantValues

# Smaller differences are the same, in percent; identical processes differ by up to half of it.
MARGIN_PCT = 1.0
# Spread of identical processes' step times with the fixed allocator, log ratio (measured: 0.2 %
# to 0.5 %); a study's own spread counts where it is larger.
BETWEEN_PROCESSES = 0.005
# From the median absolute deviation to the standard deviation of a normal distribution.
_MAD_TO_SD = 1.4826
# What no step takes, in ms: clocks that disagree, or a record that was not measured.
_SHORTEST_MS, _LONGEST_MS = 1e-9, 1e12


def pairs_of(baseline: VariantValues, candidate: VariantValues) -> list[Pair]:
    """The pairs of rounds in which both succeeded, in the order of measurement.

    Blocks without a time that a step can take have no ratio, and are in no pair.
    """
    theirs = {
        repeat.index: {block.index: block for block in repeat.blocks}
        for repeat in baseline.repeats
        if repeat.status is Status.OK
    }
    return [
        Pair((repeat.index, before.process, block.process), before, block)
        for repeat in candidate.repeats
        if repeat.status is Status.OK
        for block in repeat.blocks
        if (before := theirs.get(repeat.index, {}).get(block.index)) is not None
        and _timed(before)
        and _timed(block)
    ]


def estimate_time(
    pairs: Sequence[Pair],
    *,
    device: str,
    data_workers: bool = False,
    level: float = 0.95,
    looks: int = 1,
    margin_pct: float = MARGIN_PCT,
    between: float = BETWEEN_PROCESSES,
) -> PairedEstimate | None:
    """What the pairs say about the candidate's time per sample; None without pairs.

    Args:
        level: of the interval, already corrected for looks and candidates.
        margin_pct: a smaller difference is the same.
        between: standard deviation between identical processes, as a log ratio.
    """
    if not pairs:
        return None
    signal = choose_signal(
        (block for pair in pairs for block in _blocks(pair)), device, data_workers
    )
    pair_s, measured = _seconds_per_pair(pairs), len(pairs)
    pairs, noisy, kept = gated(pairs, signal.name == "gated wall", level)
    ratios = [_log_ratio(pair, signal.low) for pair in pairs]
    groups = [pair.process_pair for pair in pairs]
    processes = len(set(groups))
    interval = widened(ratios, groups, level, between)
    if processes < MIN_PROCESS_PAIRS:
        interval = Interval(interval.estimate, -math.inf, math.inf)
    stalls = _stalls(pairs, signal, level, margin_pct)
    gain = Interval(*(_saved_pct(value) for value in interval))
    step_ms = median(signal.mean(pair.baseline) for pair in pairs)
    known = math.isfinite(interval.low) and math.isfinite(interval.high)
    direction = direction_of(gain.low, gain.high, margin_pct) if known else "undecided"
    made = PairedEstimate(
        estimate_pct=gain.estimate,
        low_pct=gain.low if known else None,
        high_pct=gain.high if known else None,
        speedup=math.exp(interval.estimate),
        saved_ms=step_ms * gain.estimate / 100,
        saved_ms_low=step_ms * gain.low / 100 if known else None,
        saved_ms_high=step_ms * gain.high / 100 if known else None,
        level=level,
        looks=looks,
        pairs=len(pairs),
        process_pairs=processes,
        disturbed_pairs=noisy,
        set_aside=measured - len(pairs),
        margin_pct=margin_pct,
        direction="undecided" if stalls else direction,
        signal=signal.name,
        signal_reason="; ".join(filter(None, (signal.reason, kept))),
        stalls=stalls,
        pair_s=pair_s,
    )
    return _with_advice(made)


def widened(
    ratios: Sequence[float], groups: Sequence[tuple[int, ...]], level: float, between: float
) -> Interval:
    """The signed-rank interval of the ratios, widened by the spread between process pairs.

    Half-widths add as independent errors do: ``sqrt(h^2 + (z sigma / sqrt(process pairs))^2)``
    with the larger of the known and the seen spread for sigma. Where each pair has processes of
    its own, the pairs are independent and their interval holds that spread already.
    """
    interval = signed_rank_interval(ratios, level)
    if len(set(groups)) == len(groups):
        return interval
    spread = max(between, _spread_between(ratios, groups))
    z = NormalDist().inv_cdf((1 + level) / 2)
    extra = z * spread / math.sqrt(len(set(groups)))
    return Interval(
        interval.estimate,
        interval.estimate - math.hypot(interval.estimate - interval.low, extra),
        interval.estimate + math.hypot(interval.high - interval.estimate, extra),
    )


def direction_of(low_pct: float, high_pct: float, margin_pct: float) -> Direction:
    """What an interval shows; a verdict only where all of it lies on one side of a margin.

    >>> direction_of(1.5, 6.0, 1.0), direction_of(-0.5, 0.7, 1.0), direction_of(0.5, 3.0, 1.0)
    ('faster', 'same', 'undecided')
    """
    if low_pct > margin_pct:
        return "faster"
    if high_pct < -margin_pct:
        return "slower"
    return "same" if low_pct >= -margin_pct and high_pct <= margin_pct else "undecided"


def spread_of(pairs: Sequence[Pair], device: str, data_workers: bool) -> float:
    """The standard deviation between identical processes, log ratio: at most this, 80 % sure."""
    signal = choose_signal(
        (block for pair in pairs for block in _blocks(pair)), device, data_workers
    )
    used = gated(pairs, signal.name == "gated wall").pairs
    return _spread_between(
        [_log_ratio(pair, signal.low) for pair in used],
        [pair.process_pair for pair in used],
        doubt=True,
    )


def interval_deltas(
    baseline: VariantValues, candidate: VariantValues, time: PairedEstimate | None
) -> dict[str, float]:
    """What the pairs and rounds add to a comparison's ``delta``; bounds that are not known are
    absent."""
    deltas: dict[str, float | None] = {}
    if time is not None:
        deltas |= {
            "step_time_pct": time.estimate_pct,
            "step_time_pct_low": time.low_pct,
            "step_time_pct_high": time.high_pct,
            "step_time_ms_low": time.saved_ms_low,
            "step_time_ms_high": time.saved_ms_high,
            "speedup": time.speedup,
        }
        memory = saved_by_round(baseline, candidate, "peak_mem_mb")
        if memory is not None and baseline.peak_mem_source == candidate.peak_mem_source:
            deltas |= {"peak_mem_mb_low": memory.low, "peak_mem_mb_high": memory.high}
    return {name: value for name, value in deltas.items() if value is not None}


def more_for(estimate: PairedEstimate, target_pct: float) -> int | None:
    """About how many more pairs would tell the gain from ``target_pct``; None: no use.

    As many of them are taken to be set aside as of those that were measured.
    """
    if estimate.low_pct is None or estimate.high_pct is None:
        return _to_the_first_interval(estimate)
    half = (estimate.high_pct - estimate.low_pct) / 2
    measured = estimate.pairs + estimate.set_aside
    more = pairs_to_settle(measured, half, abs(estimate.estimate_pct - target_pct))
    # What is open now is not settled by no pairs at all, whatever the rounding says.
    return None if more is None else max(more, PAIRS_PER_PROCESS_PAIR)


def advice(more_pairs: int | None, pair_s: float) -> str:
    """In words, what would settle what is open.

    >>> advice(14, 9.0)
    'about 14 more pairs (2 minutes) would settle it'
    """
    if more_pairs is None:
        return "more pairs on this machine as it is would not settle it; measure when it is quiet"
    return f"about {more_pairs} more pairs ({_duration(more_pairs * pair_s)}) would settle it"


def _duration(seconds: float) -> str:
    if seconds < 100:
        return f"{max(1, round(seconds))} s"
    minutes = round(seconds / 60)
    return f"{minutes} minutes" if minutes < 100 else f"{minutes / 60:.1f} hours"


def _with_advice(made: PairedEstimate) -> PairedEstimate:
    if made.direction != "undecided" or made.stalls:
        return made
    margins = (-made.margin_pct, made.margin_pct)
    # The margin next to the estimate is the one that stands between it and a verdict.
    more = more_for(made, min(margins, key=lambda margin: abs(made.estimate_pct - margin)))
    return made.model_copy(
        update={"more_pairs": more, "what_would_settle": advice(more, made.pair_s)}
    )


def _to_the_first_interval(estimate: PairedEstimate) -> int:
    measured = estimate.pairs + estimate.set_aside
    missing = MIN_PROCESS_PAIRS * PAIRS_PER_PROCESS_PAIR - measured
    return max(missing, PAIRS_PER_PROCESS_PAIR)


def _timed(block: BlockValues) -> bool:
    times = (block.mean_ms, block.low_ms, block.net_mean_ms, block.net_low_ms)
    return all(_SHORTEST_MS <= time <= _LONGEST_MS for time in times if time is not None)


def _blocks(pair: Pair) -> tuple[BlockValues, BlockValues]:
    return pair.baseline, pair.candidate


def _log_ratio(pair: Pair, time_ms: Callable[[BlockValues], float]) -> float:
    """Positive where the candidate is faster, per sample."""
    before, after = (math.log(time_ms(block)) for block in _blocks(pair))
    ours, theirs = pair.candidate.samples_per_step, pair.baseline.samples_per_step
    return before - after + (math.log(ours / theirs) if ours and theirs else 0.0)


def _saved_pct(log_ratio: float) -> float:
    """Part of the baseline's time that is saved, in percent; -inf where it costs endlessly."""
    return -100 * math.expm1(-log_ratio) if log_ratio > -700 else -math.inf


def _spread_between(
    ratios: Sequence[float], groups: Sequence[tuple[int, ...]], *, doubt: bool = False
) -> float:
    """The standard deviation between process pairs that the spread within them leaves over.

    Within them it is taken from the median absolute deviation, because a neighbour makes
    outliers. With ``doubt`` it is the upper end of a one-sided interval of 80 %: few process
    pairs often look more alike than they are.
    """
    members: dict[tuple[int, ...], list[float]] = {}
    for group, ratio in zip(groups, ratios, strict=True):
        members.setdefault(group, []).append(ratio)
    if len(members) < 2:
        return 0.0
    centres = {group: signed_rank_interval(own, 0.5).estimate for group, own in members.items()}
    size = len(ratios) / len(members)
    seen = variance(centres.values())
    if doubt:
        seen *= (len(members) - 1) / _chi_squared_20(len(members) - 1)
    if size <= 1:
        return math.sqrt(seen)
    deviations = [abs(ratio - centres[group]) for group, ratio in zip(groups, ratios, strict=True)]
    # The centre follows its own group, which makes the deviations from it smaller.
    within = _MAD_TO_SD * median(deviations) * math.sqrt(size / (size - 1))
    return math.sqrt(max(0.0, seen - within**2 / size))


def _chi_squared_20(freedom: int) -> float:
    """The 20 % quantile (Wilson and Hilferty, PNAS 1931).

    >>> round(_chi_squared_20(7), 1)
    3.8
    """
    part = 2 / (9 * freedom)
    return freedom * (1 - part + NormalDist().inv_cdf(0.2) * math.sqrt(part)) ** 3


def _stalls(pairs: Sequence[Pair], signal: Signal, level: float, margin_pct: float) -> str | None:
    """Whether mean steps tell another story than the fastest ones, by more than the margin.

    Steps that now and then take long (a data loader that runs dry, memory that is handed back)
    hardly move the fastest. Their cost is real, but how often they come is not known well.
    """
    apart = signed_rank_interval(
        [_log_ratio(pair, signal.mean) - _log_ratio(pair, signal.low) for pair in pairs], level
    )
    low, high = _saved_pct(apart.low), _saved_pct(apart.high)
    if low <= margin_pct and high >= -margin_pct:
        return None
    who = "candidate" if apart.estimate < 0 else "baseline"
    return (
        f"some steps of the {who} stall: by its mean step it is "
        f"{abs(_saved_pct(apart.estimate)):.1f} % slower than by its usual one"
    )


def _seconds_per_pair(pairs: Sequence[Pair]) -> float:
    """From the first block's start to the last one's end, per pair: other variants included."""
    blocks = [block for pair in pairs for block in _blocks(pair)]
    begin = min(block.started_at for block in blocks)
    end = max(block.started_at + block.wall_s for block in blocks)
    return max(end - begin, sum(block.wall_s for block in blocks)) / len(pairs)
