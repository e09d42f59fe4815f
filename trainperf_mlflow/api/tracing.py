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

    found = [trace(file) for file in (before, after)]
    names = _told_apart(Path(before).absolute(), Path(after).absolute())
    named = [one.model_copy(update={"file": name}) for one, name in zip(found, names, strict=True)]
    return traces_comparing.compare_traces(*named)


def _told_apart(one: Path, other: Path) -> tuple[str, str]:
    """The files' names, with as many of their folders as make them differ.

    >>> _told_apart(Path("/a/old/t.json"), Path("/a/new/t.json"))
    ('old/t.json', 'new/t.json')
    """
    parts = 1
    while one != other and one.parts[-parts:] == other.parts[-parts:]:
        parts += 1
    return "/".join(one.parts[-parts:]), "/".join(other.parts[-parts:])
