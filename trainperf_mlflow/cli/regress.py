"""``trainperf regress``."""

from __future__ import annotations

import click

from trainperf_mlflow.cli.options import Command, store_options, tell


@click.command(cls=Command)
@click.option("--primary", metavar="STUDY", help="The study of the workload the change is for.")
@click.option(
    "--adjacent",
    multiple=True,
    metavar="STUDY",
    help="A study of a workload near it; at least one. Repeat it, or separate by ';'.",
)
@click.option("--candidate", metavar="NAME", help="The variant, where a study has several.")
@click.option("--contract", metavar="FILE.json", help="The contract as a file.")
@click.option("--threshold", "thresholds", multiple=True, metavar="K=V", help="A gate.")
@click.option("--study", "name", metavar="NAME", help="Name of the regression's run.")
@store_options
def regress(
    primary: str | None,
    adjacent: tuple[str, ...],
    candidate: str | None,
    contract: str | None,
    thresholds: tuple[str, ...],
    name: str | None,
    tracking_uri: str | None,
    experiment: str | None,
    output: str,
) -> None:
    """Decide whether a change holds on its own workload and on those near it.

    Takes studies that were measured, makes a run that links them, and decides with
    rollback and next action.

    \b
    Example:
      trainperf regress --primary base --adjacent short --adjacent small
    """
    import json

    from trainperf_mlflow import api
    from trainperf_mlflow.cli.flags import listed, settings
    from trainperf_mlflow.reporting.regression import regression_text

    found = api.regress(
        primary or None,
        listed(adjacent),
        candidate=candidate or None,
        contract=contract or None,
        thresholds=settings("threshold", thresholds),
        name=name or None,
        tracking_uri=tracking_uri,
        experiment=experiment,
    )
    tell(json.dumps(found.summary()) if output == "json" else regression_text(found))
