"""Our values as MLflow takes them."""

from __future__ import annotations

from collections.abc import Mapping

from mlflow.entities import Param, RunTag

from trainperf_mlflow.results.record import Setting
from trainperf_mlflow.tracking import names


def params_of(values: Mapping[str, Setting]) -> list[Param]:
    """Cut to what MLflow takes, on PostgreSQL too."""
    return [
        Param(names.cut(key, names.MAX_NAME), names.param_text(value))
        for key, value in values.items()
    ]


def run_tags(values: Mapping[str, str | None]) -> list[RunTag]:
    """Without those that have no value."""
    return [RunTag(key, value) for key, value in names.tags(values).items()]


def milliseconds(seconds: float) -> int:
    return int(seconds * 1000)


def error_text(text: str | None) -> str | None:
    return None if text is None else names.cut(text, names.MAX_ERROR)
