"""The command line: parse, call the API, print. No logic, and nothing heavy imported at start."""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path
from typing import Any

import click

from trainperf_mlflow.cli.calibrate import calibrate
from trainperf_mlflow.cli.close import close
from trainperf_mlflow.cli.compare import compare
from trainperf_mlflow.cli.estimate import estimate
from trainperf_mlflow.cli.exporting import export
from trainperf_mlflow.cli.importing import import_reports
from trainperf_mlflow.cli.options import (
    Group,
    one_line,
    plan_options,
    print_comparison,
    print_scope,
    store_options,
    tell,
)
from trainperf_mlflow.cli.phase import phase
from trainperf_mlflow.cli.profile import profile
from trainperf_mlflow.cli.regress import regress
from trainperf_mlflow.cli.report import report
from trainperf_mlflow.cli.show import runs, show
from trainperf_mlflow.cli.trace import trace
from trainperf_mlflow.cli.ui import ui
from trainperf_mlflow.errors import EXIT_NOTHING_MEASURED, PlanError


@click.group(cls=Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="trainperf-mlflow", prog_name="trainperf")
def cli() -> None:
    """I changed how we train: is it really better, what does it cost, do we keep it?

    Measures a baseline and its candidates in fresh processes and alternating
    order, keeps every run in MLflow, and decides accept, tune or reject with
    the reason.

    \b
    Exit codes: 0 done (whatever the decision), 1 a fault of the toolkit,
    2 wrong usage or an invalid plan, 3 nothing could be measured or recorded,
    4 the evidence does not match, 129, 130 and 143 after a signal.
    """


@cli.command()
@plan_options
@click.option(
    "--ladder",
    metavar="seq_len=N,N,...",
    help="One study a length, with zero-momentum SGD: does checkpointing save activations?",
)
@click.option(
    "--convergence-steps",
    metavar="N",
    help="Then train each variant N steps with three seeds or more, and compare the eval losses.",
)
@click.option("--device-memory", metavar="MIB", help="Of a ladder: stop before it is exceeded.")
@click.option("--default-candidates", hidden=True, help="Where neither plan nor flags name any.")
@store_options
def measure(
    tracking_uri: str | None,
    experiment: str | None,
    output: str,
    plan: str | None,
    default_candidates: str | None,
    device_memory: str | None,
    **flags: Any,
) -> None:
    """Measure a baseline and its candidates into MLflow, and decide.

    \b
    Examples:
      trainperf measure --workload quick --candidate bf16 --candidate checkpoint
      trainperf measure --candidate checkpoint --goal peak_mem --threshold max_cost=40
      trainperf measure --task mymodule:make_task --candidate "big:batch_size=64"
    """
    from trainperf_mlflow import api
    from trainperf_mlflow.cli.flags import memory_mb, plan_from_flags

    if flags["ladder"]:
        default_candidates = default_candidates and "checkpoint"
    made = plan_from_flags(plan, flags, default_candidates)
    memory = memory_mb("device-memory", device_memory)
    if made.ladder is not None:
        scope = api.measure_ladder(
            made,
            device_memory_mb=memory,
            tracking_uri=tracking_uri,
            experiment=experiment,
            progress=sys.stderr,
        )
        print_scope(scope, output)
        return
    if memory is not None:
        raise PlanError("--device-memory says where a ladder stops; give --ladder, or leave it out")
    comparison = api.measure(
        made, tracking_uri=tracking_uri, experiment=experiment, progress=sys.stderr
    )
    print_comparison(comparison, output)
    links = api.study_links(comparison.study_id, tracking_uri=tracking_uri)
    tell(where_to_look(links), err=output == "json")


@cli.command()
@click.option("--decision", metavar="accept|tune|reject|measure", help="Only these.")
@click.option("--experiment", metavar="NAME", help="Only this experiment's.  [default: all]")
@click.option("--tracking-uri", metavar="URI")
@click.option("--format", "output", type=click.Choice(["table", "json", "csv"]), default="table")
def decisions(
    decision: str | None, experiment: str | None, tracking_uri: str | None, output: str
) -> None:
    """List the studies and what was decided."""
    from trainperf_mlflow import api
    from trainperf_mlflow.reporting.listing import format_rows

    frame = api.decisions(experiment, decision or None, tracking_uri=tracking_uri)
    tell(format_rows(frame, output))


@cli.command()
@click.argument("study", required=False)
@click.option("--tracking-uri", metavar="URI", help="[default: where the study was recorded]")
@click.option("--format", "output", type=click.Choice(["text", "json"]), default="text")
def recover(study: str | None, tracking_uri: str | None, output: str) -> None:
    """Send to MLflow what a killed command or a lost server left on disk.

    STUDY is one whose results wait on disk: its id, a unique prefix of it, or
    its name; without it, all of them. Of the whole id of any other study what
    still runs is ended. Running it twice sends nothing twice.
    """
    import json

    from trainperf_mlflow import api

    recovered = api.recover(
        study,
        tracking_uri=tracking_uri,
        warn=lambda message: click.echo(one_line(message), err=True),
    )
    if output == "json":
        tell(json.dumps({"schema_version": "trainperf-recover/v1", "studies": recovered}))
        return
    if not recovered:
        tell("nothing waits on disk")
    for item in recovered:
        tell(
            f"{item['study_id']}: {item['sent']} result(s) sent"
            + (f", and those of {', '.join(item['explained'])}" if item["explained"] else "")
            + (f", decision: {item['decision']}" if item["decision"] else "")
        )


@cli.command()
@store_options
def doctor(tracking_uri: str | None, experiment: str | None, output: str) -> None:
    """Say what this machine and store can and cannot do, and what to do about it.

    Exits with 3 when a check fails, since a study would.
    """
    import json

    from trainperf_mlflow import api
    from trainperf_mlflow.errors import EXIT_NOTHING_MEASURED
    from trainperf_mlflow.reporting.listing import format_checks

    checks = api.doctor(tracking_uri=tracking_uri, experiment=experiment)
    if output == "json":
        rows = [check.model_dump() for check in checks]
        tell(json.dumps({"schema_version": "trainperf-doctor/v1", "checks": rows}))
    else:
        tell(format_checks(checks))
    if any(check.status == "fail" for check in checks):
        sys.exit(EXIT_NOTHING_MEASURED)


cli.add_command(calibrate)
cli.add_command(compare)
cli.add_command(close)
cli.add_command(estimate)
cli.add_command(export)
cli.add_command(import_reports)
cli.add_command(phase)
cli.add_command(profile)
cli.add_command(report)
cli.add_command(regress)
cli.add_command(runs)
cli.add_command(show)
cli.add_command(trace)
cli.add_command(ui)


def where_to_look(links: dict[str, str]) -> str:
    """How to open the study in MLflow's UI.

    >>> print(where_to_look({"command": "mlflow ui", "study": "http://localhost/x"}))
    See it in MLflow: mlflow ui
    then open http://localhost/x
    """
    lines = [f"See it in MLflow: {links['command']}"] if "command" in links else []
    if "study" in links:
        lines.append(f"{'then open' if lines else 'See it in MLflow:'} {links['study']}")
    return "\n".join(lines)


def main() -> None:
    """The console script. A fault of the toolkit itself ends with 1 and asks for a report."""
    # MLflow's imports make a million objects that all live on: to look for garbage among
    # them, now and once more when the interpreter ends, takes a second and frees nothing.
    gc.set_threshold(50_000)
    # A closed standard stream's number would go to the next file, and workers would write into it.
    for stream in range(3):
        try:
            os.fstat(stream)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    try:
        Path.cwd()
    except FileNotFoundError:
        click.echo("trainperf: the current folder was deleted; change to another", err=True)
        sys.exit(EXIT_NOTHING_MEASURED)
    try:
        cli()
    finally:
        gc.freeze()
