"""``mlflow run``: the project's run is the study, and each parameter reaches it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import yaml
from mlflow import MlflowClient
from mlflow.entities import Run

REPOSITORY = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
PROJECT_FILES = ("MLproject", "conda.yaml", "constraints.txt", "pyproject.toml", "README.md")
TINY = {"repeats": "1", "iters": "2", "warmup": "1", "set": "batch_size=1;seq_len=16"}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The project in a folder of its own, so that its store is there, too."""
    folder = tmp_path / "a project"
    folder.mkdir()
    for name in PROJECT_FILES:
        if (REPOSITORY / name).exists():
            shutil.copy(REPOSITORY / name, folder / name)
    (folder / "trainperf_mlflow").symlink_to(REPOSITORY / "trainperf_mlflow")
    return folder


def mlflow_run(
    project: Path, *arguments: str, **parameters: str
) -> subprocess.CompletedProcess[str]:
    given = [f"-P{name}={value}" for name, value in parameters.items()]
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("MLFLOW_", "TRAINPERF_"))}
    return subprocess.run(
        [sys.executable, "-m", "mlflow", "run", ".", "--env-manager", "local", *arguments, *given],
        cwd=project,
        env={**clean, "PATH": f"{BIN}{os.pathsep}{clean['PATH']}", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def runs(project: Path) -> list[Run]:
    client = MlflowClient(f"sqlite:///{project}/mlflow.db")
    experiments = [experiment.experiment_id for experiment in client.search_experiments()]
    return list(client.search_runs(experiments, max_results=100))


def test_without_any_parameter_the_defaults_are_a_study_of_bf16_and_checkpoint() -> None:
    from trainperf_mlflow.cli.flags import plan_from_flags

    entry = yaml.safe_load((REPOSITORY / "MLproject").read_text())["entry_points"]["main"]
    assert '--default-candidates "bf16;checkpoint"' in entry["command"]
    empty = {"candidate": ("",), "settings": ("",), "thresholds": ("",), "study": "", "probe": ""}
    plan = plan_from_flags("", empty, "bf16;checkpoint")
    assert plan.workload_name == "quick"
    assert [candidate.name for candidate in plan.candidates] == ["bf16", "checkpoint"]


def test_the_projects_run_is_the_study(project: Path) -> None:
    # No -e: the project's main job is to measure.
    done = mlflow_run(
        project,
        candidates="checkpoint;wide:batch_size=2",
        study='it\'s a "name"',
        goal="peak_mem",
        hypothesis="memory",
        threshold="max_cost=50;min_gain=1",
        **TINY,
    )
    assert done.returncode == 0, done.stderr
    found = runs(project)
    assert Counter(run.data.tags["trainperf.kind"] for run in found) == Counter(
        study=1, variant=3, repeat=3
    )
    study = next(run for run in found if run.data.tags["trainperf.kind"] == "study")
    assert study.data.tags["mlflow.project.entryPoint"] == "main"
    assert study.info.run_name == 'it\'s a "name"'
    assert study.data.tags["trainperf.goal"] == "peak_mem"
    assert study.data.tags["trainperf.decision"] in ("accept", "tune", "reject")
    assert {run.info.status for run in found} == {"FINISHED"}
    assert study.data.params["plan.seed"] == "42"
    assert "See it in MLflow" in done.stdout


def test_a_refused_plan_fails_the_projects_run_and_leaves_none_running(project: Path) -> None:
    done = mlflow_run(project, "-e", "measure", candidates="bf61", **TINY)
    assert done.returncode == 1
    assert "did you mean 'bf16'" in done.stderr
    assert {run.info.status for run in runs(project)} == {"FAILED"}


def test_a_plan_file_is_a_parameter_like_any_other(project: Path) -> None:
    (project / "study.yaml").write_text("candidates: [fused]\nset: {batch_size: 1, seq_len: 16}\n")
    done = mlflow_run(
        project, "-e", "measure", plan="study.yaml", repeats="1", iters="2", warmup="1"
    )
    assert done.returncode == 0, done.stderr
    variants = {run.data.tags.get("trainperf.variant") for run in runs(project)}
    assert {"baseline", "fused"} <= variants
    assert "bf16" not in variants


def test_conda_yaml_holds_only_what_every_environment_manager_honours() -> None:
    conda = yaml.safe_load((REPOSITORY / "conda.yaml").read_text())
    python, pip, packages = conda["dependencies"]
    assert python.startswith("python=")
    assert pip == "pip"
    assert packages == {"pip": ["-c constraints.txt", "-e ."]}


def test_every_requirement_is_pinned_once_and_within_its_honest_range() -> None:
    import tomllib

    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    pins = {}
    for line in (REPOSITORY / "constraints.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            pin = Requirement(line)
            assert canonicalize_name(pin.name) not in pins, f"{pin.name} is pinned twice"
            (only,) = pin.specifier
            assert only.operator == "=="
            pins[canonicalize_name(pin.name)] = only.version
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    for text in [*project["dependencies"], *extras["postgres"], *extras["test"]]:
        requirement = Requirement(text)
        version = pins[canonicalize_name(requirement.name)]
        assert requirement.specifier.contains(version), f"{requirement} is pinned to {version}"


def test_uv_resolves_the_projects_environment(project: Path) -> None:
    """What ``--env-manager uv`` installs can be resolved and holds the project; not installed here,
    since it takes gigabytes."""
    packages = yaml.safe_load((project / "conda.yaml").read_text())["dependencies"][2]["pip"]
    (project / "requirements.txt").write_text("\n".join(packages))
    done = subprocess.run(
        ["uv", "pip", "install", "--dry-run", "-r", "requirements.txt", "--python", sys.executable],
        cwd=project,
        env={**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
