"""What all commands share: how they fail, and the options that each has."""

from __future__ import annotations

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


def one_line(text: str) -> str:
    """A message without control characters, which a hostile name could smuggle in.

    >>> one_line("a\\x1b[31mb")
    'a\\\\x1b[31mb'
    """
    return "".join(
        character if character.isprintable() or character == "\n" else repr(character)[1:-1]
        for character in text
    )


def store_options(command: F) -> F:
    """The options that every command has."""
    for option in (
        click.option(
            "--format",
            "output",
            type=click.Choice(["text", "json"]),
            default="text",
            help="json: one object on stdout, for machines.",
        ),
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
