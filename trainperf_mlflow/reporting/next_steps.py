"""What to do next: the code that programs read, and what it means."""

from __future__ import annotations

from trainperf_mlflow.reporting.report.texts import Words


def next_line(action: str, *, rollback: bool = False) -> str:
    """The step as a code with its words; an unknown code (imported) stands alone.

    >>> next_line("keep_change")
    'next: keep_change (keep the change)'
    >>> next_line("restore_baseline", rollback=True)
    'next: restore_baseline (go back to the baseline), roll the change back'
    """
    words = Words("en").of("next", action)
    told = f"next: {action}" + (f" ({words})" if words != action else "")
    return f"{told}, roll the change back" if rollback else told
