"""``trainperf compare``: a study again, or any two runs."""

from __future__ import annotations

import click

from trainperf_mlflow.cli.options import Command, print_comparison, store_options


@click.command(cls=Command)
@click.argument("study", required=False)
@click.option("--baseline", metavar="RUN", help="Instead of STUDY: any MLflow run.")
@click.option("--candidate", metavar="RUN", help="The run that is compared with it.")
@click.option(
    "--metric",
    "metrics",
    multiple=True,
    metavar="OURS=THEIRS",
    help="What a metric is called in a run of other code, e.g. step_time_ms=train/step_ms.",
)
@click.option("--changed-variable", metavar="K", help="The setting in which the runs may differ.")
@click.option("--goal", metavar="METRIC", help="What the change is for, as of measure; of runs.")
@click.option(
    "--allow-environment-difference",
    is_flag=False,
    flag_value="true",
    metavar="",
    help="Compare runs of another torch, driver or device, too.",
)
@store_options
def compare(
    study: str | None,
    baseline: str | None,
    candidate: str | None,
    metrics: tuple[str, ...],
    changed_variable: str | None,
    goal: str | None,
    allow_environment_difference: str | None,
    tracking_uri: str | None,
    experiment: str | None,
    output: str,
) -> None:
    """Decide again about STUDY from what MLflow holds, or about one run against another.

    STUDY is a run id, a unique prefix of one, or a study's name (the newest of
    that name). Two runs may be of other code: nothing is written to them, and what
    could not be checked is told.

    \b
    Examples:
      trainperf compare "bf16 or not"
      trainperf compare --baseline 1a2b3c4d --candidate 5e6f7a8b --goal step_time
    """
    from trainperf_mlflow import api
    from trainperf_mlflow.cli.flags import flag, pairs
    from trainperf_mlflow.errors import PlanError

    of_runs = (*metrics, changed_variable, goal, allow_environment_difference)
    if study and not (baseline or candidate or any(of_runs)):
        found = api.compare(study, tracking_uri=tracking_uri, experiment=experiment)
    elif baseline and candidate and not study:
        found = api.compare_runs(
            baseline,
            candidate,
            metrics=pairs("metric", metrics),
            changed_variable=changed_variable or None,
            goal=goal or None,
            allow_environment_difference=flag(
                "allow-environment-difference", allow_environment_difference or "false"
            ),
            tracking_uri=tracking_uri,
            experiment=experiment,
        )
    else:
        raise PlanError(
            "give a STUDY, or two runs with --baseline RUN and --candidate RUN; --metric, "
            "--changed-variable, --goal and --allow-environment-difference go with two runs"
        )
    print_comparison(found, output)
