"""A Chinese report is Chinese: beside names, codes and commands no English is left in it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import made_studies
import pytest
import report_materials as made
from made_reports import (
    benchmark_report,
    closing_report,
    document,
    memory_report,
    probe_report,
    training_report,
    values,
)
from paired_blocks import with_blocks

from trainperf_mlflow.analysis.assessment import assess
from trainperf_mlflow.api.importing import decide_imported
from trainperf_mlflow.decisions.policies import POLICIES
from trainperf_mlflow.decisions.study import decide_study
from trainperf_mlflow.evidence.formats import parse
from trainperf_mlflow.evidence.reading import read_document
from trainperf_mlflow.reporting.report.content import report_content
from trainperf_mlflow.reporting.report.material import Material
from trainperf_mlflow.reporting.report.page import html_page
from trainperf_mlflow.reporting.report.pull_request import markdown_page
from trainperf_mlflow.results.record import Status
from trainperf_mlflow.results.repeats import Convergence, DeviceState, Watch
from trainperf_mlflow.results.study import Study
from trainperf_mlflow.results.values import VariantValues

# Three words in a row that no underscore, digit, slash or hyphen makes a name.
ENGLISH = re.compile(r"(?<![\w./-])[A-Za-z']+(?:[,;:]? [a-z']+){2,}(?![\w/])")
# What stays English, and why.
ALLOWED = (
    "seen in its kernels",  # the made studies' own words
    "the cause of it",  # an error is told as it was raised
    "a published report",  # a name
    "checkpoint, offload, hybrid",  # names of variants
    "words of its author",  # reasons as others published them
    "nothing to compare with",
    "probe does not compare against FP32 baseline",
)


class Texts(HTMLParser):
    """The text nodes of a page, without code and style."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self._within: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in ("code", "style"):
            self._within.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in ("code", "style"):
            self._within.pop()

    def handle_data(self, data: str) -> None:
        if not self._within:
            self.found.append(data.strip())


def english(texts: list[str]) -> list[str]:
    left = []
    for text in texts:
        for allowed in ALLOWED:
            text = text.replace(allowed, "~")
        left += [text for _ in ENGLISH.findall(text)]
    return left


def left_english(material: Material) -> list[str]:
    content = report_content(material, "zh")
    outside_code = re.sub(r"(`{3,}).*?\1", "", markdown_page(content), flags=re.DOTALL)
    return english([*Texts(html_page(content)).found, *outside_code.replace("\\", "").split("\n")])


def of(study: Study, *variants: VariantValues, **fields: Any) -> Material:
    comparison = decide_study(study, variants)
    comparison = comparison.model_copy(update={"assessment": assess(comparison, variants)})
    return Material(study=study, comparison=comparison, variants=variants, **fields)


# --- studies of all kinds ----------------------------------------------------------------------


def disturbed() -> Material:
    """Blocks that everything disturbed which can, on a device and with company."""
    watches = (
        Watch(others_cores=0.5, steal=0.2, memory_pressure=0.2, reference_ms=(0.3, 0.3)),
        Watch(others_cores=2.5, reference_ms=(0.9, 0.9)),
        Watch(device=DeviceState(throttled=("heat",)), reference_ms=(0.3, 0.3)),
    )
    material = made.bare()
    variants = [
        variant.model_copy(
            update={
                "repeats": tuple(
                    repeat.model_copy(
                        update={
                            "seed": 42 + len(variant.name),
                            "data_digest": variant.name,
                            "blocks": tuple(
                                block.model_copy(
                                    update={
                                        "watch": watches[place % 3],
                                        "run_delay": 0.3,
                                        "gc": 1,
                                        "compilations": 1,
                                        "again": 1,
                                        "mean_ms": block.mean_ms * (1 + place % 2),
                                        "cpu": 2.0,
                                    }
                                )
                                for place, block in enumerate(repeat.blocks)
                            ),
                        }
                    )
                    for repeat in variant.repeats
                )
            }
        )
        for variant in material.variants
    ]
    return of(material.study, *variants)


def further_trained() -> Material:
    """Candidates that longer training shows to be worse, not to be known, and diverged."""
    material = made.bare(("baseline", "worse", "diverged"))
    losses = {"baseline": (3.0, 3.1, 3.2), "worse": (3.3, 3.5, 3.5), "diverged": (None, 3.1, 3.2)}
    variants = [
        variant.model_copy(
            update={
                "convergence": tuple(
                    Convergence(
                        index=index,
                        seed=42 + index,
                        status=Status.DIVERGED if loss is None else Status.OK,
                        error="the cause of it" if loss is None else None,
                        steps=200,
                        eval_loss=loss,
                        quality_checked=True,
                    )
                    for index, loss in enumerate(losses[variant.name])
                ),
                "repeats": tuple(
                    repeat.model_copy(
                        update={
                            "seed": 42 + repeat.index,
                            "blocks": tuple(
                                block.model_copy(
                                    update={
                                        "steps": 2,
                                        "losses": (3.0 + len(variant.name) + repeat.index, 2.9),
                                    }
                                )
                                for block in repeat.blocks
                            ),
                        }
                    )
                    for repeat in variant.repeats
                ),
            }
        )
        for variant in material.variants
    ]
    return of(material.study, *variants)


def failing(policy: str) -> Material:
    """Candidates that fail in every way, or have no metric to be compared by."""
    baseline = made_studies.variant("baseline", time=100.0, memory=9700.0)
    ways = [
        made_studies.variant(f"is-{status}", statuses=(status,) * 3, error="the cause of it")
        for status in ("oom", "failed", "timeout", "diverged", "unsupported")
    ]
    others = (
        made_studies.variant(
            "idle-1", effect_verified=False, effect_detail="this task gives no proof"
        ),
        made_studies.variant("partly-1", time=20.0, memory=100.0, statuses=("ok", "oom", "ok")),
        made_studies.variant("blind-1", memory=None, eval_loss=None, time=None),
        made_studies.variant("another-1", peak_mem_source="reported", samples=3.0),
        made_studies.variant("ckpt-1", time=125.0, memory=9100.0, effect_verified=None),
        made_studies.variant("slow-1", time=4000.0, memory=9000.0, eval_loss=3.0),
        made_studies.variant("compiled-1", time=50.0, metrics={"compile_s": 20.0}),
        made_studies.variant("nan-1", loss=float("nan")),
    )
    known = POLICIES[policy]
    asked = made_studies.study(
        "step_time" if known.needs_goal else None, thresholds=dict(known.thresholds)
    )
    return of(asked.model_copy(update={"policy": policy}), baseline, *ways, *others)


def measured_alone() -> Material:
    asked = made_studies.study(plan={"probe": True})
    return of(asked, made_studies.variant("tuned"), made_studies.variant("b", statuses=("oom",)))


def calibrated() -> Material:
    base, twin = made.values(("baseline", "baseline again"))
    return of(made.study(("baseline", "baseline again"), kind="calibration"), base, twin)


def undecided() -> Material:
    """Pairs that leave it open, and too few of them."""
    rows = [(50.0, 52.0, 47.0, 55.0), (60.0, 49.0, 51.0, 50.0), (52.0, 50.0, 46.0, 58.0)]
    baseline = with_blocks(made_studies.variant("baseline"), rows)
    candidate = with_blocks(made_studies.variant("bf16", time=48.0), [row[::-1] for row in rows])
    return of(made.study(("baseline", "bf16")), baseline, candidate)


def studies() -> Iterator[tuple[str, Material]]:
    yield "whole", made.whole()
    yield "of one repeat", made.bare(repeats=1)
    yield "disturbed", disturbed()
    yield "further trained", further_trained()
    for policy in POLICIES:
        yield f"failing by {policy}", failing(policy)
    yield "measured alone", measured_alone()
    yield "calibrated", calibrated()
    yield "undecided", undecided()


def test_no_english_is_left_in_a_chinese_report() -> None:
    assert {kind: left for kind, study in studies() if (left := left_english(study))} == {}


IMPORTED = (
    *sorted((Path(__file__).parent / "data" / "published").glob("*.json")),
    training_report(),
    memory_report(),
    memory_report("memory_budget_decision"),
    probe_report(),
    benchmark_report(),
    closing_report(),
)


@pytest.mark.parametrize("report", IMPORTED)
def test_no_english_is_left_in_the_chinese_report_of_an_imported_file(report: Any) -> None:
    found = parse(document(report) if isinstance(report, dict) else read_document(report))
    comparison = decide_imported(found, found.study, values(found))
    material = Material(study=found.study, comparison=comparison, variants=values(found))
    assert left_english(material) == []


def test_the_english_report_is_told_in_its_own_words() -> None:
    texts = Texts(html_page(report_content(disturbed(), "en"))).found
    assert len(english(texts)) > 10
