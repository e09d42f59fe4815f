"""The command line's flags and a plan file give the same plan; help is light."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from click.testing import CliRunner

from trainperf_mlflow.api.calibrating import DEFAULT_REPEATS
from trainperf_mlflow.cli import cli
from trainperf_mlflow.cli.flags import plan_from_flags
from trainperf_mlflow.errors import PlanError
from trainperf_mlflow.plan import Plan

REPOSITORY = Path(__file__).resolve().parent.parent


def test_flags_and_plan_file_give_the_same_plan(tmp_path: Path) -> None:
    file = tmp_path / "study.yaml"
    file.write_text(
        """
study: mine
workload: quick
set: {batch_size: 4, learning_rate: 1.0e-4}
baseline: {grad_accumulation: 2}
candidates:
  - bf16
  - {name: wide, config: {seq_len: 64}}
repeats: 5
warmup: auto
iters: 7
max_time: 15m
goal: peak_mem
hypothesis: memory
threshold: {max_cost: 40}
"""
    )
    flags: dict[str, Any] = {
        "study": "mine",
        "workload": "quick",
        "settings": ("batch_size=4", "learning_rate=1e-4"),
        "baseline": "grad_accumulation=2",
        "candidate": ("bf16", "wide:seq_len=64"),
        "repeats": "5",
        "warmup": "auto",
        "iters": "7",
        "max_time": "15m",
        "goal": "peak_mem",
        "hypothesis": "memory",
        "thresholds": ("max_cost=40",),
    }
    assert plan_from_flags(str(file), {}) == plan_from_flags(None, flags)


def test_one_parameter_holds_several_candidates_and_empty_ones_are_unset() -> None:
    flags = {"candidate": ("bf16; checkpoint;",), "study": "", "repeats": "", "goal": ""}
    plan = plan_from_flags(None, flags)
    assert [candidate.name for candidate in plan.candidates] == ["bf16", "checkpoint"]
    assert (plan.study, plan.repeats, plan.goal) == (None, 3, None)


def test_flags_override_the_plan_file(tmp_path: Path) -> None:
    file = tmp_path / "study.yaml"
    file.write_text("candidates: [bf16]\nset: {batch_size: 4, seq_len: 64}\nrepeats: 2\n")
    plan = plan_from_flags(str(file), {"settings": ("seq_len=32",), "repeats": "4"})
    assert plan.set == {"batch_size": 4, "seq_len": 32}
    assert plan.repeats == 4


def test_default_candidates_stand_in_only_where_none_are_named(tmp_path: Path) -> None:
    defaults = "bf16;checkpoint"
    file = tmp_path / "study.yaml"
    file.write_text("candidates: [fused]\n")

    def names(plan_file: str | None, **flags: Any) -> list[str]:
        return [c.name for c in plan_from_flags(plan_file, flags, defaults).candidates]

    assert names(None) == ["bf16", "checkpoint"]
    assert names(str(file)) == ["fused"]
    assert names(None, candidate=("compile",)) == ["compile"]
    assert names(None, probe="true") == []


def test_nothing_to_compare_is_refused_with_both_ways_out() -> None:
    with pytest.raises(PlanError, match=r"--candidate.*--probe"):
        plan_from_flags(None, {})


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"repeats": "many"}, "repeats"),
        ({"repeats": "0"}, "repeats"),
        ({"max_time": "soon"}, "90s, 15m or 2h"),
        ({"probe": "perhaps"}, "neither true nor false"),
        ({"settings": ("batch_size",)}, "KEY=VALUE"),
        ({"settings": ("batch_sise=4",)}, "did you mean 'batch_size'"),
        ({"settings": ("batch_size=0",)}, "batch_size"),
        ({"settings": ("batch_size=1e99",)}, "batch_size"),
        ({"candidate": ("chekpoint",)}, "did you mean 'checkpoint'"),
        ({"candidate": ("two:batch_size=7,seq_len=63",)}, "batch_size, seq_len"),
        ({"candidate": ("same:precision=fp32",)}, "does not differ"),
        ({"workload": "quik"}, "did you mean 'quick'"),
        ({"goal": "speed"}, "unknown goal 'speed'"),
        ({"policy": "goal"}, "needs a goal"),
        ({"thresholds": ("max_cost=5",)}, "unknown threshold 'max_cost'"),
        ({"device": "CUDA!"}, "device"),
        ({"task": "module.without.factory"}, "MODULE:FACTORY"),
        ({"study": "x" * 300}, "study"),
        ({"study": "a\nb"}, "line breaks"),
        ({"seed": "-1"}, "seed"),
        ({"hypothesis": "gpu"}, "hypothesis"),
    ],
)
def test_bad_input_is_named_with_its_value(flags: dict[str, Any], message: str) -> None:
    with pytest.raises(PlanError, match=message.replace("(", r"\(")):
        plan_from_flags(None, {"candidate": ("bf16",), **flags})


def test_help_imports_neither_torch_nor_mlflow_nor_anything_else_heavy() -> None:
    code = (
        "import sys\n"
        "from trainperf_mlflow.cli import cli\n"
        "for words in ([], ['measure'], ['doctor'], ['compare']):\n"
        "    try: cli([*words, '--help'])\n"
        "    except SystemExit as end: assert end.code == 0\n"
        "heavy = {'torch', 'mlflow', 'transformers', 'pandas', 'numpy', 'pydantic', 'rich'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    assert "--candidate" in result.stdout


def defaults_in_help(command: str) -> dict[str, str]:
    found = {}
    for option in cli.commands[command].params:
        told = re.search(r"\[default: (.+?)\]", getattr(option, "help", None) or "")
        if told:
            found[option.name or ""] = told[1]
    return found


def test_no_help_shows_what_is_none_of_the_users_words() -> None:
    for words in ([], *([name] for name in cli.commands)):
        shown = CliRunner().invoke(cli, [*words, "--help"])
        assert shown.exit_code == 0, shown.output
        strange = re.findall(r"None|Sentinel|UNSET|<class|object at", shown.stdout)
        assert strange == [], (words, strange)


@pytest.mark.parametrize("command", ["measure", "calibrate", "estimate"])
def test_the_defaults_that_help_names_are_those_of_the_plan(command: str) -> None:
    told = defaults_in_help(command)
    fields = Plan.model_fields
    plain = {name: value for name, value in told.items() if name in fields and name != "policy"}
    true = {name: str(fields[name].default) for name in plain}
    if command == "calibrate":
        true["repeats"] = str(DEFAULT_REPEATS)
    assert plain == true
    assert {"repeats", "blocks", "warmup", "iters", "seed", "device", "isolation"} <= plain.keys()


def test_a_calibration_offers_no_option_that_does_nothing_there() -> None:
    offered = {option.name for option in cli.commands["calibrate"].params}
    judged = {"candidate", "probe", "goal", "hypothesis", "policy", "thresholds"}
    assert offered & judged == set()
    measuring = {option.name for option in cli.commands["measure"].params}
    own = {"ladder", "convergence_steps", "device_memory", "default_candidates"}
    assert measuring - offered == judged | own


def test_the_command_that_measures_does_not_load_torch_itself() -> None:
    code = (
        "import sys\n"
        "import trainperf_mlflow.api, trainperf_mlflow.measurement.conductor\n"
        "import trainperf_mlflow.measurement.protocol\n"
        "assert not {'torch', 'transformers'} & set(sys.modules)\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr


def test_every_parameter_of_the_project_reaches_an_option_of_the_command() -> None:
    project = yaml.safe_load((REPOSITORY / "MLproject").read_text())
    points = project["entry_points"]
    assert points["main"] == points["measure"]
    measure = points["measure"]
    assert all(parameter["default"] == "" for parameter in measure["parameters"].values())
    from trainperf_mlflow.cli import cli

    options = {option for p in cli.commands["measure"].params for option in p.opts}
    for name in measure["parameters"]:
        flag = "--candidate" if name == "candidates" else "--" + name.replace("_", "-")
        assert f"{flag}={{{name}}}" in measure["command"]
        assert flag in options


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ("phase", {"repeats": 3}),
        ("profile", {"top": 15, "steps": 3}),
        ("trace", {"top": 10, "file": "given", "other": ""}),
        ("estimate", {"device_memory": "", "capability": ""}),
    ],
)
def test_an_empty_parameter_of_the_project_is_unset(entry: str, expected: dict[str, Any]) -> None:
    found = yaml.safe_load((REPOSITORY / "MLproject").read_text())["entry_points"][entry]
    given = {
        name: parameter.get("default", "given") for name, parameter in found["parameters"].items()
    }
    assert set(given.values()) <= {"", "given"}
    assert {parameter["type"] for parameter in found["parameters"].values()} == {"string"}
    # As MLflow does it: each value is one word of the shell.
    quoted = {name: shlex.quote(value) for name, value in given.items()}
    words = shlex.split(found["command"].format(**quoted))
    assert words[:4] == ["python", "-m", "trainperf_mlflow", entry]
    parsed = cli.commands[entry].make_context(entry, words[4:]).params
    assert {name: parsed[name] for name in expected} == expected


@pytest.mark.parametrize("value", ["", "much", "0"])
def test_a_number_is_read_as_before_and_only_an_empty_one_is_the_default(value: str) -> None:
    words = ["--top", value, "a.json"]
    if value:
        with pytest.raises(click.BadParameter):
            cli.commands["trace"].make_context("trace", words)
    else:
        assert cli.commands["trace"].make_context("trace", words).params["top"] == 10
