"""What all commands share: how they fail, and the options that each has."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click

from trainperf_mlflow.errors import TrainperfError

F = TypeVar("F", bound=Callable[..., Any])


class Command(click.Command):
    """Tells the user's errors in one line each, with their exit code."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except TrainperfError as error:
            click.echo(f"trainperf: {one_line(str(error))}", err=True)
            ctx.exit(error.exit_code)
        except KeyboardInterrupt:
            click.echo("trainperf: interrupted", err=True)
            ctx.exit(130)


class Group(click.Group):
    command_class = Command


class Count(click.IntRange):
    """A whole number from 1 on; an empty text is unset, as all parameters of the MLproject are."""

    def __init__(self) -> None:
        super().__init__(min=1)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "" and param is not None and ctx is not None:
            value = param.get_default(ctx)
        return super().convert(value, param, ctx)


def tell(text: str, *, err: bool = False, nl: bool = True) -> None:
    """Print a result. A reader that has gone has read enough: what was done stays done."""
    stream = sys.stderr if err else sys.stdout
    if stream is None:  # closed by whoever started the command
        return
    try:
        click.echo(text, err=err, nl=nl)
        stream.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2 if err else 1)


def one_line(text: str) -> str:
    """A message without control characters, which a hostile name could smuggle in.

    >>> one_line("a\\x1b[31mb")
    'a\\\\x1b[31mb'
    """
    return "".join(
        character if character.isprintable() or character == "\n" else repr(character)[1:-1]
        for character in text
    )


def print_comparison(comparison: Any, output: str) -> None:
    import json

    from trainperf_mlflow.reporting.table import comparison_text

    if output == "json":
        tell(json.dumps(comparison.summary()))
    else:
        tell(comparison_text(comparison))


def print_scope(scope: Any, output: str) -> None:
    import json

    from trainperf_mlflow.reporting.scope import scope_text

    tell(json.dumps(scope.summary()) if output == "json" else scope_text(scope))


format_option = click.option(
    "--format",
    "output",
    type=click.Choice(["text", "json"]),
    default="text",
    help="json: one object on stdout, for machines.",
)

_WORKLOAD_OPTIONS = (
    click.option("--study", metavar="NAME", help="Name of the study."),
    click.option(
        "--plan", metavar="FILE.yaml", help="The plan as a file; other flags override it."
    ),
    click.option(
        "--task", metavar="MODULE:FACTORY", help="Your own task instead of the causal LM."
    ),
    click.option(
        "--workload", metavar="quick|smoke|pressure|pressure_1024", help="Preset of sizes."
    ),
    click.option(
        "--model", metavar="M", help="tiny, qwen25_small, deepseek_r1_small, hub id, folder."
    ),
    click.option("--model-source", metavar="auto|huggingface|modelscope|local|config"),
    click.option(
        "--set", "settings", multiple=True, metavar="K=V", help="A setting of all variants."
    ),
    click.option("--baseline", metavar="K=V,...", help="Settings that candidates start from."),
)
_CHANGE_OPTIONS = (
    click.option(
        "--candidate",
        multiple=True,
        metavar="NAME|NAME:K=V,...",
        help="A change: bf16, fp16, amp, tf32, fused, checkpoint, offload, hybrid, compile, "
        "or settings of your own. Repeat it, or separate by ';'.",
    ),
    click.option(
        "--probe",
        is_flag=False,
        flag_value="true",
        metavar="",
        help="Only measure, compare with nothing.",
    ),
)
_REPEATS_HELP = "Fresh processes per variant.  [default: {}]"
_SCHEDULE_OPTIONS = (
    click.option(
        "--blocks",
        metavar="N|auto",
        help="Measured blocks per repeat, 1 to 4; auto is 4.  [default: auto]",
    ),
    click.option(
        "--warmup",
        metavar="N|auto",
        help="Steps before measuring; auto: until they have settled, or as many as the preset "
        "fixes.  [default: auto]",
    ),
    click.option(
        "--iters",
        metavar="N|auto",
        help="Steps per block; auto: at least 10 and 0.5 s, or as many as the preset fixes.  "
        "[default: auto]",
    ),
    click.option("--max-time", metavar="T", help="Start no further round after 90s, 15m, 2h."),
    click.option("--seed", metavar="N", help="Of initialisation, data and order.  [default: 42]"),
    click.option("--device", metavar="auto|cpu|cuda|...", help="[default: auto]"),
    click.option("--isolation", metavar="auto|process|resident", help="[default: auto]"),
)
_RULE_OPTIONS = (
    click.option(
        "--goal",
        metavar="METRIC",
        help="What the change is for: step_time, samples_per_s, tokens_per_s, peak_mem, "
        "peak_reserved, host_peak_rss, eval_loss. Decides by the policy goal.",
    ),
    click.option("--hypothesis", metavar="data|forward|backward|optimizer|memory"),
    click.option(
        "--policy",
        metavar="NAME",
        help="Rule set: training, goal, optimization, memory-strategy, memory-budget.  "
        "[default: by the goal]",
    ),
    click.option("--threshold", "thresholds", multiple=True, metavar="K=V", help="Of the policy."),
)
_LABEL = click.option("--label", metavar="L", help="A word of your own, kept with the study.")


def plan_options(command: F) -> F:
    """The options that say what a plan says; see ``cli.flags.plan_from_flags``."""
    repeats = click.option("--repeats", metavar="N", help=_REPEATS_HELP.format(3))
    before = (*_WORKLOAD_OPTIONS, *_CHANGE_OPTIONS, repeats, *_SCHEDULE_OPTIONS)
    return _with(command, *before, *_RULE_OPTIONS, _LABEL)


def baseline_options(command: F) -> F:
    """Those of a plan that changes nothing and decides nothing."""
    repeats = click.option("--repeats", metavar="N", help=_REPEATS_HELP.format(8))
    return _with(command, *_WORKLOAD_OPTIONS, repeats, *_SCHEDULE_OPTIONS, _LABEL)


def _with(command: F, *options: Callable[[F], F]) -> F:
    for option in reversed(options):
        command = option(command)
    return command


def store_options(command: F) -> F:
    """The options that every command has."""
    return place_options(format_option(command))


def place_options(command: F) -> F:
    """Which store and experiment: of a command whose output has one format only."""
    for option in (
        click.option(
            "--experiment", metavar="NAME", help="MLflow experiment.  [default: trainperf]"
        ),
        click.option(
            "--tracking-uri",
            metavar="URI",
            help="MLflow store.  [default: MLFLOW_TRACKING_URI, or mlflow.db in this folder]",
        ),
    ):
        command = option(command)
    return command
