"""``trainperf export``."""

from __future__ import annotations

import click

from trainperf_mlflow.cli.options import Command, place_options, tell


@click.command(cls=Command)
@click.argument("study")
@click.option(
    "--format",
    "wanted",
    metavar="training|memory-strategy|memory-budget|benchmark|profiling|phase|closing|handoff",
    help="Of the report.  [default: the one it was imported from, else its policy's]",
)
@click.option("--output", metavar="FILE", help="Write it there.  [default: stdout]")
@place_options
def export(
    study: str,
    wanted: str | None,
    output: str | None,
    tracking_uri: str | None,
    experiment: str | None,
) -> None:
    """Write STUDY as a report that the course project's later stages read.

    The report is one JSON object, and 'trainperf import' makes the same study
    of it. profiling and phase are what the commands profile and phase measured,
    closing and handoff what close wrote.
    """
    from trainperf_mlflow import api

    text = api.export_text(study, wanted, tracking_uri=tracking_uri, experiment=experiment)
    if output is None:
        tell(text, nl=False)  # byte for byte: another file would be another study
    else:
        api.write_report(output, text)
        tell(f"{output} is written")
