"""Did a candidate relieve the phase that it was meant to, and where did the cost move?"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence

from trainperf_mlflow.analysis.explained import Explained, mib, percent
from trainperf_mlflow.attribution import PHASES
from trainperf_mlflow.results.assessment import CandidateAssessment, PhaseChange, Trend, Verdict

# Three values on each side are apart by chance once in ten times, two once in three.
ENOUGH_TIMES = 3
# A peak is counted, not timed: the same code gives the same one.
ENOUGH_PEAKS = 1
# Smaller differences are none: the margin that the research on noise uses for step times.
MARGIN = 0.02
# A phase that holds less of what the step saves is not what the gain came from.
SHARE_OF_GAIN = 0.5


def assess_candidate(
    hypothesis: str | None, baseline: Explained, candidate: Explained
) -> CandidateAssessment:
    """The candidate's phases against the baseline's, and what they say of the hypothesis.

    Args:
        hypothesis: data, forward, backward, optimizer or memory; None where there is none.
    """
    time, memory = time_changes(baseline, candidate), memory_changes(baseline, candidate)
    verdict: Verdict | None = None
    text = "the study has no hypothesis"
    if hypothesis == "memory":
        verdict, text = _of_memory(baseline, candidate)
    elif hypothesis is not None:
        verdict, text = _of_phase(hypothesis, time, step_change(baseline, candidate))
    moved_to, moved = _moved(baseline, candidate, time)
    return CandidateAssessment(
        variant=candidate.name,
        verdict=verdict,
        text=text,
        bottleneck=candidate.bottleneck,
        peak_phase=candidate.peak_phase,
        relieved=time[baseline.bottleneck].trend if baseline.bottleneck in time else None,
        time=time,
        memory=memory,
        moved_to=moved_to,
        moved=moved,
    )


def trend(before: Sequence[float], after: Sequence[float], enough: int) -> Trend:
    """How values of repeats changed, beyond their own spread and the margin.

    They shrank or grew where the two ranges are apart, are the same where all lie within
    the margin, and else nobody can tell; ``unknown`` where there are too few of them.

    >>> trend([10.0, 11.0, 10.5], [8.0, 8.2, 8.1], 3), trend([10.0], [10.05], 1)
    ('shrank', 'same')
    """
    both = [*before, *after]
    if min(len(before), len(after)) < enough:
        return "unknown"
    if not all(map(math.isfinite, both)):
        return "unclear"
    margin = MARGIN * abs(statistics.fmean(before))
    saved = statistics.fmean(before) - statistics.fmean(after)
    if max(after) < min(before) and saved > margin:
        return "shrank"
    if min(after) > max(before) and -saved > margin:
        return "grew"
    return "same" if max(both) - min(both) <= margin else "unclear"


def time_changes(baseline: Explained, candidate: Explained) -> dict[str, PhaseChange]:
    """Each phase's time for the baseline's samples, in ms; empty without both sides' phases."""
    scale = _per_work(baseline, candidate)
    return {
        phase: _change(
            baseline.repeats_ms(phase),
            [ms * scale for ms in candidate.repeats_ms(phase)],
            ENOUGH_TIMES,
        )
        for phase in PHASES
        if phase in baseline.phase_ms and phase in candidate.phase_ms
    }


def step_change(baseline: Explained, candidate: Explained) -> PhaseChange | None:
    """The same of the whole marked step."""
    before, after = baseline.repeats_ms(), candidate.repeats_ms()
    if not before or not after:
        return None
    scale = _per_work(baseline, candidate)
    return _change(before, [ms * scale for ms in after], ENOUGH_TIMES)


def memory_changes(baseline: Explained, candidate: Explained) -> dict[str, PhaseChange]:
    """Each phase's peak in MiB; empty where other sources counted them."""
    if baseline.phases.get("peak_mem_source") != candidate.phases.get("peak_mem_source"):
        return {}
    return {
        phase: _change(
            baseline.repeats_peak_mb(phase), candidate.repeats_peak_mb(phase), ENOUGH_PEAKS
        )
        for phase in PHASES
        if phase in baseline.peak_mb and phase in candidate.peak_mb
    }


def _change(before: Sequence[float], after: Sequence[float], enough: int) -> PhaseChange:
    return PhaseChange(
        before=statistics.fmean(before),
        after=statistics.fmean(after),
        trend=trend(before, after, enough),
    )


def _per_work(baseline: Explained, candidate: Explained) -> float:
    """By what the candidate's times are multiplied to be those of the baseline's samples."""
    before, after = (side.phases.get("samples_per_step") for side in (baseline, candidate))
    return float(before) / float(after) if before and after else 1.0


# --- the hypothesis ----------------------------------------------------------------------------


def _of_phase(
    phase: str, time: Mapping[str, PhaseChange], step: PhaseChange | None
) -> tuple[Verdict, str]:
    change = time.get(phase)
    if change is None or step is None:
        return "not_shown", f"{phase} was not measured on both sides"
    seen = f"{phase} {_ms(change.before)} -> {_ms(change.after)}"
    if change.trend == "grew":
        return "refuted", f"{seen}: it grew"
    if change.trend == "same":
        return "refuted", f"{seen}: it did not shrink"
    if change.trend == "unknown":
        return "not_shown", f"{seen}: fewer than {ENOUGH_TIMES} repeats show no change"
    if change.trend == "unclear":
        return "not_shown", f"{seen}: that is within the repeats' spread"
    if step.trend != "shrank":
        return "not_shown", (
            f"{seen}: it shrank, but the whole step did not ({_ms(step.before)} -> "
            f"{_ms(step.after)})"
        )
    share = change.saved / step.saved
    if share < SHARE_OF_GAIN:
        return (
            "not_shown",
            f"{seen}: it shrank, but that is only {percent(share)} of the step's gain",
        )
    return "supported", f"{seen}: {percent(share)} of the step's gain of {_ms(step.saved)}"


def _of_memory(baseline: Explained, candidate: Explained) -> tuple[Verdict, str]:
    """The peak is that of the study's own repeats, which need no phases."""
    if baseline.values.peak_mem_source != candidate.values.peak_mem_source:
        return "not_shown", "the peaks were counted in different ways"
    before, after = (side.measured("peak_mem_mb") for side in (baseline, candidate))
    if not before or not after:
        return "not_shown", "peak memory was not measured on both sides"
    change = _change(before, after, ENOUGH_PEAKS)
    seen = f"peak memory {mib(change.before)} -> {mib(change.after)} MiB"
    held = candidate.peak_phase
    why = f"; the {held} phase holds the peak" if held else ""
    if change.trend == "shrank":
        return "supported", f"{seen}: {percent(change.saved / change.before)} less{why}"
    if change.trend == "unclear":
        return "not_shown", f"{seen}: that is within the repeats' spread{why}"
    return "refuted", f"{seen}: it {'grew' if change.trend == 'grew' else 'did not shrink'}{why}"


# --- where it moved ----------------------------------------------------------------------------


def _moved(
    baseline: Explained, candidate: Explained, time: Mapping[str, PhaseChange]
) -> tuple[str | None, str]:
    """The phase that took on cost, and in words also a new bottleneck or peak phase."""
    if not time:
        return None, "not known: there are no phases of both"
    # What is nothing to the step is no place for its cost.
    matters = MARGIN * sum(change.before for change in time.values())
    grown = {
        phase: -c.saved for phase, c in time.items() if c.trend == "grew" and -c.saved > matters
    }
    said = [f"{phase} grew by {_ms(ms)}" for phase, ms in grown.items()]
    moved_to = max(grown, key=grown.__getitem__, default=None)
    before, after = baseline.bottleneck, candidate.bottleneck
    repeats = min(len(baseline.repeats_ms()), len(candidate.repeats_ms()))
    if repeats < ENOUGH_TIMES:
        said.append(f"not known with {repeats} repeat{'s' * (repeats != 1)}")
    elif before and after and before != after and _clearly_longer(time, after, before):
        moved_to = moved_to or after
        said.append(f"{after} instead of {before} takes the most time")
    if another_peak(baseline, candidate):
        said.append(
            f"{candidate.peak_phase} instead of {baseline.peak_phase} holds the memory's peak"
        )
    unclear = [
        phase
        for phase, c in time.items()
        if c.trend == "unclear" and max(c.before, c.after) > matters
    ]
    if not said and unclear:
        return None, f"not shown: {_listed(unclear)} changed within the repeats' spread"
    return moved_to, "; ".join(said) or "nowhere: no phase grew"


def another_peak(baseline: Explained, candidate: Explained) -> bool:
    """Another phase than the baseline's holds the peak, by more than the margin."""
    before, after = baseline.peak_phase, candidate.peak_phase
    if before is None or after is None or before == after:
        return False
    peaks = candidate.peak_mb
    return peaks[after] > peaks.get(before, 0.0) * (1 + MARGIN)


def _clearly_longer(time: Mapping[str, PhaseChange], one: str, other: str) -> bool:
    if one not in time or other not in time:
        return False
    return time[one].after > time[other].after * (1 + MARGIN)


def _listed(names: Sequence[str]) -> str:
    """
    >>> _listed(["data", "forward", "other"])
    'data, forward and other'
    """
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def _ms(value: float) -> str:
    return f"{value:.3g} ms"
