"""What a trace of torch.profiler says, or what changed between two."""

from __future__ import annotations

from pathlib import Path

from trainperf_mlflow.analysis.traces_results import TraceAnalysis, TraceComparison


def trace(file: str | Path) -> TraceAnalysis:
    """Where the time of a traced training went.

    Args:
        file: what torch.profiler has written, .json or .json.gz.

    Raises:
        PlanError: the file is no trace, or cannot be read in full.
    """
    from trainperf_mlflow.analysis.traces import analyse

    return analyse(file)


def compare_traces(before: str | Path, after: str | Path) -> TraceComparison:
    """What changed from one trace to another, per step.

    Raises:
        PlanError: either file is no trace, or cannot be read in full.
    """
    from trainperf_mlflow.analysis import traces_comparing

    return traces_comparing.compare_traces(trace(before), trace(after))
