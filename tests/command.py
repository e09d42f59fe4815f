"""The command as a user runs it, in a folder of its own, and the runs that it left in MLflow."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

from mlflow import MlflowClient
from mlflow.entities import Run

REPOSITORY = Path(__file__).resolve().parent.parent
COMMAND = (sys.executable, "-m", "trainperf_mlflow")


def environment(**changes: str) -> dict[str, str]:
    """This process's environment without settings of MLflow or of the toolkit."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("MLFLOW_", "TRAINPERF_"))}
    return {**clean, "PYTHONPATH": str(REPOSITORY), "OMP_NUM_THREADS": "1", **changes}


def trainperf(*arguments: str, cwd: Path, **changes: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments],
        cwd=cwd,
        env=environment(**changes),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def start_trainperf(*arguments: str, cwd: Path, **changes: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*COMMAND, *arguments],
        cwd=cwd,
        env=environment(**changes),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def runs(folder: Path, uri: str | None = None) -> list[Run]:
    """All runs in the store of a folder, or at a URI."""
    client = MlflowClient(uri or f"sqlite:///{folder}/mlflow.db")
    experiments = [experiment.experiment_id for experiment in client.search_experiments()]
    return list(client.search_runs(experiments, max_results=500))


def kinds(found: list[Run]) -> Counter[str]:
    return Counter(run.data.tags.get("trainperf.kind", "?") for run in found)
