"""What ``trainperf doctor`` found."""

from __future__ import annotations

from typing import Literal

from trainperf_mlflow.results.record import Record


class Check(Record):
    """One line of ``trainperf doctor``: what was looked at, what was found, what to do."""

    check: str
    status: Literal["ok", "warn", "fail"]
    detail: str
    remedy: str = ""
