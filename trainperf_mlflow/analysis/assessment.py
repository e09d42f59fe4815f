"""What holds a study's variants back, whether its hypothesis holds, and what to try next.

It explains a comparison and never decides: all of it rests on what phases, traces
and repeats have shown, and what they have not is listed as missing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from trainperf_mlflow.analysis.bottlenecks import PAIR_RULES, RULES
from trainperf_mlflow.analysis.explained import Explained, Summary
from trainperf_mlflow.analysis.hypothesis import ENOUGH_TIMES, assess_candidate
from trainperf_mlflow.results.assessment import Assessment, Statement, Suggestion
from trainperf_mlflow.results.comparison import Comparison
from trainperf_mlflow.results.values import VariantValues

_MEMORY_GOALS = ("peak_mem", "peak_reserved", "host_peak_rss")
# Enough of a run's id to name the study in a command.
_ID_CHARS = 8


def assess(
    comparison: Comparison,
    variants: Sequence[VariantValues],
    phases: Mapping[str, Summary] | None = None,
    profiles: Mapping[str, Summary] | None = None,
) -> Assessment:
    """The assessment of a study as it is known now.

    Args:
        comparison: what was decided, for the study's hypothesis, goal and best candidate.
        variants: the values of its variants.
        phases: each variant's ``phases/phases.json``, by name, as far as there is one.
        profiles: the same of ``profile/summary.json``.
    """
    found = [
        Explained(v, (phases or {}).get(v.name, {}), (profiles or {}).get(v.name, {}))
        for v in variants
    ]
    baseline = next((each for each in found if each.values.role == "baseline"), None)
    candidates = [each for each in found if each is not baseline]
    assessed = tuple(
        assess_candidate(comparison.hypothesis, baseline, candidate)
        for candidate in candidates
        if baseline is not None
    )
    about = next(
        (each for each in assessed if each.variant == comparison.best_candidate),
        assessed[0] if assessed else None,
    )
    statements = tuple(_statements(baseline, found))
    return Assessment(
        study_id=comparison.study_id,
        hypothesis=comparison.hypothesis,
        bottleneck=baseline.bottleneck if baseline else None,
        peak_phase=baseline.peak_phase if baseline else None,
        about=about.variant if about else None,
        verdict=about.verdict if about else None,
        candidates=assessed,
        statements=statements,
        next=tuple(_ranked(comparison, statements, _tried(baseline, candidates))),
        missing=tuple(_missing(comparison, found)),
    )


def _statements(baseline: Explained | None, found: Sequence[Explained]) -> Iterator[Statement]:
    for variant in found:
        made = [rule(variant) for rule in RULES]
        if baseline is not None and variant is not baseline:
            made += [rule(baseline, variant) for rule in PAIR_RULES]
        yield from (statement for statement in made if statement is not None)


def _tried(baseline: Explained | None, candidates: Sequence[Explained]) -> set[str]:
    """The settings in which a candidate differs from the baseline."""
    if baseline is None:
        return set()
    old = baseline.values.config
    return {
        key
        for candidate in candidates
        for key, value in candidate.values.config.items()
        if old.get(key) != value
    }


def _ranked(
    comparison: Comparison, statements: Sequence[Statement], tried: set[str]
) -> list[Suggestion]:
    """Each suggestion once, for what would be kept now: first what serves the study's aim, then
    the largest win."""
    kept = comparison.best_candidate if comparison.decision.decision == "accept" else None
    baseline = comparison.baseline.name if comparison.baseline else None
    base_of_all = kept or baseline
    wanted: dict[str, Suggestion] = {}
    for statement in statements:
        made = statement.suggestion
        if made is None or made.win <= 0 or made.setting in tried:
            continue
        # What the baseline or the accepted candidate shows can still be won; a candidate's own
        # cost too, as it may be what stands in its way.
        if base_of_all in (None, made.variant) or statement.code in _COSTS:
            known = wanted.get(made.code)
            if known is None or known.win < made.win:
                wanted[made.code] = made
    aim = _aim(comparison)
    return sorted(wanted.values(), key=lambda s: (aim is not None and s.win_in != aim, -s.win))


_COSTS = frozenset({"recompute", "exposed_copy"})


def _aim(comparison: Comparison) -> str | None:
    """What the study wants to save: time or memory."""
    if comparison.goal in _MEMORY_GOALS:
        return "memory"
    if comparison.goal is not None:
        return "time"
    if comparison.hypothesis is None:
        return None
    return "memory" if comparison.hypothesis == "memory" else "time"


def _missing(comparison: Comparison, found: Sequence[Explained]) -> Iterator[str]:
    if any(variant.values.peak_mem_source == "reported" for variant in found):
        yield "the study was imported: nothing of it can be run again to look further"
        return
    ref = comparison.study_id[:_ID_CHARS]
    if not any(variant.has_phases for variant in found):
        yield f"no phases yet: trainperf phase {ref}"
    else:
        few = [v.name for v in found if 0 < len(v.repeats_ms()) < ENOUGH_TIMES]
        if few:
            yield (
                f"fewer than {ENOUGH_TIMES} repeats of the phases of {', '.join(few)}, so their "
                f"times show no trend: trainperf phase {ref}"
            )
        yield from _ended(found, "phases")
    if not any(variant.has_trace for variant in found):
        yield f"no traces yet: trainperf profile {ref}"
    else:
        yield from _ended(found, "profile")


def _ended(found: Sequence[Explained], what: str) -> Iterator[str]:
    """Variants of which nothing was seen although others were looked at."""
    for variant in found:
        summary: Summary = getattr(variant, what)
        if variant.has_phases if what == "phases" else variant.has_trace:
            continue
        status = summary.get("status")
        why = f"{status}, {summary.get('error')}" if status and status != "ok" else "not there"
        yield f"no {'phases' if what == 'phases' else 'trace'} of {variant.name}: {why}"
