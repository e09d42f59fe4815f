"""What this machine and store can and cannot do."""

from __future__ import annotations

from trainperf_mlflow.errors import MeasurementError
from trainperf_mlflow.measurement.launcher import Launcher, WorkerError
from trainperf_mlflow.measurement.preflight import machine_checks, noise_check
from trainperf_mlflow.results.check import Check

# Importing torch on a busy machine with a cold disk.
PREFLIGHT_TIMEOUT_S = 600.0


def doctor(*, tracking_uri: str | None = None, experiment: str | None = None) -> tuple[Check, ...]:
    """What this machine and store can and cannot do, and what to do about it."""
    with Launcher() as launcher:
        from trainperf_mlflow.tracking.health import check_store

        stored = check_store(tracking_uri, experiment)
        try:
            with launcher.worker() as worker:
                answers = worker.ask("preflight", timeout=PREFLIGHT_TIMEOUT_S)
            torch_checks = tuple(Check.model_validate(answer) for answer in answers)
        except (MeasurementError, WorkerError) as error:
            torch_checks = (
                Check(
                    check="torch",
                    status="fail",
                    detail=str(error),
                    remedy="install the pinned packages: scripts/quickstart does",
                ),
            )
    return (*machine_checks(), noise_check(), *torch_checks, *stored)
