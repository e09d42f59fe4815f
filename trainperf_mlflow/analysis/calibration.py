"""What the measurement of identical code says about a machine, and what studies make of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist

from trainperf_mlflow.analysis.gate import Pair
from trainperf_mlflow.analysis.paired import (
    BETWEEN_PROCESSES,
    MARGIN_PCT,
    estimate_time,
    spread_of,
)
from trainperf_mlflow.analysis.sequential import MIN_PROCESS_PAIRS, PAIRS_PER_PROCESS_PAIR
from trainperf_mlflow.results.estimates import PairedEstimate
from trainperf_mlflow.results.study import Calibration

# The smallest margin that a calibration can earn, in percent; never 0.
CALIBRATED_MARGIN_PCT = 0.5
# How often the smallest detectable change is found.
POWER = 0.9
# A machine on which identical code may look so different tells nothing, in percent.
UNFIT_PCT = 5.0


def margin_pct(calibration: Calibration | None) -> float:
    """A smaller difference is the same, in percent: a calibration of the same workload narrows
    what is taken without one, down to what identical code differs by."""
    if calibration is None or not calibration.same_workload:
        return MARGIN_PCT
    return min(MARGIN_PCT, max(CALIBRATED_MARGIN_PCT, calibration.noise_floor_pct))


def between_processes(calibration: Calibration | None) -> float:
    """The spread between identical processes, log ratio: the usual one, or more where a
    calibration found more."""
    found = 0.0 if calibration is None else calibration.between_process_pct / 100
    return max(BETWEEN_PROCESSES, found)


def estimate_identical(
    pairs: Sequence[Pair], device: str, data_workers: bool
) -> tuple[PairedEstimate | None, float]:
    """What pairs of identical code say: the interval, widened by their own spread between
    processes, and that spread in percent."""
    spread = spread_of(pairs, device, data_workers)
    time = estimate_time(pairs, device=device, data_workers=data_workers, between=spread)
    return time, 100 * spread


def calibration_of(
    time: PairedEstimate, between_pct: float, run_id: str, at: float, workload: str
) -> Calibration | None:
    """The machine's numbers, or None where the pairs are too few for an interval."""
    if time.low_pct is None or time.high_pct is None:
        return None
    made = Calibration(
        run_id=run_id,
        calibrated_at=at,
        workload=workload,
        noise_floor_pct=max(abs(time.low_pct), abs(time.high_pct)),
        between_process_pct=between_pct,
        smallest_detectable_pct=0.0,
        pairs=time.pairs,
        process_pairs=time.process_pairs,
    )
    found = smallest_detectable_pct(time, made)
    return made.model_copy(update={"smallest_detectable_pct": found})


def smallest_detectable_pct(time: PairedEstimate, calibration: Calibration) -> float:
    """The change that a study of the default size tells from none in 90 of 100 cases, percent.

    The interval's part from the pairs narrows with the square root of their number, that of the
    processes with the root of theirs; the estimate lies beyond margin and half-width in 90 % of
    the cases when the truth does so by another 1.28 standard errors.
    """
    assert time.low_pct is not None and time.high_pct is not None  # noqa: PT018
    normal = NormalDist()
    z = normal.inv_cdf((1 + time.level) / 2)
    half = (time.high_pct - time.low_pct) / 2
    own = z * calibration.between_process_pct / math.sqrt(time.process_pairs)
    pairs, measured = MIN_PROCESS_PAIRS * PAIRS_PER_PROCESS_PAIR, time.pairs + time.set_aside
    within = math.sqrt(max(0.0, half**2 - own**2) * measured / pairs)
    spread = 100 * between_processes(calibration)
    wide = math.hypot(within, z * spread / math.sqrt(MIN_PROCESS_PAIRS))
    return margin_pct(calibration) + wide * (1 + normal.inv_cdf(POWER) / z)


def unfit(time: PairedEstimate | None, calibration: Calibration | None) -> str | None:
    """Why a calibration says that this machine is not fit for verdicts; None where it is."""
    if time is None or calibration is None:
        return "the pairs are too few for an interval; give more --repeats"
    if time.stalls:
        return time.stalls
    if time.direction in ("faster", "slower"):
        return f"identical code was measured as {time.direction} ({time.estimate_pct:+.1f} %)"
    if calibration.noise_floor_pct > UNFIT_PCT:
        return f"identical code may look {calibration.noise_floor_pct:.1f} % different"
    return None
