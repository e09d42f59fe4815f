"""``trainperf ui``."""

from __future__ import annotations

import os
import sys

import click

from trainperf_mlflow.cli.options import Command, store_options, tell


@click.command(cls=Command)
@click.argument("study", required=False)
@click.option(
    "--port", type=click.IntRange(1, 65535), metavar="N", help="[default: 5000, or the next free]"
)
@click.option(
    "--open/--no-open",
    "opens",
    default=None,
    help="Open the page in a browser.  [default: on a desktop's terminal]",
)
@store_options
def ui(
    study: str | None,
    port: int | None,
    opens: bool | None,
    tracking_uri: str | None,
    experiment: str | None,
    output: str,
) -> None:
    """Show STUDY, or all studies, in MLflow.

    Starts MLflow on the store, waits until it answers, prints the page's
    address and serves it until Ctrl-C. Where MLFLOW_TRACKING_URI is a server
    already, it only prints the address. Only this machine can open the page.
    """
    import json

    from trainperf_mlflow import api
    from trainperf_mlflow.signals import interruptible

    with (
        interruptible(),
        api.ui(study, port=port, tracking_uri=tracking_uri, experiment=experiment) as page,
    ):
        if output == "json":
            found = {"schema_version": "trainperf-ui/v1", "url": page.url, "links": page.links}
            tell(json.dumps(found))
        else:
            tell(page.url)
            for name, link in page.links.items():
                tell(f"  {name}: {link}")
        if _on_a_desktop() if opens is None else opens:
            click.launch(page.url)
        if page.process is not None:
            tell("MLflow serves this page until Ctrl-C", err=True)
            page.process.wait()
            tell("MLflow has ended", err=True)


def _on_a_desktop() -> bool:
    screen = sys.platform in ("darwin", "win32") or any(
        os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY")
    )
    return screen and sys.stdout.isatty() and not os.environ.get("SSH_CONNECTION")
