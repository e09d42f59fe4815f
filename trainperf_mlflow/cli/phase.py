"""``trainperf phase``."""

from __future__ import annotations

import sys

import click

from trainperf_mlflow.cli.options import Command, Count, store_options


@click.command(cls=Command)
@click.argument("study")
@click.option(
    "--repeats",
    type=Count(),
    default=3,
    metavar="N",
    help="Fresh processes per variant.  [default: 3]",
)
@store_options
def phase(
    study: str, repeats: int, tracking_uri: str | None, experiment: str | None, output: str
) -> None:
    """Measure time and memory of each phase of STUDY's variants, again and apart.

    Runs the variants of a study that was measured here once more, with a mark
    around data, forward, backward and optimizer. It explains the study and
    changes nothing in its comparison.
    """
    import json

    from trainperf_mlflow import api
    from trainperf_mlflow.reporting.explanation import phases_text

    report = api.phase(
        study,
        repeats=repeats,
        tracking_uri=tracking_uri,
        experiment=experiment,
        progress=sys.stderr,
    )
    click.echo(json.dumps(report) if output == "json" else phases_text(report))
