"""The documentation keeps its word: commands run, options are described, links lead somewhere."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml
from click.testing import CliRunner
from made_reports import memory_report, training_report
from made_traces import one_step, write_trace

from trainperf_mlflow.cli import cli
from trainperf_mlflow.workloads.presets import PRESETS

pytestmark = pytest.mark.usefixtures("warm_servers")

REPOSITORY = Path(__file__).resolve().parent.parent
README = REPOSITORY / "README.md"
CHINESE_README = REPOSITORY / "README.zh-CN.md"
GUIDE = REPOSITORY / "docs" / "guide.md"
PAGES = (README, CHINESE_README, *sorted((REPOSITORY / "docs").glob("*.md")))

# Laid over a shown study: the same command in seconds instead of minutes.
SHORT = ("--repeats", "1", "--iters", "1", "--warmup", "1")
SHORT_BUILT_IN = ("--set", "batch_size=1", "--set", "seq_len=16")
# Where no option is shown that could be laid over: the models are predicted in
# test_estimate_published.py.
SMALL_PRESETS = {"quick": {"batch_size": 1, "seq_len": 16}, "pressure": {"model": "tiny"}}
# Already in seconds: a workload near another one keeps its size.
SHORT_ENOUGH = "seq_len=32"

# Shown, but not run here: why. What they name is checked to exist.
NOT_RUN = {
    "scripts/quickstart": "installs packages",
    "scripts/test": "installs packages and is what runs this test",
    "python3 -m venv": "makes an environment",
    "uv pip install": "installs packages",
    "source .venv/bin/activate": "needs what scripts/quickstart installs",
    ".venv/bin/python": "needs what scripts/quickstart installs; a script's own tests run it",
    "trainperf measure --ladder": "three repeats of two variants a length; tests/test_ladder.py",
    "trainperf measure --study bf16-trained": "trains for minutes; tests/test_convergence.py",
    "trainperf ui": "serves until it is ended; tests/test_browser.py runs it",
    "mlflow run": "tests/test_project.py runs it; conda and uv install packages",
}
TOO_LARGE = {"smoke": "needs 10 GiB of memory"}


class Fence(NamedTuple):
    """A fenced block of a page."""

    page: Path
    language: str
    text: str


def fences(page: Path) -> Iterator[Fence]:
    text = page.read_text("utf-8")
    for match in re.finditer(r"^```(\w+)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        yield Fence(page, match[1], match[2])


def commands(page: Path) -> list[str]:
    """The commands of a page's shell blocks, without comments and continuation lines."""
    shown = (fence.text for fence in fences(page) if fence.language in ("sh", "bash", "shell"))
    lines = (line.strip() for text in shown for line in text.replace("\\\n", " ").splitlines())
    return [line for line in lines if line and not line.startswith("#")]


# tests/test_chain.py runs the chain, as it is shown and in order.
CHAIN = REPOSITORY / "docs" / "chain.md"
ALL_COMMANDS = list(
    dict.fromkeys(command for page in PAGES if page != CHAIN for command in commands(page))
)


def words_of(command: str) -> list[str]:
    """The words of a command, without the variables set in front of it."""
    words = shlex.split(command)
    while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
        words.pop(0)
    return words


def why_not_run(command: str) -> str | None:
    words = words_of(command)
    plain = " ".join(words)
    for start, reason in NOT_RUN.items():
        if plain.startswith(start):
            return reason
    return next((reason for name, reason in TOO_LARGE.items() if name in words), None)


def trainperf_options(command: str) -> set[str]:
    params = cli.commands[command].params
    return {flag for option in params for flag in (*option.opts, *option.secondary_opts)}


# --- what is shown runs ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def shown_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder for all commands, with the files that pages show, named in their first line."""
    folder = tmp_path_factory.mktemp("docs")
    for name in ("before.json.gz", "after.json.gz"):
        write_trace(folder / name, one_step())
    for name, report in (
        ("training.json", training_report()),
        ("strategies.json", memory_report()),
    ):
        (folder / name).write_text(json.dumps(report), "utf-8")
    for page in PAGES:
        for fence in fences(page):
            name = re.match(r"# (\w+\.\w+)\n", fence.text)
            if name:
                (folder / name[1]).write_text(fence.text, "utf-8")
    return folder


@pytest.fixture
def folder(shown_files: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(shown_files)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    for name, small in SMALL_PRESETS.items():
        for key, value in small.items():
            monkeypatch.setitem(PRESETS[name].config, key, value)
    return shown_files


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("command", [c for c in ALL_COMMANDS if why_not_run(c) is None])
def test_a_shown_command_runs(command: str) -> None:
    # In this process: importing MLflow anew would take more time than the command itself.
    program, *words = shlex.split(command)
    assert program == "trainperf"
    if words[0] in ("measure", "calibrate"):
        own_size = "--task" in words or SHORT_ENOUGH in words
        words += SHORT if own_size else (*SHORT, *SHORT_BUILT_IN)
    done = CliRunner().invoke(cli, words)
    assert done.exit_code == 0, done.output
    assert done.stdout.strip()


SCRIPTS = [
    fence
    for page in PAGES
    if page != CHINESE_README
    for fence in fences(page)
    if fence.language == "python" and not re.match(r"# \w+\.py\n", fence.text)
]


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("script", SCRIPTS, ids=[script.page.name for script in SCRIPTS])
def test_a_shown_python_example_runs(script: Fence, capsys: pytest.CaptureFixture[str]) -> None:
    # After the commands: the examples read the studies that these have measured.
    exec(compile(script.text, script.page.name, "exec"), {"__name__": "__main__"})  # noqa: S102
    assert capsys.readouterr().out.strip()


# --- what is shown but not run exists ----------------------------------------------------------


@pytest.mark.parametrize("command", [c for c in ALL_COMMANDS if why_not_run(c) is not None])
def test_a_shown_command_that_is_not_run_names_what_exists(command: str) -> None:
    words = words_of(command)
    if words[0].startswith("scripts/"):
        script = REPOSITORY / words[0]
        assert os.access(script, os.X_OK)
        subprocess.run(["bash", "-n", script], check=True)
    if words[0] == "scripts/quickstart":
        check_mlflow_run(["mlflow", "run", ".", *words[1:]])
    elif words[0] == "mlflow":
        check_mlflow_run(words)
    elif words[:2] == ["trainperf", "ui"]:
        cli.commands["ui"].make_context("ui", words[2:])
    elif words[0] == "trainperf":
        check_measure(words)
    elif "install" in words:
        pins = (REPOSITORY / "constraints.txt").read_text().splitlines()
        assert [word for word in words if "==" in word and word not in pins] == []


def check_mlflow_run(words: list[str]) -> None:
    from mlflow.cli import cli as mlflow_cli

    context = mlflow_cli.commands["run"].make_context("run", words[2:])
    entries = yaml.safe_load((REPOSITORY / "MLproject").read_text())["entry_points"]
    parameters = entries[context.params["entry_point"]].get("parameters", {})
    given = dict(pair.split("=", 1) for pair in context.params["param_list"])
    assert set(given) <= set(parameters)


def check_measure(words: list[str]) -> None:
    from trainperf_mlflow.cli.flags import plan_from_flags

    context = cli.commands["measure"].make_context("measure", words[2:])
    other = (
        *("plan", "tracking_uri", "experiment", "output", "default_candidates"),
        "device_memory",
    )
    flags = {key: value for key, value in context.params.items() if key not in other}
    assert plan_from_flags(context.params["plan"], flags).variants()


def test_the_program_that_is_shown_is_installed_with_the_package() -> None:
    import tomllib

    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    assert project["scripts"] == {"trainperf": "trainperf_mlflow.cli:main"}


# --- nothing is left out -----------------------------------------------------------------------


def test_both_readmes_show_the_same_commands_code_and_results() -> None:
    assert commands(README) == commands(CHINESE_README)
    english, chinese = (
        [fence.text for fence in fences(page) if fence.language in ("python", "text", "yaml")]
        for page in (README, CHINESE_README)
    )
    assert english == chinese


def test_both_readmes_have_the_same_headings_tables_and_pictures() -> None:
    def shape(page: Path) -> list[str]:
        lines = re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.M | re.S).splitlines()
        kinds = {"#": "heading", "|": "row", "!": "picture", "-": "item"}
        return [kinds[line[0]] for line in lines if line and line[0] in kinds]

    assert shape(README) == shape(CHINESE_README)


@pytest.mark.parametrize("command", sorted(cli.commands))
def test_the_guide_documents_each_option_of(command: str) -> None:
    text = GUIDE.read_text("utf-8")
    assert f"`trainperf {command}" in text
    hidden = {"--default-candidates"}
    options = {flag for flag in trainperf_options(command) if flag.startswith("--")}
    assert [flag for flag in sorted(options - hidden) if f"`{flag}" not in text] == []


def test_the_guide_shows_no_option_that_does_not_exist() -> None:
    known = {"--help"}.union(*map(trainperf_options, cli.commands))
    shown = set(re.findall(r"`(--[a-z-]+)", GUIDE.read_text("utf-8")))
    assert shown - known - {"--env-manager"} == set()


@pytest.mark.parametrize("page", [README, CHINESE_README], ids=lambda page: page.name)
def test_a_readme_lists_each_project_parameter_strategy_status_and_goal(page: Path) -> None:
    from trainperf_mlflow.decisions.policies import GOALS
    from trainperf_mlflow.results.record import Status
    from trainperf_mlflow.workloads.strategies import STRATEGIES

    parameters = yaml.safe_load((REPOSITORY / "MLproject").read_text())["entry_points"]["main"]
    text = page.read_text("utf-8")
    named = [*parameters["parameters"], *STRATEGIES, *Status, *GOALS]
    assert [name for name in named if f"`{name}`" not in text] == []


def test_the_guide_gives_the_thresholds_their_true_defaults() -> None:
    from trainperf_mlflow.decisions.policies import POLICIES

    text = GUIDE.read_text("utf-8")
    for name, policy in POLICIES.items():
        row = next(line for line in text.splitlines() if line.startswith(f"| `{name}` | "))
        for threshold, value in policy.thresholds.items():
            assert f"`{threshold}` {value:g}" in row


def test_the_guide_gives_presets_their_true_sizes() -> None:
    text = GUIDE.read_text("utf-8")
    for name, preset in PRESETS.items():
        row = next(line for line in text.splitlines() if line.startswith(f"| `{name}` | "))
        config = preset.config
        assert f"{config['batch_size']} x {config['seq_len']}" in row
        assert f"{preset.warmup} + {preset.iters}" in row
        assert f"`{config['data']}`" in row


def anchor_of(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading).lower().replace(" ", "-")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_within_the_documentation_lead_somewhere(page: Path) -> None:
    text = re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.M | re.S)
    for target in re.findall(r"\]\(([^)]+)\)", text):
        assert not target.startswith(("http", "/")), target
        path, _, anchor = target.partition("#")
        linked = (page.parent / path).resolve() if path else page
        assert linked.is_file(), target
        if anchor:
            headings = re.findall(r"^#+ (.+)$", linked.read_text("utf-8"), re.MULTILINE)
            assert anchor in {
                re.sub(r"[^\w\- ]", "", h).lower().replace(" ", "-") for h in headings
            }


def test_the_picture_of_the_readme_is_small() -> None:
    for picture in (REPOSITORY / "docs").glob("*.png"):
        assert picture.stat().st_size < 300_000


def test_click_knows_no_command_that_the_guide_leaves_out() -> None:
    text = GUIDE.read_text("utf-8")
    assert [name for name in cli.commands if f"`trainperf {name}" not in text] == []
