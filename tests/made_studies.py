"""Studies with given numbers, for the tests of comparison, decisions and reporting."""

from __future__ import annotations

from typing import Any

from trainperf_mlflow.analysis.compare import compare
from trainperf_mlflow.decisions.case import Case
from trainperf_mlflow.decisions.policies import GOALS, POLICIES
from trainperf_mlflow.results.study import Study, Workload
from trainperf_mlflow.results.values import RepeatValues, VariantValues


def variant(
    name: str = "tuned",
    *,
    time: float | None = 50.0,
    memory: float | None = 1000.0,
    loss: float | None = 2.0,
    eval_loss: float | None = 2.0,
    samples: float = 2.0,
    statuses: tuple[str, ...] = ("ok", "ok", "ok"),
    **more: Any,
) -> VariantValues:
    metrics = {
        "step_time_ms": time,
        "samples_per_s": None if time is None else samples / time * 1000,
        "peak_mem_mb": memory,
        "loss": loss,
        "eval_loss": eval_loss,
        **more.pop("metrics", {}),
    }
    metrics = {key: value for key, value in metrics.items() if value is not None}
    ok = "ok" in statuses
    worst = next((status for status in statuses if status != "ok"), "ok")
    fields: dict[str, Any] = {
        "role": "baseline" if name == "baseline" else "candidate",
        "status": worst,
        "peak_mem_source": "tensor_tracker",
        "quality_checked": True,
        "changed_variable": None if name == "baseline" else "precision",
        "effect_verified": None if name == "baseline" else True,
        "metrics": metrics if ok else {},
        "repeats": tuple(
            RepeatValues(index=index, status=status, metrics=metrics if status == "ok" else {})
            for index, status in enumerate(statuses)
        ),
    }
    return VariantValues(name=name, **{**fields, **more})


def study(goal: str | None = None, **fields: Any) -> Study:
    return Study(
        **{
            "study_id": "0123456789abcdef0123456789abcdef",
            "name": "a study",
            "plan": {},
            "policy": "goal" if goal else "training",
            "goal": goal,
            "variants": (),
            "workload": Workload(
                digest="d" * 64, identity={}, device="cpu", name="quick", source="stdlib"
            ),
            "command": "trainperf measure",
            "created_at": 0.0,
            "toolkit_version": "0.1.0",
            **fields,
        }
    )


def case(
    baseline: VariantValues,
    candidate: VariantValues,
    *,
    goal: str | None = None,
    **thresholds: float,
) -> Case:
    policy = POLICIES["goal" if goal else "training"]
    return Case(
        baseline=baseline,
        candidate=candidate,
        difference=compare(baseline, candidate),
        thresholds={**policy.thresholds, **thresholds},
        goal=GOALS[goal] if goal else None,
    )
