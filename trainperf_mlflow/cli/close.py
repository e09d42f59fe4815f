"""``trainperf close``."""

from __future__ import annotations

import click

from trainperf_mlflow.cli.options import Command, one_line, store_options, tell


@click.command(cls=Command)
@click.argument("study")
@click.option("--label", metavar="L", help="A name of your own for this close.")
@click.option(
    "--scope-study",
    metavar="STUDY",
    help="A study with zero-momentum SGD: what holds of activation memory alone.",
)
@click.option("--pressure-study", metavar="STUDY", help="The same training with a longer sequence.")
@click.option("--check", is_flag=True, help="Only read: what would be decided, or still holds.")
@store_options
def close(
    study: str,
    label: str | None,
    scope_study: str | None,
    pressure_study: str | None,
    check: bool,
    tracking_uri: str | None,
    experiment: str | None,
    output: str,
) -> None:
    """Close STUDY: check all evidence, decide by the gates, write the handoff.

    Every artifact is held against its SHA-256, what is missing is listed, and
    manifest, closing report and handoff are attached to the study, whose
    evidence and decision are final from then on. The same label on the same
    evidence again changes nothing.
    """
    from trainperf_mlflow import api
    from trainperf_mlflow.reporting.closing import closure_text

    closure = api.close(
        study,
        label,
        scope_study=scope_study,
        pressure_study=pressure_study,
        check=check,
        tracking_uri=tracking_uri,
        experiment=experiment,
        warn=lambda message: click.echo(one_line(message), err=True),
    )
    if output == "json":
        tell(closure.to_json(indent=None))
    else:
        tell(one_line(closure_text(closure.model_dump())))
