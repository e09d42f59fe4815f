"""``trainperf calibrate``."""

from __future__ import annotations

import sys
from typing import Any

import click

from trainperf_mlflow.cli.options import (
    Command,
    baseline_options,
    print_comparison,
    store_options,
)


@click.command(cls=Command)
@baseline_options
@store_options
def calibrate(
    tracking_uri: str | None, experiment: str | None, output: str, plan: str | None, **flags: Any
) -> None:
    """Measure the baseline against itself: the noise floor of this machine.

    Later studies on this machine take their margin from it and cite it. The candidates,
    the goal and the thresholds of a plan play no part.

    \b
    Examples:
      trainperf calibrate --workload quick
      trainperf calibrate --task mymodule:make_task --set batch_size=64
    """
    from trainperf_mlflow import api
    from trainperf_mlflow.cli.flags import plan_from_flags

    made = plan_from_flags(plan, flags, baseline_alone=True)
    comparison = api.calibrate(
        made, tracking_uri=tracking_uri, experiment=experiment, progress=sys.stderr
    )
    print_comparison(comparison, output)
