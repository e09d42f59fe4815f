"""The question, and the answer that a reader finds in the first seconds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from trainperf_mlflow.decisions.evidence import OPEN_REASONS, RESTS_ON_GAINS
from trainperf_mlflow.reporting.report.material import Material, name, said
from trainperf_mlflow.reporting.report.parts import Figure, Tone, Verdict
from trainperf_mlflow.reporting.report.texts import Words
from trainperf_mlflow.reporting.report.told import reason_told
from trainperf_mlflow.reporting.text import number
from trainperf_mlflow.results.comparison import CandidateComparison
from trainperf_mlflow.results.decision import Decision

_OPEN_TONE: dict[str, Tone] = {"saves": "good", "costs": "bad"}
# Without as many process pairs there is no interval.
_ENOUGH_PROCESS_PAIRS = 3


def question(material: Material, words: Words) -> str:
    candidates = material.comparison.candidates
    if material.study.kind == "calibration":
        return words("question.calibration")
    if material.comparison.baseline is None:
        return words("question.probe")
    goal, changes = material.comparison.goal, material.candidate_names
    many = len(candidates) > 1
    if goal is None:
        return words("question.many" if many else "question.one", changes=changes)
    asked = "question.many.goal" if many else "question.one.goal"
    return words(asked, changes=changes, goal=words.of("goal", name(goal)))


def verdict(material: Material, words: Words) -> Verdict:
    decision = material.comparison.standing
    return Verdict(
        decision=decision.decision,
        word=words(f"decision.{decision.decision}"),
        headline=_headline(material, words),
        sure=_sure(material, words),
        reason=reason_told(decision, words),
        settle=_settle(material, words),
        next=next_step(decision, words),
        figures=tuple(_figures(material, words)),
        measured=_measured(material, words),
    )


def _sure(material: Material, words: Words) -> str:
    decision, noise = material.comparison.standing, material.comparison.noise
    if decision.decision == "measure":
        return words("sure.measure")
    about = [material.best] if material.best is not None else material.comparison.candidates
    times = [candidate.time for candidate in about if candidate.time is not None]
    aside = sum(time.set_aside for time in times)
    if decision.confidence != "confirmed" or noise is None:
        return words(f"sure.{decision.confidence}")
    if noise.level == "quiet" and not aside:
        return words("sure.confirmed")
    return words(
        "sure.confirmed.noisy",
        disturbed=noise.disturbed_blocks,
        blocks=noise.blocks,
        aside=aside,
        pairs=aside + sum(time.pairs for time in times),
    )


def next_step(decision: Decision, words: Words) -> str:
    # Going back to the baseline says it already.
    rollback = decision.rollback and not decision.next_action.startswith("restore_baseline")
    step = said(words.of("next", decision.next_action))
    return words("next_and_rollback", step=step) if rollback else step


def _headline(material: Material, words: Words) -> str:
    closed = material.comparison.closed
    held = words("headline.closed", label=name(closed.label)) if closed is not None else ""
    return held + _answer(material, words)


def _answer(material: Material, words: Words) -> str:
    comparison = material.comparison
    decision, best = comparison.standing.decision, material.best
    if decision == "measure":
        calibration = material.study.kind == "calibration"
        return words("headline.calibration" if calibration else "headline.measure")
    if decision == "reject" and len(comparison.candidates) > 1:
        return words("headline.reject.many", count=len(comparison.candidates))
    if best is None and decision == "tune":
        return words("headline.tune.none")
    about = best.variant if best is not None else material.candidate_names
    return words(f"headline.{decision}", best=name(about))


def _measured(material: Material, words: Words) -> str:
    """The decision of the measurement, where that of a close holds."""
    comparison = material.comparison
    decision = comparison.decision
    if comparison.closed is None:
        return ""
    return words(
        "measured.decision",
        decision=words(f"decision.{decision.decision}"),
        sure=words(f"confidence.{decision.confidence}"),
        reason=reason_told(decision, words),
    )


def _settle(material: Material, words: Words) -> str:
    decision = material.comparison.standing
    if material.comparison.closed is not None:
        return ""  # its decision is final
    if decision.decision == "measure" or decision.confidence == "confirmed":
        return ""
    if material.imported:
        return words("settle.imported")
    if not _left_open(decision):
        return ""  # more pairs change nothing: the next step says what would
    if decision.confidence == "unfit":
        return words("settle.unfit")
    time = material.best.time if material.best is not None else None
    if time is None or time.process_pairs < _ENOUGH_PROCESS_PAIRS:
        return words("settle.repeats")
    more = decision.numbers.get("more_pairs", time.more_pairs)
    if more is not None:
        return words("settle.pairs", pairs=round(more), time=_duration(more * time.pair_s, words))
    open_ = decision.reason in OPEN_REASONS or time.what_would_settle is not None
    return words("settle.hopeless" if open_ else "settle.rule")


def _left_open(decision: Decision) -> bool:
    """Whether it is the intervals that leave a decision open, and not a failure or a budget."""
    open_reasons = (*OPEN_REASONS, *RESTS_ON_GAINS)
    return decision.decision == "accept" or decision.reason in open_reasons


def _duration(seconds: float, words: Words) -> str:
    if seconds < 100:
        return words("seconds", count=max(1, round(seconds)))
    return words("minutes", count=round(seconds / 60))


# --- the numbers beside it ---------------------------------------------------------------------


def _figures(material: Material, words: Words) -> Iterator[Figure]:
    best, baseline = material.best, material.comparison.baseline
    if best is None or baseline is None:
        return
    yield _time(best, baseline.metrics, words)
    yield _memory(best, baseline.metrics, words)
    yield _quality(material, best, words)


def _time(best: CandidateComparison, before: dict[str, float], words: Words) -> Figure:
    title = words("figure.time")
    percent = best.delta.get("step_time_pct")
    if percent is None:
        return Figure(title, words("unmeasured"), "", "faint")
    times = [metrics.get("step_time_ms") for metrics in (before, best.metrics)]
    from_to = words(
        "from_to.wall", before=number(times[0], 2), after=number(times[1], 2), unit="ms"
    )
    time = best.time
    worded = time is None or time.direction in ("faster", "slower")
    interval = time_interval(
        best, words, "interval" if worded else "interval.saved", percent if worded else 0.0
    )
    detail = (
        words("interval.beside", interval=interval, from_to=from_to)
        if interval
        else words(
            "interval.none", before=number(times[0], 2), after=number(times[1], 2), unit="ms"
        )
    )
    if time is not None and time.direction == "same":
        return Figure(title, words("same.within", margin=f"{time.margin_pct:g}"), detail)
    if time is not None and time.direction == "undecided":
        return Figure(title, words("undecided"), detail, "warn")
    value, tone = saved(percent, f"{abs(percent):.1f} %", words)
    return Figure(title, value, detail, tone)


def time_interval(candidate: CandidateComparison, words: Words, text: str, sign: float) -> str:
    """The difference in time in percent with its interval; empty where there is none.

    Args:
        text: the name of the sentence that shows them.
        sign: of what the word before it says.
    """
    names = ("step_time_pct_low", "step_time_pct", "step_time_pct_high")
    gains = [candidate.delta[name] for name in names if name in candidate.delta]
    if len(gains) < len(names):
        return ""
    low, value, high = as_worded(gains, sign)
    return words(text, value=value, low=low, high=high)


def as_worded(gains: Sequence[float], sign: float) -> list[str]:
    """Gains, the lowest first, as the word before them counts: after "costs" they are costs.

    >>> as_worded([-38.7, -34.0], -36.3), as_worded([-0.7, 2.1], 0.0)
    (['34.0', '38.7'], ['-0.7', '+2.1'])
    """
    if not sign:
        return [f"{gain:+.1f}" for gain in gains]
    return [f"{gain:z.1f}" for gain in (gains if sign > 0 else [-g for g in reversed(gains)])]


def saved(sign: float, shown: str, words: Words) -> tuple[str, Tone]:
    """A difference in words and its tone; positive is better."""
    if not sign:
        return words("same"), ""
    word = "saves" if sign > 0 else "costs"
    return words(word, value=shown), _OPEN_TONE[word]


def _memory(best: CandidateComparison, before: dict[str, float], words: Words) -> Figure:
    title = words("figure.memory")
    percent, absolute = best.delta.get("peak_mem_pct"), best.delta.get("peak_mem_mb")
    if absolute is None:
        return Figure(title, words("unmeasured"), "", "faint")
    detail = words(
        "from_to",
        before=number(before.get("peak_mem_mb"), 1),
        after=number(best.metrics.get("peak_mem_mb"), 1),
        unit="MiB",
    )
    shown = f"{abs(absolute):.1f} MiB" if percent is None else f"{abs(percent):.1f} %"
    sign = 0.0 if percent is not None and abs(percent) < 0.05 else absolute
    value, tone = saved(sign, shown, words)
    return Figure(title, value, detail, tone)


def _quality(material: Material, best: CandidateComparison, words: Words) -> Figure:
    title = words("figure.quality")
    change = best.delta.get("eval_loss")
    baseline = material.comparison.baseline
    before = baseline.metrics if baseline is not None else {}
    both = {best.variant, baseline.name if baseline is not None else best.variant}
    if change is None or both & set(material.without_quality()):
        return Figure(title, words("quality.unchecked"), "", "warn")
    detail = words(
        "from_to",
        before=number(before.get("eval_loss"), 4),
        after=number(best.metrics.get("eval_loss"), 4),
        unit="",
    ).strip()
    value, tone = loss_change(change, words)
    return Figure(title, value, detail, tone)


def loss_change(change: float, words: Words) -> tuple[str, Tone]:
    if abs(change) < 0.00005:
        return words("same"), ""
    if change > 0:
        return words("higher", value=f"{change:.4f}"), "bad"
    return words("lower", value=f"{-change:.4f}"), "good"
