"""All that a report says, in the order of reading: made of plain records, rendered elsewhere."""

from __future__ import annotations

from datetime import UTC, datetime

from trainperf_mlflow.decisions.reasons import Language
from trainperf_mlflow.reporting.report import numbers, proof, reasons, terms
from trainperf_mlflow.reporting.report.material import Material, name, said
from trainperf_mlflow.reporting.report.parts import Content, Facts, Items, Part, Section
from trainperf_mlflow.reporting.report.sizes import sizes
from trainperf_mlflow.reporting.report.texts import Words
from trainperf_mlflow.reporting.report.verdict import question, verdict
from trainperf_mlflow.reporting.text import clipped, plain

_TITLE_CHARS = 120
_ID_CHARS = 8


def report_content(material: Material, lang: Language = "en") -> Content:
    """The report of a study; what is not known in its language stays as it was recorded."""
    words = Words(lang)
    sections = (
        _asked(material, words),
        numbers.results(material, words),
        proof.change(material, words),
        numbers.quality(material, words),
        numbers.phases(material, words),
        numbers.memory(material, words),
        reasons.hypothesis(material, words),
        reasons.bottleneck(material, words),
        proof.unchecked(material, words),
        proof.rule(material, words),
        proof.noise(material, words),
        proof.again(material, words),
        proof.evidence(material, words),
        terms.section(words),
    )
    return Content(
        lang=lang,
        title=clipped(plain(material.study.name), _TITLE_CHARS),
        subtitle=_subtitle(material, words),
        question=question(material, words),
        sizes=sizes(material, words),
        verdict=verdict(material, words),
        sections=tuple(_without_empty(section) for section in sections if section is not None),
        footer=words("footer", version=name(material.study.toolkit_version)),
    )


def _subtitle(material: Material, words: Words) -> str:
    study = material.study
    when = datetime.fromtimestamp(study.created_at, UTC).strftime("%Y-%m-%d %H:%M UTC")
    shared = {"when": when, "study_id": name(study.study_id[:_ID_CHARS])}
    if study.source is not None:
        source = study.source
        return words(
            "subtitle.imported", file=name(source.file), format=name(source.format), **shared
        )
    return words(
        "subtitle", workload=name(study.workload.name), device=study.workload.device, **shared
    )


def _asked(material: Material, words: Words) -> Section:
    study = material.study
    goal = (
        words.of("goal", name(study.goal))
        if study.goal is not None
        else words("goal.none", policy=name(study.policy))
    )
    phase = study.hypothesis
    stated = (
        words("hypothesis.about", phase=words.of("phase", name(phase)))
        if phase is not None
        else words("hypothesis.none")
    )
    rows = [(words("goal"), goal), (words("hypothesis"), stated)]
    if study.label:
        rows.append((words("label"), name(study.label)))
    if study.source is not None:
        rows.append((words("published"), _published(material, words)))
    return Section("question", words("question"), (Facts(tuple(rows)),))


def _published(material: Material, words: Words) -> str:
    stated = material.study.source.published if material.study.source else None
    if stated is None:
        return words("published.none")
    reason = f" ({stated.reason})" if stated.reason else ""
    return said(f"{stated.decision}{reason}")


def _without_empty(section: Section) -> Section:
    def filled(part: Part) -> bool:
        return not isinstance(part, Items) or bool(part.texts)

    return Section(
        section.key, section.title, tuple(part for part in section.parts if filled(part))
    )
