"""Predict peak memory and FLOPs of a plan's variants, without the accelerator."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from trainperf_mlflow.analysis.devices import known_peaks
from trainperf_mlflow.analysis.estimate import Estimate, VariantEstimate, roofline_ms
from trainperf_mlflow.api.planning import as_plan
from trainperf_mlflow.attribution import Peaks
from trainperf_mlflow.plan import Plan
from trainperf_mlflow.results.study import Variant


def estimate(
    plan: Plan | Mapping[str, Any] | str | Path,
    *,
    device_memory_mb: float | None = None,
    capability: str | None = None,
    device_name: str | None = None,
) -> Estimate:
    """Predict peak memory per phase and FLOPs per step, without allocating a weight.

    Args:
        plan: a ``Plan``, a mapping with its keys, or the path of a YAML file. Its device is
            the one that the prediction is for; ``auto`` is CUDA.
        device_memory_mb: MiB that a variant must fit into, if that is asked.
        device_name: an accelerator as torch calls it, such as "NVIDIA A100-SXM4-80GB", whose
            roofline then bounds the step's time.
        capability: of the CUDA device, such as "9.0"; it decides the size of workspaces.

    Raises:
        PlanError: the plan is invalid, or names a device, a model or a task that is not known.

    >>> import trainperf_mlflow as tp
    >>> found = tp.estimate({"candidates": ["checkpoint"]})
    >>> baseline, checkpoint = found.variants
    >>> checkpoint.phases["forward"].peak_mem_mb < baseline.phases["forward"].peak_mem_mb
    True
    """
    plan = as_plan(plan)
    peaks = None if device_name is None else known_peaks(device_name)
    with _no_collector():
        from trainperf_mlflow.measurement.estimate.predict import estimate_variant
        from trainperf_mlflow.measurement.estimate.target import parse_capability, target_for

        target = target_for(plan.device, parse_capability(capability) if capability else None)
        return Estimate(
            workload=plan.workload_name,
            device=target.kind,
            device_memory_mb=device_memory_mb,
            peaks=peaks,
            roofline_evidence=None if peaks is None else "theoretical",
            variants=tuple(
                _under_roofline(
                    estimate_variant(
                        plan.task, variant, target, device_memory_mb, traffic=peaks is not None
                    ),
                    peaks,
                    variant,
                )
                for variant in plan.variants()
            ),
        )


def _under_roofline(
    found: VariantEstimate, peaks: Peaks | None, variant: Variant
) -> VariantEstimate:
    if peaks is None or found.status != "ok":
        return found
    bound = roofline_ms(found.phases, peaks, variant.config)
    return found.model_copy(update={"roofline_ms": bound})


@contextmanager
def _no_collector() -> Iterator[None]:
    # Measured steps run without it too; and a fifth of the imports' time is its.
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
