"""`trainperf trace` as a user meets it."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from command import REPOSITORY, trainperf
from made_traces import ONE_STEP_US, document, one_step, write_trace

from trainperf_mlflow import api
from trainperf_mlflow.analysis.traces_comparing import compare_traces
from trainperf_mlflow.analysis.traces_results import Change, verdict
from trainperf_mlflow.cli.trace import trace
from trainperf_mlflow.reporting.traces import _ratio


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(trace, [str(argument) for argument in arguments])


def json_of(*arguments: str | Path) -> dict[str, Any]:
    done = run(*arguments, "--format", "json")
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_json_has_the_promised_keys(tmp_path: Path) -> None:
    found = json_of(write_trace(tmp_path / "trace.json", one_step()), "--top", "1")
    assert found["schema_version"] == "trainperf-trace/v1"
    assert found["steps"] == 1
    assert found["parts_us"] == ONE_STEP_US
    assert sum(found["parts_us"].values()) == found["total_us"] == 1000.0
    assert found["kernels"]["matmul"]["total_us"] == 120.0
    assert found["missing"] == []
    assert (len(found["top_kernels"]), len(found["top_operators"])) == (1, 1)


def test_json_of_two_traces_has_both_and_what_changed(tmp_path: Path) -> None:
    before = write_trace(tmp_path / "before.json", one_step())
    shorter = [{**one, "dur": one["dur"] / 2} for one in one_step() if one["cat"] == "kernel"]
    others = [one for one in one_step() if one["cat"] != "kernel"]
    after = write_trace(tmp_path / "after.json.gz", [*others, *shorter])
    found = json_of(before, after)
    assert found["schema_version"] == "trainperf-trace-comparison/v1"
    assert [each["file"] for each in found["traces"]] == ["before.json", "after.json.gz"]
    assert found["per"] == "step"
    assert found["parts_us"]["compute"]["delta_us"] < 0
    assert {row["name"] for row in found["kernels"]["shrank"]} >= {"sgemm_128x64_nn"}
    assert found["kernels"]["grew"] == []


def test_the_terminal_shows_parts_phases_kinds_and_the_largest(tmp_path: Path) -> None:
    done = run(write_trace(tmp_path / "trace.json", one_step()))
    assert done.exit_code == 0
    for shown in (
        "launch bound",
        "0.14",
        "forward",
        "communication",
        "ampere_sgemm",
        "NVIDIA A100",
    ):
        assert shown in done.stdout
    assert all(len(line) <= 100 for line in done.stdout.splitlines())
    assert "cannot tell" not in done.stdout


def test_the_terminal_shows_two_traces_side_by_side(tmp_path: Path) -> None:
    before = write_trace(tmp_path / "before.json", one_step())
    after = write_trace(
        tmp_path / "after.json", [e for e in one_step() if e["cat"] != "gpu_memcpy"]
    )
    done = run(before, after)
    assert done.exit_code == 0
    assert "vanished" in done.stdout
    assert all(len(line) <= 100 for line in done.stdout.splitlines())


def test_traces_of_one_name_are_told_apart_by_their_folders(tmp_path: Path) -> None:
    files = [tmp_path / folder / "trace.json" for folder in ("old", "new")]
    for file in files:
        file.parent.mkdir()
        write_trace(file, one_step())
    shown = run(*files).stdout
    assert "old/trace.json" in shown
    assert "new/trace.json" in shown
    assert "1 step, 1.00 ms\n" in shown
    assert "grew" not in shown


def test_kernels_whose_long_names_begin_alike_are_told_apart(tmp_path: Path) -> None:
    def renamed(end: str) -> list[dict[str, Any]]:
        long = "gemm_" * 40 + end
        return [
            {**one, "name": long if one["name"].startswith("ampere") else one["name"]}
            for one in one_step()
        ]

    files = [write_trace(tmp_path / f"{end}.json", renamed(end)) for end in ("relu", "tanh")]
    rows = [line.split()[0] for line in run(*files).stdout.splitlines() if "gemm_gemm" in line]
    assert any(row.endswith("relu") for row in rows)
    assert any(row.endswith("tanh") for row in rows)


def test_a_change_below_half_a_percent_is_none_and_a_large_one_a_factor() -> None:
    def change(after_us: float) -> Change:
        return Change(name="x", before_us=100.0, after_us=after_us)

    assert [verdict(change(us)) for us in (100.4, 99.6, 101.0, 99.0)] == [
        *("same", "same", "grew", "shrank")
    ]
    assert [_ratio(change(us)) for us in (150.0, 18_584.0)] == ["+50", "186 x"]


def test_other_devices_and_numbers_of_processes_are_told(tmp_path: Path) -> None:
    one = api.trace(write_trace(tmp_path / "one.json", one_step()))
    other = one.model_copy(update={"device": "NVIDIA V100", "world_size": 4})
    told = compare_traces(one, other).missing
    assert any("the devices differ" in text and "NVIDIA V100" in text for text in told)
    assert any("1 and 4 processes" in text for text in told)


def test_hostile_names_do_not_reach_the_terminal(tmp_path: Path) -> None:
    events = [{**one, "name": one["name"].replace("ampere", "\x1b[31m")} for one in one_step()]
    done = run(
        write_trace(tmp_path / "trace.json", events, deviceProperties=[{"id": 0, "name": "\x07"}])
    )
    assert done.exit_code == 0
    assert "\x1b" not in done.stdout
    assert "\x07" not in done.stdout


TEXT = json.dumps(document(one_step()))


@pytest.mark.parametrize(
    "content",
    [
        TEXT[: len(TEXT) // 2].encode(),
        b"",
        b'{"no": "trace"}',
        gzip.compress(TEXT.encode())[:300],
        gzip.compress(b" " * (100 << 20)),
    ],
    ids=["cut", "empty", "no trace", "cut archive", "zip bomb"],
)
def test_a_file_that_is_refused_ends_with_2_and_one_line(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "given.json.gz"
    path.write_bytes(content)
    for arguments in ([path], [write_trace(tmp_path / "good.json", one_step()), path]):
        done = run(*arguments)
        assert done.exit_code == 2
        assert done.stdout == ""
        assert done.stderr.startswith("trainperf: given.json.gz")
        assert len(done.stderr.splitlines()) == 1


def test_the_command_is_registered_and_needs_neither_torch_nor_mlflow(tmp_path: Path) -> None:
    path = write_trace(tmp_path / "trace.json", one_step())
    done = trainperf("trace", str(path), "--format", "json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["steps"] == 1
    assert not (tmp_path / "mlflow.db").exists()
    script = (
        "import sys; from trainperf_mlflow.cli import cli\n"
        f"try:\n    cli(['trace', {str(path)!r}])\nexcept SystemExit:\n    pass\n"
        "print([name for name in ('torch', 'mlflow', 'pandas') if name in sys.modules])"
    )
    checked = subprocess.run(
        [sys.executable, "-c", script], cwd=REPOSITORY, capture_output=True, text=True, check=True
    )
    assert checked.stdout.splitlines()[-1] == "[]"
