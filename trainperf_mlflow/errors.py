"""Errors that a user can act on, each with the exit code of the command line.

Every message says what is wrong, with the value, and what to do about it.
"""

from __future__ import annotations

# The documented exit codes (README, "Exit codes").
EXIT_FAULT = 1  # a fault of the toolkit itself
EXIT_USAGE = 2  # wrong usage, an invalid plan, a file that is refused
EXIT_NOTHING_MEASURED = 3  # nothing could be measured or recorded
EXIT_EVIDENCE = 4  # the evidence does not match


class TrainperfError(Exception):
    """Base of all errors that are told to the user without a traceback."""

    exit_code = EXIT_FAULT


class PlanError(TrainperfError):
    """What was asked for is invalid: a plan, a setting, a file, a name."""

    exit_code = EXIT_USAGE


class MeasurementError(TrainperfError):
    """Nothing could be measured: preflight, model source, every baseline repeat failed."""

    exit_code = EXIT_NOTHING_MEASURED


class UnsupportedError(MeasurementError):
    """This task or device cannot do what was asked of it; others of the study may."""


class StoreError(TrainperfError):
    """The MLflow store cannot be reached or refuses to be used."""

    exit_code = EXIT_NOTHING_MEASURED


class EvidenceError(TrainperfError):
    """Evidence does not match what it claims to be (hash, identity, closed study)."""

    exit_code = EXIT_EVIDENCE


class Interrupted(TrainperfError):
    """SIGINT or SIGTERM ended the command; what was measured is kept.

    >>> Interrupted(15).exit_code
    143
    """

    def __init__(self, signum: int, message: str | None = None) -> None:
        super().__init__(message or f"interrupted by signal {signum}")
        self.signum = signum
        self.exit_code = 128 + signum
