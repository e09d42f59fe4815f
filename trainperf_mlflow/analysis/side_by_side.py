"""Plain means beside what pairs of neighbouring blocks say: one of the two is told, the pairs'.

Means of wall time hold whatever the machine did to one variant and not to the other; a pair's
two blocks saw the same. Where pairs were measured, gains in time and in rates are theirs.
"""

from __future__ import annotations

from collections.abc import Mapping

from trainperf_mlflow.results.comparison import CandidateComparison
from trainperf_mlflow.results.estimates import PairedEstimate

BASIS = (
    "step time and samples/s are wall time, mean; what they gain is from pairs measured side by "
    "side"
)
_RATES = ("samples_per_s", "tokens_per_s")


def told_gains(item: CandidateComparison, baseline: Mapping[str, float]) -> dict[str, float]:
    """A candidate's ``delta`` with time (ms) and rates (per s) from the pairs, where there are any.

    Args:
        baseline: its metrics.
    """
    time, delta = item.time, item.delta
    if time is None or "step_time_ms" not in delta:
        return delta
    rates = {
        rate: baseline[rate] * (time.speedup - 1)
        for rate in _RATES
        if rate in delta and rate in baseline
    }
    return {**delta, "step_time_ms": time.saved_ms, **rates}


def contradiction(times: tuple[float, float] | None, time: PairedEstimate | None) -> str | None:
    """What to say where means and pairs differ in sign, both by more than the margin; else None.

    Args:
        times: the means of baseline and candidate for the same number of samples, in ms.
    """
    if times is None or time is None or times[0] <= 0:
        return None
    saved_ms = times[0] - times[1]
    saved_pct = saved_ms / times[0] * 100
    if saved_pct * time.estimate_pct >= 0:
        return None
    if min(abs(saved_pct), abs(time.estimate_pct)) <= time.margin_pct:
        return None
    return (
        f"the plain means say {abs(saved_ms):.3g} ms {_way(saved_ms)}, the pairs measured side by "
        f"side {abs(time.estimate_pct):.3g} % {_way(time.estimate_pct)}; the pairs count"
    )


def _way(saved: float) -> str:
    return "faster" if saved > 0 else "slower"
