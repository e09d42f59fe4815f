"""`trainperf trace`."""

from __future__ import annotations

import click

from trainperf_mlflow.cli.options import Command, Count


@click.command(cls=Command)
@click.argument("file", metavar="FILE")
@click.argument("other", metavar="[FILE2]", required=False)
@click.option(
    "--top",
    type=Count(),
    default=10,
    metavar="N",
    help="How many kernels and operators to list.  [default: 10]",
)
@click.option(
    "--format",
    "output",
    type=click.Choice(["text", "json"]),
    default="text",
    help="json: one object on stdout, for machines.",
)
def trace(file: str, other: str | None, top: int, output: str) -> None:
    """Say what a torch.profiler trace FILE says; with FILE2, what changed.

    Reads .json and .json.gz of any GPU or CPU training. Nothing is measured, and
    no MLflow store is needed.

    \b
    Examples:
      trainperf trace trace.json.gz
      trainperf trace before.json.gz after.json.gz --top 5
    """
    import json

    from trainperf_mlflow import api
    from trainperf_mlflow.reporting.traces import comparison_of_traces_text, trace_text

    if not other:
        found = api.trace(file)
        text = json.dumps(found.summary(top)) if output == "json" else trace_text(found, top)
    else:
        compared = api.compare_traces(file, other)
        text = (
            json.dumps(compared.summary(top))
            if output == "json"
            else comparison_of_traces_text(compared, top)
        )
    click.echo(text)
