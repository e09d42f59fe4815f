"""What was measured: the table of results, phases, memory, losses, all repeats."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from trainperf_mlflow.analysis.side_by_side import told_gains
from trainperf_mlflow.attribution import CATEGORIES, PHASES
from trainperf_mlflow.decisions.reasons import REASONS
from trainperf_mlflow.reporting.budget import budget_lines
from trainperf_mlflow.reporting.losses import loss_lines
from trainperf_mlflow.reporting.report.material import Material, listed, name, of_repeats
from trainperf_mlflow.reporting.report.parts import (
    Cell,
    Items,
    Paragraph,
    Part,
    Picture,
    Section,
    Table,
    Tone,
)
from trainperf_mlflow.reporting.report.texts import Words
from trainperf_mlflow.reporting.report.told import reason_told, told
from trainperf_mlflow.reporting.report.verdict import as_worded, loss_change, saved, time_interval
from trainperf_mlflow.reporting.text import number
from trainperf_mlflow.results.comparison import CandidateComparison
from trainperf_mlflow.results.decision import Decision
from trainperf_mlflow.results.values import VariantValues

_METRICS = (
    ("step_time_ms", 2), ("samples_per_s", 2), ("peak_mem_mb", 1), ("eval_loss", 4), ("loss", 4),
)  # fmt: skip
_TONES: Mapping[str, Tone] = {"accept": "good", "tune": "warn", "reject": "bad", "measure": ""}
_COMPARED = ("ratios", "time_memory", "steps")


def results(material: Material, words: Words) -> Section:
    comparison = material.comparison
    parts: list[Part] = [results_table(material, words), Paragraph(words("results.how"), "faint")]
    parts.append(Items(tuple(_reasons(material, words))))
    notes = (
        words("variant", variant=name(c.variant), text=told(c.note, words))
        for c in _noted(material)
    )
    budget = (words("budget", text=told(line, words)) for line in budget_lines(comparison))
    parts += [Items(tuple(notes)), Items(tuple(budget))]
    parts += pictures(material, words, _COMPARED)
    return Section("results", words("results"), tuple(parts))


def results_table(material: Material, words: Words) -> Table:
    """One row a variant: metrics, what is saved with its interval, decision."""
    comparison, values = material.comparison, material.values
    before = {} if comparison.baseline is None else comparison.baseline.metrics
    metrics = [
        (metric, decimals)
        for metric, decimals in _METRICS
        if any(metric in variant.metrics for variant in material.variants)
    ]
    # The decision first: on a phone the last columns are off the screen.
    columns = ("variant", "decision", *(metric for metric, _ in metrics))
    rows = []
    if comparison.baseline is not None:
        baseline = comparison.baseline
        rows.append(
            (
                Cell(name(baseline.name)),
                Cell(words("baseline"), tone="faint"),
                *(
                    _metric(
                        baseline.metrics, metric, decimals, _plain_range(baseline, metric, words)
                    )
                    for metric, decimals in metrics
                ),
            )
        )
    for item in comparison.candidates:
        # Of the rejected none is the best: the best is the baseline.
        badge = item is material.best and material.comparison.standing_on(item).decision != "reject"
        best = (words("best"),) if badge and len(comparison.candidates) > 1 else ()
        rows.append(
            (
                Cell(name(item.variant), best),
                _decision(item, comparison.standing_on(item), words),
                *(
                    _metric(
                        item.metrics,
                        metric,
                        decimals,
                        _against(
                            item.model_copy(update={"delta": told_gains(item, before)}),
                            values.get(item.variant),
                            metric,
                            words,
                        ),
                    )
                    for metric, decimals in metrics
                ),
            )
        )
    return Table(tuple(words(f"column.{column}") for column in columns), tuple(rows))


def _metric(
    metrics: Mapping[str, float], metric: str, decimals: int, lines: tuple[str, ...]
) -> Cell:
    return Cell(number(metrics.get(metric), decimals), lines, numeric=True)


def _plain_range(values: VariantValues, metric: str, words: Words) -> tuple[str, ...]:
    if metric != "step_time_ms":
        return ()
    times = of_repeats(values, metric)
    if len(times) < 2:
        return ()
    low, high = number(min(times), 2), number(max(times), 2)
    return (words("range", low=low, high=high, count=len(times)),)


def _against(
    item: CandidateComparison, values: VariantValues | None, metric: str, words: Words
) -> tuple[str, ...]:
    """What the candidate saves or costs in a metric, and how sure that is."""
    delta = item.delta.get(metric)
    if delta is None:
        return _plain_range(values, metric, words) if values is not None else ()
    if metric == "step_time_ms":
        interval = time_interval(item, words, "interval.row", delta)
        how = (interval,) if interval else _percent(item, "step_time_pct", delta)
        without = () if interval or values is None else _plain_range(values, metric, words)
        return (saved(delta, f"{number(abs(delta), 2)} ms", words)[0], *how, *without)
    if metric == "peak_mem_mb":
        word, _ = saved(delta, f"{number(abs(delta), 1)} MiB", words)
        ends = [f"peak_mem_mb_{end}" for end in ("low", "high")]
        bounds = as_worded([item.delta[end] for end in ends if end in item.delta], delta)
        # Peaks of the same code are mostly equal to the byte.
        apart = len(set(bounds)) == 2
        spread = (words("interval.mb", low=bounds[0], high=bounds[1]),) if apart else ()
        return (word, *_percent(item, "peak_mem_pct", delta), *spread)
    if metric in ("loss", "eval_loss"):
        return (loss_change(delta, words)[0],)
    return (f"{delta:+.2f}",)


def _percent(item: CandidateComparison, key: str, sign: float) -> tuple[str, ...]:
    percent = item.delta.get(key)
    return () if percent is None else (f"{as_worded([percent], sign)[0]} %",)


def _decision(item: CandidateComparison, decision: Decision, words: Words) -> Cell:
    lines = [] if decision.decision == "measure" else [words(f"confidence.{decision.confidence}")]
    if item.time is not None:
        lines.insert(0, words(f"direction.{item.time.direction}"))
    if item.status.value != "ok":
        lines.insert(0, words(f"status.{item.status.value}"))
    tone = _TONES[decision.decision]
    return Cell(words(f"decision.{decision.decision}"), tuple(lines), tone)


def _reasons(material: Material, words: Words) -> list[str]:
    """Reasons of the other candidates, and what other rules say of the best one."""
    found = [
        words(
            "of_each",
            variant=name(item.variant),
            decision=words(f"decision.{decision.decision}"),
            reason=reason_told(decision, words),
        )
        for item in material.comparison.candidates
        for decision in (material.comparison.standing_on(item),)
        if item is not material.best
    ]
    best = material.best
    for policy, other in best.other_decisions.items() if best is not None else ():
        found.append(
            words(
                "other_policy",
                variant=name(best.variant) if best is not None else "",
                policy=policy,
                decision=words(f"decision.{other.decision}"),
                reason=_short(other, words),
            )
        )
    return found


def _short(decision: Decision, words: Words) -> str:
    """The reason without its numbers."""
    known = REASONS.get(decision.reason)
    return name(decision.reason) if known is None else getattr(known, words.lang)


def _noted(material: Material) -> list[CandidateComparison]:
    return [c for c in material.comparison.candidates if c.note != c.decision.text]


def pictures(material: Material, words: Words, names: Iterable[str]) -> list[Picture]:
    found = [(each, material.pictures.get(f"plots/{each}.png")) for each in names]
    return [Picture(png, words(f"picture.{each}")) for each, png in found if png]


# --- where time and memory go ------------------------------------------------------------------


def phases(material: Material, words: Words) -> Section | None:
    parts: list[Part] = []
    summaries = _measured(material, material.phases, "phase_ms")
    if summaries:
        parts += [_phase_table(material, summaries, words), Paragraph(words("phases.how"), "faint")]
        parts += _notes(summaries, words)
    parts += pictures(material, words, ("phases", "roofline"))
    traced = _measured(material, material.profiles, "parts_ms")
    if traced:
        parts.append(_trace_table(traced, words))
    parts += pictures(material, words, ("trace_timeline",))
    return Section("phases", words("phases"), tuple(parts)) if parts else None


def _measured(
    material: Material, summaries: Mapping[str, Mapping[str, Any]], key: str
) -> dict[str, Mapping[str, Any]]:
    """Of the variants in their order those with numbers of this kind."""
    ordered = {variant.name: summaries.get(variant.name, {}) for variant in material.variants}
    return {variant: summary for variant, summary in ordered.items() if summary.get(key)}


def _phase_table(
    material: Material, summaries: Mapping[str, Mapping[str, Any]], words: Words
) -> Table:
    assessment = material.comparison.assessment
    changes = {c.variant: c.time for c in assessment.candidates} if assessment else {}
    rows = []
    for phase in PHASES:
        cells = []
        for variant, summary in summaries.items():
            change = changes.get(variant, {}).get(phase)
            trend = (words(f"trend.{change.trend}"),) if change is not None else ()
            cells.append(Cell(number(summary["phase_ms"].get(phase), 2), trend, numeric=True))
        rows.append((Cell(words(f"phase.{phase}")), *cells))
    rows.append(_row(words("phase.step"), summaries, "step_ms", 2))
    if any(summary.get("mfu") is not None for summary in summaries.values()):
        rows.append(_row(words("mfu"), summaries, "mfu", 3))
    return Table(_columns(words("column.phase"), summaries), tuple(rows))


def _row(
    title: str, summaries: Mapping[str, Mapping[str, Any]], key: str, decimals: int
) -> tuple[Cell, ...]:
    values = [summary.get(key) for summary in summaries.values()]
    return (Cell(title), *(Cell(number(value, decimals), numeric=True) for value in values))


def _columns(first: str, variants: Iterable[str]) -> tuple[str, ...]:
    return (first, *(name(variant) for variant in variants))


def _notes(summaries: Mapping[str, Mapping[str, Any]], words: Words) -> list[Part]:
    notes = [
        words("variant", variant=name(variant), text=told(note, words))
        for variant, summary in summaries.items()
        for note in summary.get("notes", ())
    ]
    return [Items(tuple(notes))] if notes else []


def _trace_table(traced: Mapping[str, Mapping[str, Any]], words: Words) -> Table:
    parts = list(dict.fromkeys(part for summary in traced.values() for part in summary["parts_ms"]))
    rows = [
        (
            Cell(words.of("part", name(part))),
            *(
                Cell(number(summary["parts_ms"].get(part), 2), numeric=True)
                for summary in traced.values()
            ),
        )
        for part in parts
    ]
    rows.append(_row(words("slowdown"), traced, "profiler_slowdown", 2))
    return Table(_columns("", traced), tuple(rows), words("trace"))


def memory(material: Material, words: Words) -> Section | None:
    summaries = _measured(material, material.phases, "peak_mem_mb")
    parts: list[Part] = []
    if summaries:
        parts.append(
            Table(
                _columns(words("column.phase"), summaries),
                _by(summaries, "peak_mem_mb", PHASES, "phase", words),
            )
        )
        composed = {
            variant: {"at": summary["memory_mb"][summary["global_peak_phase"]]}
            for variant, summary in summaries.items()
            if summary.get("memory_mb", {}).get(summary.get("global_peak_phase"))
        }
        if composed:
            parts.append(
                Table(
                    _columns(words("column.category"), composed),
                    _by(composed, "at", CATEGORIES, "category", words),
                )
            )
        parts.append(Paragraph(words("memory.how"), "faint"))
    parts += pictures(material, words, ("memory",))
    return Section("memory", words("memory"), tuple(parts)) if parts else None


def _by(
    summaries: Mapping[str, Mapping[str, Any]],
    key: str,
    kinds: Sequence[str],
    texts: str,
    words: Words,
) -> tuple[tuple[Cell, ...], ...]:
    return tuple(
        (
            Cell(words(f"{texts}.{kind}")),
            *(Cell(number(s[key].get(kind), 1), numeric=True) for s in summaries.values()),
        )
        for kind in kinds
        if any(kind in summary[key] for summary in summaries.values())
    )


# --- quality and repeats -----------------------------------------------------------------------


def quality(material: Material, words: Words) -> Section:
    rows = [
        (
            Cell(name(variant.name)),
            *(Cell(number(variant.metrics.get(m), 4), numeric=True) for m in ("loss", "eval_loss")),
        )
        for variant in material.variants
    ]
    columns = ("variant", "loss", "eval_loss")
    table = Table(tuple(words(f"column.{column}") for column in columns), tuple(rows))
    missing = material.without_quality()
    sentence = (
        Paragraph(words("quality.not", variants=listed(missing)), "warn")
        if missing
        else Paragraph(words("quality.imported" if material.imported else "quality.checked"))
    )
    shown = Items(tuple(told(line, words) for line in loss_lines(material.comparison)))
    parts: list[Part] = [sentence, table, shown, *pictures(material, words, ("loss",))]
    return Section("quality", words("quality"), tuple(parts))


def repeats_table(material: Material, words: Words) -> Table:
    """Each repeat with its status and metrics: long, so it is folded."""
    metrics = [
        (metric, decimals)
        for metric, decimals in _METRICS
        if any(metric in r.metrics for v in material.variants for r in v.repeats)
    ]
    rows = [
        (
            Cell(name(variant.name)),
            Cell(str(repeat.index + 1), numeric=True),
            Cell(
                words(f"status.{repeat.status.value}"),
                (told(repeat.error, words),) if repeat.error else (),
            ),
            *(Cell(number(repeat.metrics.get(m), d), numeric=True) for m, d in metrics),
        )
        for variant in material.variants
        for repeat in variant.repeats
    ]
    columns = ("variant", "repeat", "status", *(metric for metric, _ in metrics))
    return Table(
        tuple(words(f"column.{column}") for column in columns),
        tuple(rows),
        words("repeats"),
        folded=True,
    )
