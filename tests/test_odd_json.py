"""Files that are no trace and no contract are told what they are, and are not called cut off."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainperf_mlflow import api
from trainperf_mlflow.errors import PlanError

NO_EVENTS = "it has no list named traceEvents"
# What a file holds, what a contract's reader says of it, and what a trace's does.
ODD = {
    "nothing": (b"", "is empty; give a contract", "is empty"),
    "spaces": (b" \n\n", "is empty; give a contract", "is empty"),
    "a list of numbers": (b"[1, 2, 3]", "holds a list ([1, 2, 3])", "its list holds 1"),
    "an empty list": (b"[]", "holds a list ([])", "has no events of training"),
    "a number": (b"42", "holds a number (42)", NO_EVENTS),
    "a text": (b'"text"', "holds a text ('text')", NO_EVENTS),
    "a truth value": (b"true", "holds a truth value (True)", NO_EVENTS),
    "null": (b"null", "holds nothing but null, no JSON object", NO_EVENTS),
    "NaN": (b"NaN", "holds a number (nan)", NO_EVENTS),
    "words": (b"hello", "is no JSON (it begins with 'hello')", NO_EVENTS),
    "a web page": (b"<html></html>", "is no JSON (it begins with '<html>", NO_EVENTS),
    "a table": (b"a,b\n1,2\n", "is no JSON (it begins with 'a,b", NO_EVENTS),
    "wrong keys": (b'{"primary": "x"}', "unknown key 'primary'; known: baseline_id", NO_EVENTS),
    "a report": (b'{"candidates": []}', "unknown key 'candidates'", NO_EVENTS),
    "two objects": (b"{}\n{}", "goes on after its JSON ends, line 2", NO_EVENTS),
    "a wrong comma": (b'{"a": 1,}', "is no JSON (", NO_EVENTS),
    "no workloads": (b'{"workloads": 3}', "workloads = 3", NO_EVENTS),
    "numbers for events": (b'{"traceEvents": [1, 2]}', "unknown key", "its list holds 1, and"),
    "one that is none": (b'{"traceEvents": [{"a": 1}, 7]}', "unknown key", "its list holds 7, and"),
    "texts for events": (b'["a"]', "holds a list", "its list holds 'a', and"),
    "no list": (b'{"traceEvents": {"a": 1}}', "unknown key", NO_EVENTS),
}
CUT = {
    "an object": (b'{"workloads": [{"role"', "ends too early, line 1", NO_EVENTS),
    "a text in it": (b'{"baseline_id": "ba', "ends too early, line 1", NO_EVENTS),
    "an event": (b'{"traceEvents": [{"ph": "X"', "ends too early", "cut off after 0 complete"),
    "the list": (b'{"traceEvents": [{"ph": "X"},', "ends too early", "cut off after"),
}


def refusals(folder: Path, content: bytes) -> tuple[str, str]:
    """What the readers of a contract and of a trace say."""
    path = folder / "given.json"
    path.write_bytes(content)
    said = []
    for read in (lambda: api.regress(contract=path), lambda: api.trace(str(path))):
        with pytest.raises(PlanError) as refusal:
            read()
        assert "given.json" in str(refusal.value)
        said.append(str(refusal.value))
    return said[0], said[1]


@pytest.mark.parametrize("kind", ODD)
def test_a_file_of_another_kind_is_told_what_it_is(kind: str, tmp_path: Path) -> None:
    content, of_contract, of_trace = ODD[kind]
    for said, expected in zip(refusals(tmp_path, content), (of_contract, of_trace), strict=True):
        assert expected in said
        for wrong in ("cut off", "ends too early", "whole", "again from where"):
            assert wrong not in said


@pytest.mark.parametrize("kind", CUT)
def test_a_file_that_is_cut_off_is_told_so(kind: str, tmp_path: Path) -> None:
    content, of_contract, of_trace = CUT[kind]
    contract, trace = refusals(tmp_path, content)
    assert of_contract in contract
    assert "again, whole" in contract
    assert of_trace in trace
