"""Files as they are found in the wild are read, or refused with a reason and in bounded memory."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest
from command import environment
from made_traces import document, one_step, operator, write_trace

from trainperf_mlflow.analysis import traces_events
from trainperf_mlflow.analysis.traces_reading import Category, Trace, read_trace
from trainperf_mlflow.errors import PlanError


def text_of_a_trace(steps: int = 3) -> str:
    events = [one for number in range(steps) for one in one_step(1000.0 * number, number)]
    return json.dumps(document(events), indent=2)


def read(folder: Path, text: str | bytes, name: str = "trace.json") -> Trace:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return read_trace(path)


def same(one: Trace, other: Trace) -> bool:
    return one.names == other.names and all(
        np.array_equal(a, b) for a, b in zip(one.events, other.events, strict=True)
    )


@pytest.mark.parametrize("chunk", [257, 4096])
def test_the_events_do_not_depend_on_the_size_of_the_blocks(
    chunk: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = text_of_a_trace()
    whole = read(tmp_path, text)
    monkeypatch.setattr("trainperf_mlflow.analysis.traces_unpacking.CHUNK", chunk)
    monkeypatch.setattr(traces_events, "CHUNK", chunk)
    assert same(read(tmp_path, text), whole)
    assert same(read(tmp_path, gzip.compress(text.encode())), whole)
    assert whole.events.size == 3 * len(one_step())


def test_a_list_of_events_alone_and_text_without_blanks_are_read(tmp_path: Path) -> None:
    expected = read(tmp_path, text_of_a_trace(1))
    assert same(read(tmp_path, json.dumps(one_step(0.0, 0))), expected)
    assert same(
        read(tmp_path, json.dumps(document(one_step(0.0, 0)), separators=(",", ":"))), expected
    )


def test_what_stands_around_the_events_is_read_before_and_after_them(tmp_path: Path) -> None:
    text = json.dumps(
        {
            "deviceProperties": [{"id": 0}, {"id": 1}],
            "traceEvents": one_step(),
            "distributedInfo": {"rank": 3, "groups": [{"a": 1}, {"b": 2}]},
        }
    )
    trace = read(tmp_path, text)
    assert trace.metadata["deviceProperties"] == [{"id": 0}, {"id": 1}]
    assert trace.metadata["distributedInfo"]["rank"] == 3
    assert trace.problems == []


def test_garbage_after_the_trace_is_left_out_and_told(tmp_path: Path) -> None:
    whole = read(tmp_path, text_of_a_trace())
    for garbage in ("{half", '}, {"name": "no event"}]}', "\0" * 10):
        trace = read(tmp_path, text_of_a_trace() + garbage)
        assert same(trace, whole)
        assert "what follows the events" in trace.problems[0]


def test_an_event_that_cannot_be_read_is_left_out_and_counted(tmp_path: Path) -> None:
    text = text_of_a_trace()
    for damaged in (
        text.replace('"name": "aten::linear"', '"name": "aten::li\nnear"', 1),
        text.replace('"name": "aten::linear"', '"name": ["aten", "linear"]', 1),
    ):
        assert damaged != text
        trace = read(tmp_path, damaged)
        assert trace.events.size == 3 * len(one_step()) - 1
        assert trace.problems == ["1 events could not be read and were left out"]


def test_the_last_event_may_be_the_damaged_one(tmp_path: Path) -> None:
    events = [*one_step(), operator("aten::la\x01st", 990, 991)]
    trace = read(tmp_path, json.dumps(document(events)).replace("\\u0001", "\x01"))
    assert trace.events.size == len(one_step())
    assert len(trace.problems) == 1


def test_numbers_that_json_does_not_know_and_nested_arguments_lose_no_event(tmp_path: Path) -> None:
    odd = operator("aten::odd", 10, 20, bandwidth=float("inf"), nested=[{"a": 1}, {"b": [{}]}])
    text = json.dumps(document([*one_step(), odd])).replace("Infinity", "inf")
    trace = read(tmp_path, text)
    assert trace.events.size == len(one_step()) + 1
    assert trace.problems == []


def test_numbers_written_as_texts_are_numbers(tmp_path: Path) -> None:
    text = json.dumps(document(one_step())).replace('"correlation": 102', '"correlation": "102"')
    assert same(read(tmp_path, text), read(tmp_path, json.dumps(document(one_step()))))


@pytest.mark.parametrize("category", ["ac2g", "async_cpu_to_gpu"])
def test_flows_join_kernels_to_launches_where_no_correlation_is_named(
    category: str, tmp_path: Path
) -> None:
    events = one_step()
    flows = []
    for event in events:
        number = event["args"].pop("correlation", None)
        if number is not None:
            arrow = "s" if event["cat"] == "cuda_runtime" else "f"
            place = {key: event[key] for key in ("pid", "tid", "ts")}
            flows.append({"ph": arrow, "cat": category, "id": number, **place})
    joined = read(tmp_path, json.dumps(document([*events, *flows])))
    assert same(joined, read(tmp_path, json.dumps(document(one_step()))))


def test_categories_of_old_profilers_and_of_other_devices_are_known(tmp_path: Path) -> None:
    new = read(tmp_path, json.dumps(document(one_step())))
    text = json.dumps(document(one_step()))
    for now, then in (
        ("cpu_op", "Operator"),
        ("user_annotation", "cpu_op"),
        ("cuda_runtime", "hip_runtime"),
        ("gpu_memcpy", "Memcpy"),
    ):
        text = text.replace(f'"cat": "{now}"', f'"cat": "{then}"')
    old = read(tmp_path, text)
    steps = np.array([name.startswith("ProfilerStep") for name in old.names])[old.events.name]
    assert set(old.events.category[steps]) == {Category.MARK}
    kinds = [Category.CALL, Category.KERNEL, Category.MEMCPY]
    assert [int(np.sum(old.events.category == kind)) for kind in kinds] == [
        int(np.sum(new.events.category == kind)) for kind in kinds
    ]


# --- refused -----------------------------------------------------------------------------------

TRACE = text_of_a_trace().encode()
PACKED = gzip.compress(TRACE)
REFUSED = {
    "empty": (b"", "is empty"),
    "blank": (b" \n ", "is empty"),
    "cut in the middle": (TRACE[: len(TRACE) // 2], "cut off after"),
    "cut before the last event's end": (TRACE[: TRACE.rindex(b"}", 0, -60)], "cut off after"),
    "packed and cut": (PACKED[: len(PACKED) // 2], "cut off"),
    "packed and damaged": (PACKED[:200] + b"\xff" * 40 + PACKED[240:], "damaged"),
    "cut, then packed": (gzip.compress(TRACE[:3000]), "cut off after"),
    "no trace": (b'{"hello": [1, 2, 3]}', "no list named traceEvents"),
    "a word": (b'"traceEvents"', "no list named traceEvents"),
    "no list": (b'{"traceEvents": 5}', "no list named traceEvents"),
    "numbers": (b"[1, 2, 3]", "its list holds 1, and an event is a JSON object"),
    "other events": (b'{"traceEvents": [{"a": 1}, {"b": 2}]}', "no events of training"),
    "no events": (b'{"traceEvents": []}', "no events of training"),
    "binary": (bytes(range(256)) * 40, "no list named traceEvents"),
    "foreign types": (
        b'{"traceEvents": [' + b",".join([b'{"ph": ["X"]}'] * 2000) + b"]}",
        "cannot be read",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_file_that_is_no_whole_trace_is_refused_with_its_name(case: str, tmp_path: Path) -> None:
    content, message = REFUSED[case]
    with pytest.raises(PlanError, match=message) as caught:
        read(tmp_path, content, "given.json")
    assert "given.json" in str(caught.value)


def test_a_file_that_is_not_there_and_a_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="cannot read"):
        read_trace(tmp_path / "none.json")
    with pytest.raises(PlanError, match="cannot read"):
        read_trace(tmp_path)


def bomb(path: Path, start: bytes, repeated: bytes, megabytes: int) -> Path:
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    block = repeated * ((1 << 20) // len(repeated))
    with path.open("wb") as file:
        file.write(packer.compress(start))
        for _ in range(megabytes):
            file.write(packer.compress(block))
        file.write(packer.flush())
    return path


# The kernel's count per address space: ru_maxrss would begin with that of this process.
READER = """
import importlib, re, sys
def peak_kib():
    with open("/proc/self/status") as status:
        return int(re.search(r"VmHWM:\\s*(\\d+)", status.read())[1])
module, name, path = sys.argv[1:]
read = getattr(importlib.import_module("trainperf_mlflow.analysis." + module), name)
before = peak_kib()
try:
    found = read(path)
    print("read")
except Exception as error:
    print(type(error).__name__, error)
print(peak_kib() - before)
"""


def told_and_grown(module: str, function: str, path: Path) -> tuple[str, int]:
    """What reading a file came to, and by how many KiB it raised its process's peak memory."""
    done = subprocess.run(
        [sys.executable, "-c", READER, module, function, path],
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    told, grown = done.stdout.strip().splitlines()
    return told, int(grown)


EVENT = b'{"ph":"X","cat":"cpu_op","name":"a","pid":1,"tid":1,"ts":1,"dur":1},'


@pytest.mark.parametrize(
    ("start", "repeated", "message"),
    [
        (b"", b" ", "is empty"),
        (b'{"traceEvents": [', b" ", "no trace"),
        (b'{"traceEvents": [{"ph": "', b"a", "no trace"),
        (b'{"traceEvents": [', EVENT, "expands more than"),
        (b'{"traceEvents": []', b" ", "expands more than"),
    ],
)
def test_a_zip_bomb_is_refused_in_bounded_memory(
    start: bytes, repeated: bytes, message: str, tmp_path: Path
) -> None:
    path = bomb(tmp_path / "bomb.json.gz", start, repeated, 300)
    assert path.stat().st_size < 2 << 20
    told, grown_kib = told_and_grown("traces_reading", "read_trace", path)
    assert told.startswith("PlanError")
    assert any(part in told for part in message.split("|"))
    assert grown_kib < 250 << 10


def test_reading_holds_less_than_three_times_the_text(tmp_path: Path) -> None:
    events = [one for number in range(3000) for one in one_step(1000.0 * number, number)]
    path = write_trace(tmp_path / "large.json", events)
    told, grown_kib = told_and_grown("traces", "analyse", path)
    assert told == "read"
    block = 32 << 20  # of decoded events, however large the file
    assert grown_kib << 10 < 3 * path.stat().st_size + block
