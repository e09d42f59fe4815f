"""A plan from whatever names one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainperf_mlflow.plan import Plan, make_plan
from trainperf_mlflow.shortforms import read_plan


def as_plan(plan: Plan | Mapping[str, Any] | str | Path) -> Plan:
    """A plan from whatever names one: itself, a mapping, or the path of a YAML file."""
    if isinstance(plan, Plan):
        return plan
    if isinstance(plan, Mapping):
        return make_plan(plan)
    return make_plan(read_plan(Path(plan)), where=f"plan {str(plan)!r}")
