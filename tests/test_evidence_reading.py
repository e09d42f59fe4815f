"""JSON from somebody else is read strictly, or refused with the file and the field's path."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_reports import REPORTS, values

from trainperf_mlflow.decisions.study import decide_study
from trainperf_mlflow.errors import MeasurementError, PlanError
from trainperf_mlflow.evidence.formats import parse
from trainperf_mlflow.evidence.reading import MAX_DEPTH, parse_document, path_of, read_document

T = TypeVar("T")
REFUSED = {
    b'{"a": 1, "a": 1}': "'f.json': a: is given twice",
    b'{"c": [{}, {"x": 1, "x": 2}]}': "c[1].x: is given twice",
    b'{"c": [{"x": NaN}]}': "c[0].x: NaN is no finite number",
    b'{"a": {"b": -Infinity}}': "a.b: an infinite value is no finite number",
    b'{"a": 1e999}': "a: an infinite value is no finite number",
    b'{"a": ' + b"1" * 400 + b"}": "a: an integer of 1326 bits is no usable number",
    b'{"a": ' + b"1" * 5000 + b"}": "an integer of thousands of digits",
    b'{"a": "\\ud800"}': "a: '\\ud800' is no text that can be written as UTF-8",
    b'{"a": [1, 2': "ends too early",
    b'{"a": "x': "ends too early",
    b"": "is empty; give a published report",
    b'{"a" 1}': "is no JSON",
    b'{"a": 1} {"b": 2}': "goes on after its JSON ends",
    b"[1]": "no JSON object",
    b'\xff\xfe{\x00"\x00': "is no UTF-8",
    '{"a": "Grüße"}'.encode("latin-1"): "is no UTF-8",
}


@pytest.mark.parametrize("data", REFUSED, ids=lambda data: data[:20].decode("latin-1"))
def test_what_json_does_not_allow_is_refused_with_the_fields_path(data: bytes) -> None:
    with pytest.raises(PlanError) as refusal:
        parse_document(data, "f.json")
    assert REFUSED[data] in str(refusal.value)
    assert "f.json" in str(refusal.value)
    assert refusal.value.exit_code == 2


@pytest.mark.parametrize(("left", "right"), [(b"[", b"]"), (b'{"a":', b"}")])
def test_nesting_is_refused_before_it_can_end_the_reader(left: bytes, right: bytes) -> None:
    deep = b'{"x":' + left * MAX_DEPTH + b"1" + right * MAX_DEPTH + b"}"
    with pytest.raises(PlanError, match="nested deeper than 64"):
        parse_document(deep, "f.json")
    with pytest.raises(PlanError, match="nested deeper than 64"):
        parse_document(b'{"x":' + left * 200_000, "f.json")
    allowed = b'{"x":' + left * (MAX_DEPTH - 1) + b"1" + right * (MAX_DEPTH - 1) + b"}"
    assert "x" in parse_document(allowed, "f.json").content


def test_brackets_within_texts_are_no_nesting() -> None:
    text = json.dumps({"a": "[{" * 500 + '\\"' + "[" * 500})
    assert parse_document(text.encode(), "f.json").content == json.loads(text)


def test_a_text_that_never_ends_takes_no_time_to_refuse() -> None:
    # A pattern that backtracks would take minutes for this.
    with pytest.raises(PlanError, match="ends too early"):
        parse_document(b'{"a": "' + b"\\\\" * 500_000, "f.json")


def test_a_byte_order_mark_is_no_part_of_the_report_but_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "f.json"
    path.write_bytes(b'\xef\xbb\xbf{"a": 1}')
    found = read_document(path)
    assert found.content == {"a": 1}
    assert found.text.encode() == path.read_bytes()


def test_a_huge_file_is_refused_by_its_size_and_an_endless_one_when_it_gets_too_long(
    tmp_path: Path,
) -> None:
    huge = tmp_path / "huge.json"
    with huge.open("wb") as file:
        file.truncate(2**40)  # of holes: reading it would take minutes
    for path in (huge, Path("/dev/zero")):
        with pytest.raises(PlanError, match="has more than 32 MiB"):
            read_document(path)


@pytest.mark.parametrize("name", ["missing.json", ".", "a\0b"])
def test_what_cannot_be_read_is_refused_in_words(name: str, tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="cannot be read"):
        read_document(tmp_path / name)


def test_a_path_is_written_as_people_write_it_and_cut_where_it_is_long() -> None:
    assert path_of(("candidates", 2, "runs", 0, "loss")) == "candidates[2].runs[0].loss"
    assert len(path_of(("a" * 10_000,))) < 300


def refused(read: Callable[[], T]) -> T | str:
    """What was read, or the words of its refusal."""
    try:
        return read()
    except PlanError as refusal:
        return str(refusal)


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)


@settings(max_examples=150, deadline=None)
@given(name=st.sampled_from(sorted(REPORTS)), data=st.data())
def test_a_report_with_any_field_replaced_is_read_or_refused_in_words(
    name: str, data: st.DataObject
) -> None:
    report = json.loads(json.dumps(REPORTS[name]))
    place = report
    while True:
        keys = sorted(place) if isinstance(place, dict) else list(range(len(place)))
        key = data.draw(st.sampled_from(keys))
        inner = place[key]
        if not (isinstance(inner, dict | list) and inner) or data.draw(st.booleans()):
            break
        place = inner
    place[key] = data.draw(JSON)
    found = refused(lambda: parse(parse_document(json.dumps(report).encode(), "f.json")))
    if isinstance(found, str):
        assert "f.json" in found
        assert len(found) < 3000
        return
    with suppress(MeasurementError, PlanError):  # no baseline, or none that succeeded
        decision = decide_study(found.study, values(found)).decision
        assert decision.decision in ("accept", "tune", "reject", "measure")


@settings(max_examples=60, deadline=None)
@given(name=st.sampled_from(sorted(REPORTS)), data=st.data())
def test_a_truncated_report_is_always_refused(name: str, data: st.DataObject) -> None:
    whole = json.dumps(REPORTS[name]).encode()
    cut = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(PlanError, match=r"f\.json"):
        parse_document(whole[:cut], "f.json")


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=40) | st.text(alphabet='{}[]":,1e.-aN\\u', max_size=30).map(str.encode))
def test_any_bytes_are_an_object_or_refused(data: bytes) -> None:
    found = refused(lambda: parse_document(data, "f.json"))
    assert "f.json" in found if isinstance(found, str) else isinstance(found.content, dict)
