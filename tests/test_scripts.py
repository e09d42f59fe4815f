"""The scripts' own arguments go where they say: to mlflow, to pytest, never to pip."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent
SPY = """#!/usr/bin/env bash
printf '%s\\n' "$(basename "$0")" "$@" >>"$SPY_LOG"
"""


@pytest.mark.parametrize(
    ("script", "arguments", "wanted"),
    [
        ("quickstart", [], ["mlflow", "run", ".", "-e", "measure", "--env-manager", "local",
                            "-P", "goal=peak_mem", "-P", "threshold=max_cost=60"]),
        ("quickstart", ["-P", "candidates=bf16;fused"],
         ["mlflow", "run", ".", "-e", "measure", "--env-manager", "local",
          "-P", "candidates=bf16;fused"]),
        ("test", ["-k", "plan"], ["python", "-m", "pytest", "-n", "auto", "--maxprocesses", "4",
                                  "--dist", "loadfile", "-k", "plan"]),
    ],
)  # fmt: skip
def test_a_scripts_arguments_reach_its_program(
    tmp_path: Path, script: str, arguments: list[str], wanted: list[str]
) -> None:
    for name in ("scripts", "constraints.txt", "pyproject.toml"):
        source = REPOSITORY / name
        copy = shutil.copytree if source.is_dir() else shutil.copy
        copy(source, tmp_path / name)
    # An environment that is installed already, with programs that write down what they are told.
    programs = tmp_path / ".venv" / "bin"
    programs.mkdir(parents=True)
    for name in ("python", "mlflow"):
        (programs / name).write_text(SPY)
        (programs / name).chmod(0o755)
    sums = subprocess.run(
        ["bash", "-c", "cat constraints.txt pyproject.toml | cksum"],
        cwd=tmp_path, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    for stamp in ("installed", "installed-test"):
        (tmp_path / ".venv" / stamp).write_text(sums)
    log = tmp_path / "log"
    elsewhere = tmp_path / "else where"
    elsewhere.mkdir()
    subprocess.run(
        [tmp_path / "scripts" / script, *arguments],
        cwd=elsewhere, env={**os.environ, "SPY_LOG": str(log)}, check=True,
    )  # fmt: skip
    assert log.read_text().splitlines() == wanted
