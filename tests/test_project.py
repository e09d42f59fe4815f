"""``mlflow run``: the project's run is the study, and each parameter reaches it."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from click.testing import CliRunner
from closing_studies import record_closable
from made_traces import one_step, write_trace
from mlflow import MlflowClient
from mlflow.cli import cli as mlflow_cli
from mlflow.entities import Run
from mlflow.projects.backend import local
from recorded_studies import a_store

from trainperf_mlflow.cli import cli
from trainperf_mlflow.results.study import Workload

pytestmark = pytest.mark.usefixtures("warm_servers")

REPOSITORY = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
PROJECT_FILES = ("MLproject", "conda.yaml", "constraints.txt", "pyproject.toml", "README.md")
TINY = {"repeats": "1", "iters": "2", "warmup": "1", "set": "batch_size=1;seq_len=16"}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The project in a folder of its own, so that its store is there, too."""
    return project_in(tmp_path)


def project_in(parent: Path) -> Path:
    folder = parent / "a project"
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


# --- every entry point, its command run in this process ----------------------------------------


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project whose store holds a study to close, and one near it."""
    folder = project_in(tmp_path_factory.mktemp("entries"))
    store = a_store(folder)
    record_closable(store, "recorded")
    near = Workload(
        digest="ef" * 32, identity={"seed": 42}, device="cpu", name="quick", source="stdlib"
    )
    record_closable(store, "near it", workload=near)
    write_trace(folder / "trace.json.gz", one_step())
    (folder / "study.yaml").write_text("candidates: [fused]\nset: {batch_size: 1, seq_len: 16}\n")
    return folder


@pytest.fixture
def entry(shared: Path, monkeypatch: pytest.MonkeyPatch) -> Entry:
    monkeypatch.chdir(shared)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{shared}/mlflow.db")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    return Entry(shared, monkeypatch)


class Entry:
    """``mlflow run -e ENTRY``, all of it, but that MLflow's shell is this process.

    To import MLflow and torch once more would be most of what each entry point takes.
    """

    def __init__(self, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.project, self.printed = project, ""
        monkeypatch.setattr(local, "subprocess", SimpleNamespace(Popen=self._shell))

    def _shell(
        self, words: list[str], close_fds: bool, cwd: str, env: dict[str, str]
    ) -> SimpleNamespace:
        assert words[:2] == ["bash", "-c"]
        assert Path(cwd) == self.project
        program, *arguments = shlex.split(words[2])
        assert (program, arguments[:2]) == ("python", ["-m", "trainperf_mlflow"])
        done = CliRunner(env=env).invoke(cli, arguments[2:])
        assert done.exit_code == 0, done.output
        self.printed = done.stdout
        return SimpleNamespace(wait=lambda: done.exit_code, poll=lambda: done.exit_code)

    def __call__(self, name: str, **parameters: str) -> Run:
        """The project's run; what the command printed is in ``printed``."""
        before = {run.info.run_id for run in runs(self.project)}
        given = [f"-P{key}={value}" for key, value in parameters.items()]
        words = ["run", ".", "-e", name, "--env-manager", "local", *given]
        words += ["--experiment-name", "trainperf"]  # where the recorded studies are
        done = CliRunner().invoke(mlflow_cli, words)
        assert done.exit_code == 0, done.output
        made = [run for run in runs(self.project) if run.info.run_id not in before]
        (run,) = (r for r in made if r.data.tags.get("mlflow.project.entryPoint") == name)
        assert run.info.status == "FINISHED"
        return run


def test_a_plan_file_is_a_parameter_like_any_other(entry: Entry) -> None:
    study = entry("measure", plan="study.yaml", repeats="1", iters="1", warmup="1")
    assert study.data.tags["trainperf.kind"] == "study"
    own = [r for r in runs(entry.project) if r.data.tags.get("trainperf.study_id")
           == study.info.run_id]  # fmt: skip
    variants = {run.data.tags.get("trainperf.variant") for run in own}
    assert {"baseline", "fused"} <= variants
    assert "bf16" not in variants


def test_a_measured_study_is_explained(entry: Entry) -> None:
    once = {"repeats": "1", "iters": "1", "warmup": "1", "set": "batch_size=1;seq_len=16"}
    entry("main", study="measured", candidates="checkpoint", **once)
    entry("phase", study="measured", repeats="1")
    assert "backward" in entry.printed
    entry("profile", study="measured", steps="1", top="2")
    assert "aten::" in entry.printed


def test_the_projects_run_is_the_calibration(entry: Entry) -> None:
    once = {"repeats": "1", "iters": "1", "warmup": "1", "set": "batch_size=1;seq_len=16"}
    run = entry("calibrate", **once)
    assert run.data.tags["trainperf.kind"] == "calibration"


def test_a_recorded_study_is_compared_accepted_reported_and_closed(entry: Entry) -> None:
    entry("compare", study="recorded")
    assert "policy memory-budget" in entry.printed
    entry("regress", primary="recorded", adjacent="near it", study="it's both")
    assert "it's both" in entry.printed
    entry("report", study="recorded", format="markdown", lang="zh", output="report.md")
    assert (entry.project / "report.md").is_file()
    entry("close", study="recorded", label="project-v1")
    assert "closed as 'project-v1'" in entry.printed
    entry("decisions", decision="tune")
    assert "recorded" in entry.printed


def test_traces_predictions_and_the_machine_are_told(entry: Entry) -> None:
    entry("trace", file="trace.json.gz", file2="trace.json.gz", top="2")
    assert "aten" in entry.printed or "kernel" in entry.printed
    entry("estimate", set="seq_len=16", candidates="bf16;checkpoint")
    assert "checkpoint" in entry.printed
    entry("doctor")
    assert "torch" in entry.printed


def test_no_entry_point_is_left_out() -> None:
    entries = yaml.safe_load((REPOSITORY / "MLproject").read_text())["entry_points"]
    run_here = {
        *("main", "measure", "phase", "profile", "calibrate", "compare", "regress", "report"),
        *("close", "decisions", "trace", "estimate", "doctor"),
    }
    assert set(entries) == run_here


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
