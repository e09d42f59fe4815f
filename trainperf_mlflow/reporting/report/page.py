"""The report as one HTML file: no script, and nothing that is loaded from anywhere."""

from __future__ import annotations

import base64
from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined, Template

from trainperf_mlflow.reporting.report.parts import Content
from trainperf_mlflow.reporting.report.texts import Words


def html_page(content: Content) -> str:
    """The whole page, its pictures inside; works from disk, in an iframe and on paper."""
    return _template().render(content=content, t=Words(content.lang))


@cache
def _template() -> Template:
    # Everything is escaped: names come from users and files.
    environment = Environment(
        loader=PackageLoader("trainperf_mlflow.reporting.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["data_uri"] = _data_uri
    environment.filters["kind"] = lambda part: type(part).__name__
    return environment.get_template("report.html")


def _data_uri(png: bytes) -> str:
    return f"data:image/png;base64,{base64.b64encode(png).decode()}"
