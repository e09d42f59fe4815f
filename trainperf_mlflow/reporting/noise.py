"""How quiet the machine was, and which calibration a verdict stands on, in lines."""

from __future__ import annotations

from datetime import UTC, datetime

from trainperf_mlflow.analysis.calibration import margin_pct
from trainperf_mlflow.results.comparison import Comparison
from trainperf_mlflow.results.study import Calibration


def noise_lines(comparison: Comparison) -> list[str]:
    """One line on the machine during the study, and one on its calibration, as far as known."""
    noise, calibration = comparison.noise, comparison.calibration
    lines = [] if noise is None else [f"machine {noise.level}: {noise.text}"]
    return lines if calibration is None else [*lines, calibration_line(calibration)]


def calibration_line(calibration: Calibration) -> str:
    when = datetime.fromtimestamp(calibration.calibrated_at, UTC)
    of = "this workload" if calibration.same_workload else f"{calibration.workload} (another one)"
    return (
        f"calibrated with {of} at {when:%Y-%m-%d %H:%M} UTC (run {calibration.run_id[:8]}): "
        f"identical code differs by up to {calibration.noise_floor_pct:.2g} %, identical processes "
        f"by {calibration.between_process_pct:.2g} %; less than {margin_pct(calibration):.2g} % is "
        f"the same, and a study of the default size finds "
        f"{calibration.smallest_detectable_pct:.2g} %"
    )
