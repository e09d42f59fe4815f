"""Measure the baseline against itself: what this machine makes of identical code."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

from trainperf_mlflow.api.measuring import measured
from trainperf_mlflow.api.planning import as_plan
from trainperf_mlflow.plan import Plan
from trainperf_mlflow.results.comparison import Comparison
from trainperf_mlflow.results.study import Variant

# The spread between processes is what is asked for, and three pairs of them say little about it.
DEFAULT_REPEATS = 8
TWIN = "baseline again"


def calibrate(
    plan: Plan | Mapping[str, Any] | str | Path,
    *,
    tracking_uri: str | None = None,
    experiment: str | None = None,
    progress: TextIO | None = None,
) -> Comparison:
    """Measure a plan's baseline against itself under the schedule of a study.

    What is found is in ``calibration`` of the comparison and in MLflow, as a run of kind
    ``calibration``: later studies on this machine take their margin from it. Candidates of the
    plan are left out.

    Args:
        plan: as for ``measure``; without ``repeats`` it is measured 8 times.

    Raises:
        PlanError, MeasurementError, StoreError, Interrupted: as ``measure`` does.
    """
    plan = as_plan(plan)
    update: dict[str, Any] = {"candidates": (), "probe": False, "ladder": None}
    if "repeats" not in plan.model_fields_set:
        update["repeats"] = DEFAULT_REPEATS
    plan = plan.model_copy(update=update)
    return measured(
        plan,
        _against_itself(plan),
        kind="calibration",
        tracking_uri=tracking_uri,
        experiment=experiment,
        progress=progress,
    )


def _against_itself(plan: Plan) -> tuple[Variant, Variant]:
    """The baseline, and as a candidate the same: no plan of a user can say that."""
    (baseline,) = plan.variants()
    return baseline, baseline.model_copy(update={"name": TWIN, "role": "candidate"})
