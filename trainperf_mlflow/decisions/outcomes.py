"""How a variant's repeats ended, and what to do about it."""

from __future__ import annotations

from collections import Counter

from trainperf_mlflow.results.record import Status
from trainperf_mlflow.results.values import VariantValues


def has_ok_repeat(variant: VariantValues) -> bool:
    """Whether there is anything to compare; a variant without repeats stands for itself."""
    if not variant.repeats:
        return variant.status is Status.OK
    return any(repeat.status is Status.OK for repeat in variant.repeats)


def ok_repeats(variant: VariantValues) -> int:
    return len(variant.repeats) - failed_repeats(variant)


def failed_repeats(variant: VariantValues) -> int:
    return sum(repeat.status is not Status.OK for repeat in variant.repeats)


def first_error(variant: VariantValues) -> str | None:
    errors = (variant.error, *(repeat.error for repeat in variant.repeats))
    return next((error for error in errors if error), None)


def outcome(variant: VariantValues) -> str:
    """In words: how many repeats ended how, and the first error."""
    counts = Counter(repeat.status.value for repeat in variant.repeats)
    statuses = ", ".join(f"{count} {status}" for status, count in counts.items())
    error = first_error(variant)
    return (statuses or variant.status.value) + (f": {error}" if error else "")


def remedy(status: Status) -> str:
    return {
        Status.OOM: "choose a smaller batch_size, seq_len or model",
        Status.UNSUPPORTED: "choose settings that this device supports",
        Status.TIMEOUT: "raise max_time or choose a smaller workload",
        Status.DIVERGED: "lower the learning_rate",
    }.get(status, "mend the error and measure again (trainperf doctor checks this machine)")
