"""The Chinese of stored sentences: the catalogue is of what the product says, and of all of it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from string import Formatter
from typing import Any

import pytest
from made_studies import variant

import trainperf_mlflow
from trainperf_mlflow.analysis.bottlenecks import PAIR_RULES, RULES
from trainperf_mlflow.analysis.explained import Explained
from trainperf_mlflow.analysis.hypothesis import assess_candidate
from trainperf_mlflow.reporting.report.sentences import SENTENCES, in_chinese, wholly_chinese
from trainperf_mlflow.reporting.report.sentences.pattern import SEAM
from trainperf_mlflow.reporting.report.sentences.vocabularies import VOCABULARIES

ROOMS = ("analysis", "decisions", "evidence", "measurement", "workloads")
GAP = "\0"
# What Chinese has no form for.
WITHOUT_CHINESE = ("plural", "differ")


def strings(tree: ast.AST) -> Iterator[str]:
    """Every string of a module, with ``GAP`` where something is filled in."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        elif isinstance(node, ast.JoinedStr):
            parts = (p.value if isinstance(p, ast.Constant) else GAP for p in node.values)
            yield "".join(map(str, parts))


@cache
def said_by_the_product() -> str:
    package = Path(trainperf_mlflow.__file__).parent
    files = [file for room in ROOMS for file in sorted((package / room).glob("*.py"))]
    trees = [ast.parse(file.read_text("utf-8")) for file in files]
    return "\n".join(text for tree in trees for text in strings(tree))


def pieces(english: str) -> list[str]:
    """A pattern's strings as the product has them, each on its own."""
    text = "".join(
        literal + ("" if field is None else GAP)
        for literal, field, *_ in Formatter().parse(english)
    )
    return [piece for piece in text.split(SEAM) if piece.strip(GAP)]


def gaps(text: str) -> dict[str, str]:
    return {field: kind or "" for _, field, kind, _ in Formatter().parse(text) if field}


def test_the_catalogue_knows_only_what_the_product_says() -> None:
    """A sentence that was changed is to be changed in the catalogue as well."""
    spoken = said_by_the_product()
    assert [e for e in SENTENCES if any(piece not in spoken for piece in pieces(e))] == []
    words = [word for known in VOCABULARIES.values() for word in known]
    # The parts of a traced step are told by their names.
    assert [
        word
        for word in words
        if not all(p in spoken or p.replace(" ", "_") in spoken for p in word.split(SEAM))
    ] == []


def test_the_chinese_carries_every_gap_over() -> None:
    for english, chinese in SENTENCES.items():
        assert "|" not in chinese
        told = {f for f, kind in gaps(english).items() if kind not in WITHOUT_CHINESE}
        assert set(gaps(chinese)) == told, english


def test_what_is_not_known_stays_as_it_is() -> None:
    for text in ("", "; ", "a sentence of somebody else", "<b>x</b>; {0} {name!r} | \n 中文"):
        assert in_chinese(text) == text
        assert wholly_chinese(text) is None
    assert in_chinese("measure again; 请 {x}") == "请重新测量；请 {x}"


def test_names_numbers_and_errors_are_untouched() -> None:
    name = "{0} <b>faster</b> & co"
    assert in_chinese(f"{name} has no eval loss") == f"{name} 没有验证损失"
    assert in_chinese("the candidate failed: Error: a; b|c\n d") == (
        "候选运行失败：Error: a; b|c\n d"
    )
    assert in_chinese("x: 2 ok, 1 oom: a; b") == "x：2 次正常，1 次内存不足：a; b"


@pytest.mark.parametrize(
    "text", ["a, b: " * 500, "faster, " * 300, "measure again: " * 200, "a; " * 39, "x" * 5000]
)
def test_endless_nesting_ends(text: str) -> None:
    assert isinstance(in_chinese(text), str)


# --- all that an assessment can say ------------------------------------------------------------

PHASE_MS = {"data": 10.0, "forward": 30.0, "backward": 60.0, "optimizer": 9.0, "other": 0.0}
PEAK_MB = {"forward": 90.0, "backward": 100.0, "optimizer": 80.0}
IDLE = ("data_wait", "synchronisation", "launch_bound", "other_idle", "outside_operators")


def explained(
    phase_ms: dict[str, float] = PHASE_MS,
    peak_mb: dict[str, float] = PEAK_MB,
    repeats: int = 3,
    spread: float = 0.01,
    parts_ms: dict[str, float] | None = None,
    memory: float = 1000.0,
    **phases: Any,
) -> Explained:
    def run(factor: float) -> dict[str, Any]:
        times = {phase: [ms * factor] for phase, ms in phase_ms.items()}
        step_ms = [sum(phase_ms.values()) * factor]
        return {"phases": {"step_ms": step_ms, "phase_ms": times, "peak_mem_mb": peak_mb}}

    summary = {
        "step_ms": sum(phase_ms.values()),
        "phase_ms": phase_ms,
        "peak_mem_mb": peak_mb,
        "global_peak_phase": max(peak_mb, key=peak_mb.__getitem__),
        "memory_mb": {p: {"activations": 70.0, "parameters": 30.0} for p in peak_mb},
        "matmul_flops": {"forward": 1e9, "backward": 2e9},
        "device_memory_mb": 1000.0,
        "runs": [run(1 + spread * index) for index in range(repeats)],
        **phases,
    }
    values = variant(memory=memory, metrics={"peak_reserved_mb": 950.0})
    return Explained(values, summary, {"parts_ms": parts_ms or {}})


def traced(**parts_ms: float) -> Explained:
    return explained(parts_ms={"compute": 40.0, **parts_ms})


def slow_device() -> Explained:
    peaks = {"device": "a card", "tflops": {"fp32": 1.0, "tf32": 8.0}, "memory_gb_s": 1.0,
             "source": "x", "evidence_level": "measured"}  # fmt: skip
    point = {"name": "step", "precision": "fp32", "time_ms": 100.0, "flops": 1e10,
             "moved_bytes": 1e9, "intensity": 1.0, "achieved_tflops": 0.1,
             "attainable_tflops": 1.0, "fraction": 0.1}  # fmt: skip
    return explained(peaks=peaks, roofline=[{**point, "bound": "memory"}])


EVIDENCE = (
    explained(),
    explained(spread=0.2),
    explained(peak_mb={**PEAK_MB, "optimizer": 300.0}),
    slow_device(),
    traced(exposed_communication=60.0, exposed_copy=40.0),
    *(traced(**{idle: 60.0}) for idle in IDLE),
)
SIDES = (
    explained(),
    explained(repeats=1),
    explained(repeats=2),
    explained(phase_ms={**PHASE_MS, "backward": 30.0}),
    explained(phase_ms={**PHASE_MS, "backward": 30.0, "forward": 90.0}),
    explained(phase_ms={**PHASE_MS, "backward": 55.0, "forward": 10.0}),
    explained(phase_ms={**PHASE_MS, "backward": 90.0}, memory=500.0),
    explained(spread=0.5, memory=2000.0),
    explained(phase_ms={"data": 1.0}),
    explained(
        peak_mb={**PEAK_MB, "optimizer": 300.0},
        recomputed_modules=4,
        matmul_flops={"forward": 1e9, "backward": 3e9},
    ),
    Explained(variant(peak_mem_source="reported", memory=None)),
    Explained(variant(memory=None)),
)


def of_assessments() -> Iterator[str]:
    pairs = [(before, after) for before in SIDES for after in SIDES]
    statements = [
        *(rule(one) for one in EVIDENCE for rule in RULES),
        *(rule(*pair) for pair in pairs for rule in PAIR_RULES),
    ]
    for statement in statements:
        if statement is not None:
            yield statement.text
            yield statement.source
            if statement.suggestion is not None:
                yield statement.suggestion.text
    for hypothesis in (None, "memory", "backward", "data"):
        for pair in pairs:
            made = assess_candidate(hypothesis, *pair)
            yield made.text
            yield made.moved


def test_all_that_an_assessment_says_is_known() -> None:
    said = sorted(set(of_assessments()))
    assert [text for text in said if wholly_chinese(text) is None] == []
    left = [text for text in said if re.search(r"[a-z]+ [a-z]+ [a-z]+", in_chinese(text))]
    assert left == []
    codes = {made.code for one in EVIDENCE for rule in RULES if (made := rule(one)) is not None}
    assert codes == {rule.__name__ for rule in RULES}
