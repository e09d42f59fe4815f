"""The use cases, one file each: the only place where the rooms meet.

Imported on first use, since each brings what only it needs.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainperf_mlflow.api.calibrating import calibrate
    from trainperf_mlflow.api.closing import close, load_handoff
    from trainperf_mlflow.api.comparing import compare_runs
    from trainperf_mlflow.api.estimating import estimate
    from trainperf_mlflow.api.examining import doctor
    from trainperf_mlflow.api.exporting import export, export_text, write_report
    from trainperf_mlflow.api.importing import import_reports
    from trainperf_mlflow.api.laddering import measure_ladder
    from trainperf_mlflow.api.linking import lineage
    from trainperf_mlflow.api.measuring import measure
    from trainperf_mlflow.api.phasing import phase
    from trainperf_mlflow.api.profiling import profile
    from trainperf_mlflow.api.reading import compare, decisions, load_comparison, runs, study_links
    from trainperf_mlflow.api.recovering import recover
    from trainperf_mlflow.api.regressing import regress
    from trainperf_mlflow.api.reporting import report
    from trainperf_mlflow.api.serving import ui
    from trainperf_mlflow.api.showing import show
    from trainperf_mlflow.api.tracing import compare_traces, trace

__all__ = [
    "calibrate",
    "close",
    "compare",
    "compare_runs",
    "compare_traces",
    "decisions",
    "doctor",
    "estimate",
    "export",
    "export_text",
    "import_reports",
    "lineage",
    "load_comparison",
    "load_handoff",
    "measure",
    "measure_ladder",
    "phase",
    "profile",
    "recover",
    "regress",
    "report",
    "runs",
    "show",
    "study_links",
    "trace",
    "ui",
    "write_report",
]

_HOMES = {
    "calibrate": "calibrating",
    "close": "closing",
    "load_handoff": "closing",
    "compare_runs": "comparing",
    "estimate": "estimating",
    "doctor": "examining",
    "export": "exporting",
    "export_text": "exporting",
    "write_report": "exporting",
    "import_reports": "importing",
    "measure_ladder": "laddering",
    "lineage": "linking",
    "measure": "measuring",
    "phase": "phasing",
    "profile": "profiling",
    "compare": "reading",
    "decisions": "reading",
    "load_comparison": "reading",
    "runs": "reading",
    "study_links": "reading",
    "recover": "recovering",
    "regress": "regressing",
    "report": "reporting",
    "ui": "serving",
    "show": "showing",
    "compare_traces": "tracing",
    "trace": "tracing",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{home}"), name)
