"""For all tests and doctests: nothing is written into the folder that the tests run in."""

import os
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in os.environ:
        if name in ("COLUMNS", "NO_COLOR", "FORCE_COLOR") or name.startswith(
            ("MLFLOW_RUN", "MLFLOW_EXP", "MLFLOW_TRACKING", "TRAINPERF_")
        ):
            monkeypatch.delenv(name)
