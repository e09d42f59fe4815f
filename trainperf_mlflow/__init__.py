"""Is the changed training really better, what does it cost, do we keep it?

>>> import trainperf_mlflow as tp
>>> plan = tp.Plan(workload="quick", candidates=["bf16", "checkpoint"], repeats=3)

``tp.measure(plan)`` measures it into MLflow and returns the comparison;
``tp.compare``, ``tp.decisions``, ``tp.runs`` and ``tp.load_comparison`` read
what MLflow holds. Everything is imported when it is first used.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainperf_mlflow.analysis.roofline_source import estimate_roofline
    from trainperf_mlflow.api import (
        calibrate,
        close,
        compare,
        compare_runs,
        decisions,
        doctor,
        estimate,
        export,
        import_reports,
        lineage,
        load_comparison,
        load_handoff,
        measure,
        measure_ladder,
        phase,
        profile,
        recover,
        regress,
        report,
        runs,
        show,
        ui,
    )
    from trainperf_mlflow.decisions.memory import (
        summarize_memory_strategies,
        validate_memory_budget,
    )
    from trainperf_mlflow.decisions.memory_budget import decide_memory_budget
    from trainperf_mlflow.decisions.memory_strategy import decide_memory_strategy
    from trainperf_mlflow.decisions.optimization import (
        format_optimization_report,
        recommend_optimization_decision,
        summarize_optimization_result,
    )
    from trainperf_mlflow.decisions.regression import (
        build_regression_evidence,
        decide_regression_adoption,
        validate_regression_contract,
    )
    from trainperf_mlflow.decisions.training import (
        recommend_training_decision,
        summarize_training_result,
    )
    from trainperf_mlflow.errors import (
        EvidenceError,
        Interrupted,
        MeasurementError,
        PlanError,
        StoreError,
        TrainperfError,
    )
    from trainperf_mlflow.evidence.handoff import Handoff
    from trainperf_mlflow.measurement.benchmark import benchmark_fn
    from trainperf_mlflow.measurement.train_step import measure_train_step
    from trainperf_mlflow.plan import Candidate, Plan
    from trainperf_mlflow.results.comparison import Comparison
    from trainperf_mlflow.results.decision import Decision
    from trainperf_mlflow.workloads.task import Task

_HOMES = {
    "Candidate": "plan",
    "Comparison": "results.comparison",
    "Decision": "results.decision",
    "EvidenceError": "errors",
    "Handoff": "evidence.handoff",
    "Interrupted": "errors",
    "MeasurementError": "errors",
    "Plan": "plan",
    "PlanError": "errors",
    "StoreError": "errors",
    "Task": "workloads.task",
    "TrainperfError": "errors",
    "benchmark_fn": "measurement.benchmark",
    "build_regression_evidence": "decisions.regression",
    "calibrate": "api",
    "close": "api",
    "compare": "api",
    "compare_runs": "api",
    "decide_memory_budget": "decisions.memory_budget",
    "decide_memory_strategy": "decisions.memory_strategy",
    "decide_regression_adoption": "decisions.regression",
    "decisions": "api",
    "doctor": "api",
    "estimate": "api",
    "export": "api",
    "import_reports": "api",
    "estimate_roofline": "analysis.roofline_source",
    "format_optimization_report": "decisions.optimization",
    "lineage": "api",
    "load_comparison": "api",
    "load_handoff": "api",
    "measure": "api",
    "measure_ladder": "api",
    "measure_train_step": "measurement.train_step",
    "phase": "api",
    "profile": "api",
    "recommend_optimization_decision": "decisions.optimization",
    "recommend_training_decision": "decisions.training",
    "recover": "api",
    "regress": "api",
    "report": "api",
    "runs": "api",
    "show": "api",
    "summarize_memory_strategies": "decisions.memory",
    "summarize_optimization_result": "decisions.optimization",
    "summarize_training_result": "decisions.training",
    "ui": "api",
    "validate_memory_budget": "decisions.memory",
    "validate_regression_contract": "decisions.regression",
}

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{home}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])


class _Package(ModuleType):
    """Keeps ``tp.decisions`` the function: importing the room of that name would bind the room."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in _HOMES and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package


__all__ = [
    "Candidate",
    "Comparison",
    "Decision",
    "EvidenceError",
    "Handoff",
    "Interrupted",
    "MeasurementError",
    "Plan",
    "PlanError",
    "StoreError",
    "Task",
    "TrainperfError",
    "benchmark_fn",
    "build_regression_evidence",
    "calibrate",
    "close",
    "compare",
    "compare_runs",
    "decide_memory_budget",
    "decide_memory_strategy",
    "decide_regression_adoption",
    "decisions",
    "doctor",
    "estimate",
    "estimate_roofline",
    "export",
    "format_optimization_report",
    "import_reports",
    "lineage",
    "load_comparison",
    "load_handoff",
    "measure",
    "measure_ladder",
    "measure_train_step",
    "phase",
    "profile",
    "recommend_optimization_decision",
    "recommend_training_decision",
    "recover",
    "regress",
    "report",
    "runs",
    "show",
    "summarize_memory_strategies",
    "summarize_optimization_result",
    "summarize_training_result",
    "ui",
    "validate_memory_budget",
    "validate_regression_contract",
]
