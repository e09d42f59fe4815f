"""``trainperf show`` and ``trainperf runs``: a study whole, and its rows for other programs."""

from __future__ import annotations

import click

from trainperf_mlflow.cli.options import Command, place_options, store_options, tell


@click.command(cls=Command)
@click.argument("study")
@store_options
def show(study: str, tracking_uri: str | None, experiment: str | None, output: str) -> None:
    """Show all of STUDY: decision, repeats, how to repeat it, where to look.

    Of a regression or a ladder, its decision and the studies that it gathers.
    Reads what was recorded and decides nothing anew.
    """
    import json

    from trainperf_mlflow import api
    from trainperf_mlflow.api.showing import ShownGathering
    from trainperf_mlflow.reporting.showing import gathering_text, study_text

    found = api.show(study, tracking_uri=tracking_uri, experiment=experiment)
    if output == "json":
        tell(json.dumps({"schema_version": "trainperf-show/v1", **found.summary()}))
    elif isinstance(found, ShownGathering):
        head = found.model_dump(include={"study_id", "name", "kind", "error"})
        tell(gathering_text(head, found.decided, found.studies, found.links, found.artifacts))
    else:
        tell(study_text(found.study, found.comparison, found.runs, found.links, found.artifacts))


@click.command(cls=Command)
@click.argument("study")
@click.option("--format", "output", type=click.Choice(["table", "json", "csv"]), default="table")
@place_options
def runs(study: str, output: str, tracking_uri: str | None, experiment: str | None) -> None:
    """List the variants and repeats of STUDY with their metrics.

    csv and json also have the configurations, and every metric.
    """
    from trainperf_mlflow import api
    from trainperf_mlflow.reporting.listing import format_rows

    frame = api.runs(study, tracking_uri=tracking_uri, experiment=experiment)
    tell(format_rows(frame, output, empty="nothing was measured"))
