"""``trainperf profile``."""

from __future__ import annotations

import sys

import click

from trainperf_mlflow.cli.options import Command, Count, store_options


@click.command(cls=Command)
@click.argument("study")
@click.option(
    "--top", type=Count(), default=15, metavar="N", help="Operators to list.  [default: 15]"
)
@click.option(
    "--steps", type=Count(), default=3, metavar="N", help="Steps in each trace.  [default: 3]"
)
@store_options
def profile(
    study: str,
    top: int,
    steps: int,
    tracking_uri: str | None,
    experiment: str | None,
    output: str,
) -> None:
    """Trace some steps of each of STUDY's variants with torch.profiler.

    The traces are attached to the variants' runs as profile/trace.json.gz. They
    explain the study and change nothing in its comparison.
    """
    import json

    from trainperf_mlflow import api
    from trainperf_mlflow.reporting.explanation import profile_text

    report = api.profile(
        study,
        top=top,
        steps=steps,
        tracking_uri=tracking_uri,
        experiment=experiment,
        progress=sys.stderr,
    )
    click.echo(json.dumps(report) if output == "json" else profile_text(report))
