"""The Chinese of stored sentences: the catalogue is of what the product says, and of all of it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from string import Formatter

import pytest

import trainperf_mlflow
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
