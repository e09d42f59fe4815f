"""What the verdict rests on: the change, the noise, the rule, the gaps, how to check it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from trainperf_mlflow.decisions.policies import POLICIES
from trainperf_mlflow.reporting.report.material import Material, listed, name, said
from trainperf_mlflow.reporting.report.numbers import repeats_table
from trainperf_mlflow.reporting.report.parts import (
    Cell,
    Code,
    Facts,
    Items,
    Paragraph,
    Part,
    Section,
    Table,
    Tone,
)
from trainperf_mlflow.reporting.report.texts import TEXTS, Words
from trainperf_mlflow.reporting.report.told import told
from trainperf_mlflow.reporting.text import plain
from trainperf_mlflow.results.study import Variant

_ID_CHARS = 8
_MAX_FILES = 2000
_FOLDED_FILES = 12  # more are shown when they are asked for
_MAX_COMMAND = 4000
# Thresholds that no source of its policy has.
_OURS = ("max_eval_loss_delta",)
_ENVIRONMENT = (
    "cpu", "device_name", "device", "platform", "threads", "memory_total_mb", "device_memory_mb",
    "load_average", "matmul_precision", "packages", "variables",
)  # fmt: skip


def change(material: Material, words: Words) -> Section:
    study = material.study
    baseline = next((v for v in study.variants if v.role == "baseline"), None)
    rows = [
        row
        for variant in study.variants
        if variant.role == "candidate"
        for row in _changes(material, variant, baseline, words)
    ]
    columns = ("variant", "setting", "before", "after", "proof")
    parts: list[Part] = [
        Table(tuple(words(f"column.{column}") for column in columns), tuple(rows))
        if rows and baseline is not None
        else Paragraph(words("change.none"))
    ]
    parts.append(
        Paragraph(words("change.equal.imported"), "warn")
        if material.imported
        else Paragraph(words("change.equal", digest=study.workload.digest[:16]), "faint")
    )
    return Section("change", words("change"), tuple(parts))


def _changes(
    material: Material, variant: Variant, baseline: Variant | None, words: Words
) -> Iterator[tuple[Cell, ...]]:
    values = material.values.get(variant.name)
    verified = values.effect_verified if values is not None else None
    detail = values.effect_detail if values is not None else None
    tones: dict[bool | None, Tone] = {True: "good", False: "bad", None: "warn"}
    proof = Cell(
        words(f"effect.{'none' if verified is None else str(verified).lower()}"),
        (told(detail, words),) if detail else (),
        tones[verified],
    )
    before = baseline.config if baseline is not None else {}
    changed = variant.changed or {words("change.unknown"): None}
    for place, (key, value) in enumerate(changed.items()):
        known = bool(variant.changed)
        yield (
            Cell(name(variant.name)),
            Cell(name(key)),
            Cell(_setting(before[key]) if key in before else "-"),
            Cell(_setting(value) if known else "-"),
            proof if place == 0 else Cell(""),
        )


def _setting(value: Any) -> str:
    return said(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


# --- environment and noise ---------------------------------------------------------------------


def noise(material: Material, words: Words) -> Section:
    facts = tuple(_environment(material.environment, words))
    parts: list[Part] = [
        Facts(facts) if facts else Paragraph(words("environment.none"), "faint"),
        *_quietness(material, words),
        Items(tuple(_pairs(material, words))),
        Items(tuple(_signals(material, words))),
    ]
    if not any(candidate.time for candidate in material.comparison.candidates):
        parts.append(Paragraph(words("noise.none"), "warn"))
    if material.comparison.warnings:
        parts.append(Paragraph(words("noise.warnings")))
        parts.append(Items(tuple(told(text, words) for text in material.comparison.warnings)))
    if any(variant.repeats for variant in material.variants):
        parts.append(repeats_table(material, words))
    return Section("noise", words("noise"), tuple(parts))


def _quietness(material: Material, words: Words) -> Iterator[Part]:
    """How quiet the machine was, and what it makes of identical code."""
    found = material.comparison.noise
    if found is not None:
        tone: Tone = "" if found.level == "quiet" else "warn"
        blocks = words(
            "noise.blocks",
            disturbed=found.disturbed_blocks,
            blocks=found.blocks,
            again=found.measured_again,
        )
        yield Paragraph(f"{words(f'noise.{found.level}')} {blocks}", tone)
        yield Items(tuple(told(cause, words) for cause in found.causes))
    calibration = material.study.calibration
    if calibration is not None:
        yield Paragraph(
            words(
                "noise.floor",
                workload=name(calibration.workload),
                floor=f"{calibration.noise_floor_pct:.2g}",
                smallest=f"{calibration.smallest_detectable_pct:.2g}",
            )
        )
    elif not material.imported:
        yield Paragraph(words("noise.floor.none"), "faint")


def _environment(found: Any, words: Words) -> Iterator[tuple[str, str]]:
    for key in _ENVIRONMENT:
        value = found.get(key)
        if value not in (None, {}, [], ""):
            yield words(f"env.{key}"), _fact(value)
    cores = [found.get(f"cores_{kind}") for kind in ("physical", "logical")]
    if any(cores):
        yield words("env.cores"), ", ".join(str(count or "-") for count in cores)


def _fact(value: Any) -> str:
    if isinstance(value, dict):
        return said(", ".join(f"{key} {item}" for key, item in value.items()))
    if isinstance(value, list):
        return said(", ".join(_fact(item) for item in value))
    return f"{value:.6g}" if isinstance(value, float) else said(str(value))


def _pairs(material: Material, words: Words) -> Iterator[str]:
    for item in material.comparison.candidates:
        time = item.time
        if time is None:
            continue
        yield words(
            "noise.pairs",
            variant=name(item.variant),
            pairs=time.pairs + time.set_aside,
            processes=time.process_pairs,
            disturbed=time.disturbed_pairs,
            aside=time.set_aside,
        )
        if time.low_pct is not None:
            yield words(
                "noise.level",
                variant=name(item.variant),
                level=f"{100 * time.level:.3g}",
                looks=time.looks,
                margin=f"{time.margin_pct:g}",
            )


def _signals(material: Material, words: Words) -> Iterator[str]:
    for item in material.comparison.candidates:
        if item.time is not None:
            reason = told(item.time.signal_reason, words)
            yield words(
                "noise.signal", variant=name(item.variant), signal=item.time.signal, reason=reason
            )
            if item.time.stalls:
                stalls = told(item.time.stalls, words)
                yield words("variant", variant=name(item.variant), text=stalls)


# --- the rule ----------------------------------------------------------------------------------


def rule(material: Material, words: Words) -> Section:
    decision, policy = material.comparison.decision, material.comparison.policy
    known = f"rule.{policy}" in TEXTS
    closed = material.comparison.closed is not None
    parts: list[Part] = [
        *([Paragraph(words("rule.closed"))] if closed else []),
        Paragraph(words(f"rule.{policy}") if known else words("rule.unknown", policy=name(policy))),
        Paragraph(words("rule.bare" if material.imported else "rule.guard")),
    ]
    thresholds = material.comparison.thresholds
    if thresholds:
        rows = tuple(
            (
                Cell(words.of("threshold", name(key)), (name(key),)),
                Cell(f"{value:g}", numeric=True),
                Cell(words(f"rule.source.{_source(material, key, value)}")),
            )
            for key, value in thresholds.items()
        )
        columns = ("name", "value", "source")
        parts.append(Table(tuple(words(f"column.{column}") for column in columns), rows))
    numbers = {k: v for k, v in decision.numbers.items() if k not in thresholds}
    if numbers:
        cells = tuple(
            (Cell(name(key)), Cell(f"{value:.6g}", numeric=True)) for key, value in numbers.items()
        )
        parts.append(
            Table((words("column.name"), words("column.value")), cells, words("rule.numbers"))
        )
    codes = words("rule.code", reason=name(decision.reason), next=name(decision.next_action))
    parts.append(Paragraph(codes, "faint"))
    return Section("rule", words("rule"), tuple(parts))


def _source(material: Material, key: str, value: float) -> str:
    """Where a threshold comes from, as the name of a text."""
    policy = material.comparison.policy
    own = material.study.plan.get("threshold")
    if isinstance(own, dict) and key in own:
        return "own"
    if policy not in POLICIES or POLICIES[policy].thresholds.get(key) != value:
        return "imported" if material.imported else "own"
    return "toolkit" if key in _OURS else policy


# --- what was not checked ----------------------------------------------------------------------


def unchecked(material: Material, words: Words) -> Section:
    found = tuple(_gaps(material, words))
    said_there = material.comparison.assessment.missing if material.comparison.assessment else ()
    # That nobody has looked at phases or traces is said above, in both languages.
    more = tuple(
        told(text, words)
        for text in said_there
        if not text.startswith(("no phases yet", "no traces yet", "the study was imported"))
    )
    parts: list[Part] = [Items(found), Items(more)]
    if not found and not more:
        parts = [Paragraph(words("unchecked.nothing"))]
    return Section("unchecked", words("unchecked"), tuple(parts))


def _gaps(material: Material, words: Words) -> Iterator[str]:
    study = name(material.study.study_id[:_ID_CHARS])
    closed = material.comparison.closed is not None
    how = "imported" if material.imported else "closed" if closed else "open"
    if material.imported:
        yield words("unchecked.imported")
    without = material.without_quality()
    if without:
        yield words("unchecked.quality", variants=listed(without))
    unseen = [v.name for v in material.variants if v.role == "candidate" and not _seen(v)]
    if unseen and not material.imported:
        yield words("unchecked.effect", variants=listed(unseen))
    heavy = [v.name for v in material.variants if v.metrics and "peak_mem_mb" not in v.metrics]
    if heavy:
        yield words("unchecked.memory", variants=listed(heavy))
    if not any(summary.get("phase_ms") for summary in material.phases.values()):
        yield words(f"unchecked.phases.{how}", study=study)
    if not material.imported:
        if not any(summary.get("parts_ms") for summary in material.profiles.values()):
            yield words(f"unchecked.traces.{how}", study=study)
        steps = _steps(material)
        asked = any(item.convergence for item in material.comparison.candidates)
        if steps and not asked:
            yield words("unchecked.convergence", steps=steps)
    yield words("unchecked.elsewhere")


def _seen(variant: Any) -> bool:
    return variant.effect_verified is not None or not variant.metrics


def _steps(material: Material) -> int | None:
    """Measured steps of a repeat, as far as its blocks tell."""
    counts = [
        round(sum(block.wall_s for block in repeat.blocks) * 1000 / repeat.metrics["step_time_ms"])
        for variant in material.variants
        for repeat in variant.repeats
        if repeat.blocks and repeat.metrics.get("step_time_ms")
    ]
    return max(counts, default=None)


# --- how to check it ---------------------------------------------------------------------------


def again(material: Material, words: Words) -> Section:
    study = material.study
    command = plain(study.command)[:_MAX_COMMAND]
    how = words("again.imported" if material.imported else "again.how")
    when = datetime.fromtimestamp(study.created_at, UTC).strftime("%Y-%m-%d %H:%M UTC")
    seed = study.plan.get("seed")
    facts = [
        (words("again.workload"), name(study.workload.name)),
        (words("again.data"), told(study.workload.source, words)),
        (words("again.digest"), name(study.workload.digest)),
        (words("again.seed"), "" if seed is None else str(seed)),
        (words("again.imported_at" if material.imported else "again.when"), when),
        (words("again.version"), name(study.toolkit_version)),
        (words("again.sha256"), study.source.sha256 if study.source else ""),
    ]
    parts = (
        Paragraph(how),
        Code(command),
        Paragraph(words("again.decide")),
        Code(f"trainperf compare {plain(study.study_id)}"),
        Facts(tuple(fact for fact in facts if fact[1])),
    )
    return Section("again", words("again"), parts)


def evidence(material: Material, words: Words) -> Section:
    rows = tuple(
        (
            Cell(said(item.path)),
            Cell(words("study") if item.of is None else name(item.of)),
            Cell(name(item.sha256) if item.sha256 else "-"),
        )
        for item in material.evidence[:_MAX_FILES]
    )
    if not rows:
        return Section("evidence", words("evidence"), (Paragraph(words("evidence.none"), "faint"),))
    columns = ("file", "of", "sha256")
    table = Table(
        tuple(words(f"column.{column}") for column in columns),
        rows,
        words("evidence.files"),
        folded=len(rows) > _FOLDED_FILES,
    )
    how = words("evidence.manifest" if material.manifest else "evidence.listed")
    return Section("evidence", words("evidence"), (Paragraph(how, "faint"), table))
