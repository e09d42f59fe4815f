"""``trainperf import``."""

from __future__ import annotations

import click

from trainperf_mlflow.cli.options import Command, one_line, store_options, tell


@click.command("import", cls=Command)
@click.argument("files", metavar="REPORT.json...", nargs=-1, required=True)
@store_options
def import_reports(
    files: tuple[str, ...], tracking_uri: str | None, experiment: str | None, output: str
) -> None:
    """Make studies of published result files, and decide again by our own rules.

    Variants, repeats, values, the published decision and the file itself are
    kept. All files are checked before anything is written; one that was imported
    before is the study that it was then.
    """
    import json

    from trainperf_mlflow import api
    from trainperf_mlflow.reporting.importing import outcomes_text

    outcomes = api.import_reports(
        *files,
        tracking_uri=tracking_uri,
        experiment=experiment,
        warn=lambda message: click.echo(one_line(message), err=True),
    )
    dumped = [item.model_dump(mode="json") for item in outcomes]
    if output == "json":
        tell(json.dumps({"schema_version": "trainperf-import/v1", "studies": dumped}))
    else:
        tell(one_line(outcomes_text(dumped)))
