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

from trainperf_mlflow.cli.trace import trace


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
