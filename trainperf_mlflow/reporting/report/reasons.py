"""Why it is so: what holds the variants back, and what became of the hypothesis."""

from __future__ import annotations

from trainperf_mlflow.reporting.report.material import Material, name, said
from trainperf_mlflow.reporting.report.parts import Cell, Items, Paragraph, Part, Section, Table
from trainperf_mlflow.reporting.report.texts import Words
from trainperf_mlflow.reporting.report.told import told
from trainperf_mlflow.results.assessment import Assessment, Statement

_MAX_STATEMENTS = 30
_MAX_SUGGESTIONS = 5


def hypothesis(material: Material, words: Words) -> Section:
    stated, assessment = material.comparison.hypothesis, material.comparison.assessment
    title = words("hypothesis.title")
    if stated is None:
        return Section("hypothesis", title, (Paragraph(words("hypothesis.unstated"), "faint"),))
    parts: list[Part] = [
        Paragraph(words("hypothesis.stated", phase=words.of("phase", name(stated))))
    ]
    tested = [c for c in assessment.candidates if c.verdict is not None] if assessment else []
    if not tested:
        parts.append(Paragraph(words("hypothesis.untested"), "warn"))
    parts.append(
        Items(
            tuple(
                words(
                    "hypothesis.verdict",
                    variant=name(each.variant),
                    verdict=words(f"verdict.{each.verdict}"),
                    text=told(each.text, words),
                )
                for each in tested
            )
        )
    )
    return Section("hypothesis", title, tuple(parts))


def bottleneck(material: Material, words: Words) -> Section:
    assessment = material.comparison.assessment
    title = words("bottleneck")
    if assessment is None or not (assessment.statements or assessment.bottleneck):
        return Section("bottleneck", title, (Paragraph(words("bottleneck.none"), "faint"),))
    parts: list[Part] = [Paragraph(line) for line in _firsts(assessment, words)]
    moved = tuple(
        words("moved", variant=name(each.variant), text=told(each.moved, words))
        for each in assessment.candidates
        if each.time
    )
    parts.append(Items(moved))
    if assessment.statements:
        parts.append(_statements(assessment, words))
        parts.append(Paragraph(words("bottleneck.how"), "faint"))
    tries = tuple(
        words(
            "bottleneck.try",
            text=told(each.text, words),
            percent=f"{100 * each.win:.0f}",
            what=words(f"win.{each.win_in}"),
        )
        for each in assessment.next[:_MAX_SUGGESTIONS]
    )
    parts.append(Items(tries))
    return Section("bottleneck", title, tuple(parts))


def _firsts(assessment: Assessment, words: Words) -> list[str]:
    found = []
    if assessment.bottleneck is not None:
        found.append(words("bottleneck.most", phase=words.of("phase", name(assessment.bottleneck))))
    if assessment.peak_phase is not None:
        found.append(words("bottleneck.peak", phase=words.of("phase", name(assessment.peak_phase))))
    return [" ".join(found)] if found and words.lang == "en" else ["".join(found)][: len(found)]


def _statements(assessment: Assessment, words: Words) -> Table:
    columns = ("variant", "statement", "numbers", "threshold", "evidence")
    return Table(
        tuple(words(f"column.{column}") for column in columns),
        tuple(_statement(each, words) for each in assessment.statements[:_MAX_STATEMENTS]),
    )


def _statement(statement: Statement, words: Words) -> tuple[Cell, ...]:
    numbers = tuple(f"{name(key)} = {value:.4g}" for key, value in statement.numbers.items())
    threshold = "-" if statement.threshold is None else f"{statement.threshold:g}"
    return (
        Cell(name(statement.variant)),
        Cell(told(statement.text, words), (name(statement.code),)),
        Cell(numbers[0] if numbers else "-", numbers[1:]),
        Cell(threshold, (told(statement.source, words),) if statement.source else ()),
        Cell(said(statement.evidence)),
    )
