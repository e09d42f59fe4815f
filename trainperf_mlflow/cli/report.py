"""``trainperf report``."""

from __future__ import annotations

from typing import Any

import click

from trainperf_mlflow.cli.options import Command, place_options, tell


@click.command(cls=Command)
@click.argument("study")
@click.option(
    "--format",
    "wanted",
    type=click.Choice(["html", "markdown"]),
    default="html",
    help="html: one file that needs nothing else; markdown: for a pull request.",
)
@click.option("--lang", type=click.Choice(["en", "zh"]), default="en", help="English or Chinese.")
@click.option(
    "--output",
    metavar="FILE",
    help="Write it there; - is stdout.  [default: html report-STUDY.html, markdown stdout]",
)
@place_options
def report(study: str, wanted: Any, lang: Any, output: str | None, **place: str | None) -> None:
    """Write the report of STUDY: one file to read, to print and to hand on.

    The verdict comes first, then what it rests on and what was not checked. It
    says what was decided last and decides nothing anew.
    """
    import re

    from trainperf_mlflow import api

    text = api.report(study, wanted, lang=lang, **place)
    if not output and wanted == "html":
        output = f"report-{re.sub(r'[^A-Za-z0-9._-]+', '_', study)[:60]}.html"
    if output in (None, "", "-"):
        tell(text, nl=False)
    else:
        api.write_report(str(output), text)
        tell(f"{output} is written")
