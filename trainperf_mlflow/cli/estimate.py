"""``trainperf estimate``: memory and FLOPs without the accelerator."""

from __future__ import annotations

from typing import Any

import click

from trainperf_mlflow.cli.options import Command, format_option, plan_options


@click.command(cls=Command)
@plan_options
@click.option("--device-memory", metavar="MIB", help="Say which variants fit into it.")
@click.option(
    "--capability", metavar="MAJOR.MINOR", help="Of the CUDA device, e.g. 9.0 for an H100."
)
@click.option(
    "--device-name", metavar="NAME", help="Bound the step's time by this accelerator's roofline."
)
@format_option
def estimate(
    output: str,
    plan: str | None,
    device_memory: str | None,
    capability: str | None,
    device_name: str | None,
    **flags: Any,
) -> None:
    """Predict peak memory per phase and FLOPs, without the accelerator.

    Takes the options of measure; those that say how often and where to measure
    change nothing. No weight is allocated or downloaded. --device auto is CUDA.

    \b
    Examples:
      trainperf estimate --workload pressure --candidate checkpoint --candidate fused
      trainperf estimate --workload pressure_1024 --candidate bf16 --device-memory 12227
    """
    import gc

    from trainperf_mlflow import api
    from trainperf_mlflow.cli.flags import memory_mb, plan_from_flags
    from trainperf_mlflow.reporting.estimate import estimate_text

    made = plan_from_flags(plan, flags, baseline_alone=True)
    memory = memory_mb("device-memory", device_memory)
    found = api.estimate(
        made, device_memory_mb=memory, capability=capability, device_name=device_name
    )
    click.echo(found.to_json(indent=None) if output == "json" else estimate_text(found))
    # The process ends; to collect what its imports have made would take as long as a variant.
    gc.freeze()
