"""What phases and traces say about a study, in the source's formats and in ours.

Pure functions on the attempts' records. Nothing here may decide: every report
says ``timing_for_adoption: false``.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from trainperf_mlflow.analysis.metrics import variant_status
from trainperf_mlflow.attribution import PHASES, Attempt, Safety, TraceMeasurement
from trainperf_mlflow.results.record import Status
from trainperf_mlflow.results.study import Study, Variant

PHASES_SCHEMA = "trainperf-phases/v1"
PHASE_MEMORY_SCHEMA = "training-phase-memory/v1"
PROFILE_SCHEMA = "trainperf-profile/v1"
TRACE_EVIDENCE_SCHEMA = "profiling-trace-evidence/v1"
SEMANTIC_ID = "PERF-PROFILING-CLOSURE"
# Artifacts of a variant's run.
PHASES_FILE = "phases/phases.json"
PROFILE_FILE = "profile/summary.json"
TRACE_FILE = "profile/trace.json.gz"
_DTYPES = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}
_OPTIMIZERS = {"adamw": "AdamW", "adam": "Adam", "sgd": "SGD", "adafactor": "Adafactor"}
# Of ``roofline_summary``; more than the source's format has.
_ROOFLINE_FIELDS = ("flops_per_step", "mfu", "peaks", "roofline", "roofline_evidence", "counters")

Json = dict[str, Any]


# --- phases ------------------------------------------------------------------------------------


def phase_summary(study_id: str, variant: Variant, attempts: Sequence[Attempt]) -> Json:
    """A variant's phases: means over its ok repeats; ms, MiB, FLOPs.

    ``phase_ms`` adds up to ``step_ms``; ``global_peak_phase`` is the phase with the
    highest peak, the earlier one where two are equal.
    """
    measured = [attempt.phases for attempt in attempts if attempt.phases is not None]
    peak = _mean_maps([m.peak_mem_mb for m in measured])
    recomputed = [m.recomputed_modules for m in measured if m.recomputed_modules is not None]
    summary: Json = {
        "schema_version": PHASES_SCHEMA,
        "study_id": study_id,
        "variant": variant.name,
        "timing_for_adoption": False,
        **_ending(attempts),
        "repeats": len(measured),
        "steps_per_repeat": len(measured[0].step_ms) if measured else 0,
        "device_memory_mb": _device_memory_mb(attempts),
        "step_ms": _mean([statistics.fmean(m.step_ms) for m in measured]),
        "phase_ms": _mean_maps(
            [{p: statistics.fmean(ms) for p, ms in m.phase_ms.items()} for m in measured]
        ),
        "loss": _mean([m.loss for m in measured if m.loss is not None]),
        "samples_per_step": next((a.samples_per_step for a in attempts if a.phases), None),
        "peak_mem_mb": peak,
        "peak_mem_source": next((m.peak_mem_source for m in measured), None),
        "peak_reserved_mb": _mean_maps([m.peak_reserved_mb for m in measured]),
        "memory_mb": {
            phase: _mean_maps([m.memory_mb[phase] for m in measured if phase in m.memory_mb])
            for phase in PHASES
            if any(phase in m.memory_mb for m in measured)
        },
        "global_peak_phase": max(peak, key=lambda phase: peak[phase]) if peak else None,
        "matmul_flops": _mean_maps([m.matmul_flops for m in measured]),
        "recomputed_modules": max(recomputed) if recomputed else None,
        # One step's course is enough: the repeats differ in time, not in what they hold.
        "memory_over_step": [
            sample.model_dump(mode="json")
            for sample in (measured[0].memory_over_step if measured else ())
        ],
        "notes": list(dict.fromkeys(note for m in measured for note in m.notes)),
        "runs": [
            attempt.model_dump(
                mode="json",
                exclude={"environment": True, "trace": True, "phases": {"memory_over_step"}},
            )
            for attempt in attempts
        ],
    }
    return summary


def phase_metrics(summary: Mapping[str, Any]) -> dict[str, float]:
    """The MLflow metrics of a variant's phases.

    >>> phase_metrics({"phase_ms": {"data": 1.0}, "peak_mem_mb": {"data": 2.0}})
    {'phase/data_ms': 1.0, 'phase/data_peak_mem_mb': 2.0}
    """
    return {
        **{f"phase/{phase}_ms": ms for phase, ms in summary["phase_ms"].items()},
        **{f"phase/{phase}_peak_mem_mb": mb for phase, mb in summary["peak_mem_mb"].items()},
    }


def phase_memory_report(
    study: Study,
    attempts: Sequence[Attempt],
    summaries: Sequence[Json],
    safety: Safety,
    *,
    warmup: int,
    iters: int,
    repeats: int,
) -> Json:
    """The study's phases in the format ``training-phase-memory/v1``.

    Savings are baseline - candidate by phase; the flat ``allocated_memory_saving_mb`` is
    that of ``compared_candidate`` (checkpoint, as in the source, else the first that ran).
    """
    candidates = [_phase_candidate(summary) for summary in summaries]
    config = {
        **_config(study, attempts, warmup, iters),
        "repeats": repeats,
        "process_memory_fraction": safety.process_memory_fraction,
        "minimum_free_margin_mb": safety.minimum_free_margin_mb,
    }
    return {
        "schema_version": PHASE_MEMORY_SCHEMA,
        **_heading(study, "phase_memory_attribution"),
        "evidence_level": "repeated_phase_memory_measurement",
        "config": config,
        "sources": {**_sources(study), "profile_trace": "profile/trace_evidence.json"},
        "measurement": {
            "role": "phase_memory_attribution_only",
            "timing_for_adoption": False,
            "synchronize_at_phase_boundaries": True,
        },
        "safety": safety.model_dump(exclude={"process_memory_fraction"}),
        "candidates": candidates,
        "summary": _phase_totals(study, summaries),
        "experiment": {**config, "backend": "torch", "workload": study.workload.name},
        "standard_metrics": {item["name"]: _standard(item) for item in candidates},
    }


def memory_saving_mb(baseline: Mapping[str, Any], candidate: Mapping[str, Any]) -> Json:
    """What a candidate saves of each phase's peak, in MiB; negative where it costs."""
    before, after = baseline["peak_mem_mb"], candidate["peak_mem_mb"]
    if baseline["peak_mem_source"] != candidate["peak_mem_source"]:
        return {}
    return {p: round(before[p] - after[p], 3) for p in PHASES if p in before and p in after}


def _phase_totals(study: Study, summaries: Sequence[Json]) -> Json:
    by_name = {summary["variant"]: summary for summary in summaries if summary["repeats"]}
    totals: Json = {
        "candidate_count": len(summaries),
        "successful_candidates": [s["variant"] for s in summaries if s["status"] == Status.OK],
        "global_peak_phase": {
            name: s["global_peak_phase"] for name, s in by_name.items() if s["global_peak_phase"]
        },
    }
    baseline = next((v.name for v in study.variants if v.role == "baseline"), None)
    others = [name for name in by_name if name != baseline]
    if baseline in by_name and others:
        savings = {name: memory_saving_mb(by_name[baseline], by_name[name]) for name in others}
        compared = "checkpoint" if "checkpoint" in savings else others[0]
        totals["compared_candidate"] = compared
        totals["allocated_memory_saving_mb"] = {
            phase: value for phase, value in savings[compared].items() if phase in PHASES[1:4]
        }
        totals["allocated_memory_saving_mb_by_candidate"] = savings
    return totals


def _phase_candidate(summary: Json) -> Json:
    runs = []
    for run in summary["runs"]:
        item: Json = {"repeat": run["index"] + 1, "status": run["status"]}
        if run["phases"] is None:
            item["error"] = run["error"]
        else:
            found = run["phases"]
            item |= {
                "step_time_ms": statistics.fmean(found["step_ms"]),
                "loss": found["loss"],
                "phase_metrics": {
                    phase: _phase_item(
                        statistics.fmean(ms),
                        found["peak_mem_mb"].get(phase),
                        found["peak_reserved_mb"].get(phase),
                        found["memory_mb"].get(phase),
                    )
                    for phase, ms in found["phase_ms"].items()
                },
            }
        runs.append(item)
    metrics = {
        phase: _phase_item(
            ms,
            summary["peak_mem_mb"].get(phase),
            summary["peak_reserved_mb"].get(phase),
            summary["memory_mb"].get(phase),
        )
        for phase, ms in summary["phase_ms"].items()
    }
    return _without_none(
        {
            "name": summary["variant"],
            "status": summary["status"],
            "error": summary["error"],
            "step_time_ms": summary["step_ms"],
            "samples_per_s": _per_second(summary["samples_per_step"], summary["step_ms"]),
            "loss": summary["loss"],
            "peak_memory_mb": max(summary["peak_mem_mb"].values(), default=None),
            "peak_reserved_mb": max(summary["peak_reserved_mb"].values(), default=None),
            "peak_mem_source": summary["peak_mem_source"],
            "phase_metrics": metrics,
            "global_peak_phase": summary["global_peak_phase"],
            "recomputed_modules": summary["recomputed_modules"],
            **{name: summary.get(name) for name in _ROOFLINE_FIELDS},
            "runs": runs,
        }
    )


def _phase_item(
    ms: float, peak: float | None, reserved: float | None, memory: Mapping[str, float] | None
) -> Json:
    return _without_none(
        {
            "time_ms": ms,
            "peak_allocated_mb": peak,
            "peak_reserved_mb": reserved,
            "memory_mb": memory or None,
        }
    )


# --- traces ------------------------------------------------------------------------------------


def profile_summary(study_id: str, attempt: Attempt) -> Json:
    """A variant's trace in numbers: ``profile/summary.json``."""
    summary: Json = {
        "schema_version": PROFILE_SCHEMA,
        "study_id": study_id,
        "variant": attempt.variant,
        "timing_for_adoption": False,
        **_ending([attempt]),
    }
    trace = attempt.trace
    if trace is None:
        return summary
    summary |= trace.model_dump(mode="json", exclude={"operators"})
    return summary | {
        "profiler_slowdown": trace.slowdown,
        "allocator_slack_mb": allocator_slack_mb(trace),
        "samples_per_step": attempt.samples_per_step,
        "device_memory_mb": _device_memory_mb([attempt]),
        "trace_file": TRACE_FILE,
        "top_operators": [operator.model_dump() for operator in trace.operators],
    }


def allocator_slack_mb(trace: TraceMeasurement) -> float | None:
    """Reserved minus allocated peak; None where no caching allocator counts."""
    if trace.peak_reserved_mb is None or trace.peak_mem_mb is None:
        return None
    return round(trace.peak_reserved_mb - trace.peak_mem_mb, 2)


def trace_evidence_report(
    study: Study,
    attempts: Sequence[Attempt],
    variant_runs: Mapping[str, str | None],
    *,
    warmup: int,
    iters: int,
) -> Json:
    """The study's traces in the format ``profiling-trace-evidence/v1``.

    Args:
        variant_runs: the MLflow run of each variant: its trace is there, under ``TRACE_FILE``.
    """
    candidates = [_trace_candidate(attempt, variant_runs) for attempt in attempts]
    traced = [attempt for attempt in attempts if attempt.trace is not None]
    traces = [attempt.trace for attempt in traced if attempt.trace is not None]
    files = {
        attempt.variant: [_trace_path(attempt.variant, variant_runs)] if attempt.trace else []
        for attempt in attempts
    }
    config = _config(study, attempts, warmup, iters)
    return {
        "schema_version": TRACE_EVIDENCE_SCHEMA,
        **_heading(study, "real_profiler_trace"),
        "config": config,
        "sources": _sources(study),
        "trace_root": study.study_id,
        "candidates": candidates,
        "profile": {
            "tool": "torch.profiler",
            "activities": list(traces[0].activities) if traces else [],
            "status": "collected" if len(traced) == len(attempts) else "incomplete",
            "measurement_role": "bottleneck_attribution_only",
            "timing_for_adoption": False,
            "active_steps": min((trace.active_steps for trace in traces), default=0),
            "repeat": 1,
            "trace_files_by_strategy": files,
            "missing_strategies": [name for name, found in files.items() if not found],
            "profiler_slowdown": {
                attempt.variant: round(attempt.trace.slowdown, 3)
                for attempt in traced
                if attempt.trace is not None
            },
        },
        "experiment": {**config, "backend": "torch.profiler", "workload": study.workload.name},
        "standard_metrics": {item["name"]: _standard(item) for item in candidates},
    }


def _trace_candidate(attempt: Attempt, variant_runs: Mapping[str, str | None]) -> Json:
    item: Json = {"name": attempt.variant, "status": attempt.status.value, "error": attempt.error}
    trace = attempt.trace
    if trace is not None:
        item |= {
            "step_time_ms": trace.step_ms,
            "plain_step_time_ms": trace.plain_step_ms,
            "samples_per_s": _per_second(attempt.samples_per_step, trace.step_ms),
            "loss": trace.loss,
            "peak_memory_mb": trace.peak_mem_mb,
            "peak_reserved_mb": trace.peak_reserved_mb,
            "allocator_slack_mb": allocator_slack_mb(trace),
            "trace_dir": _trace_path(attempt.variant, variant_runs).rpartition("/")[0],
            "top_operators": [operator.model_dump() for operator in trace.operators],
        }
    return _without_none(item)


def _trace_path(variant: str, variant_runs: Mapping[str, str | None]) -> str:
    return f"{variant_runs.get(variant) or variant}/{TRACE_FILE}"


# --- what both formats have --------------------------------------------------------------------


def _heading(study: Study, stage: str) -> Json:
    return {
        "semantic_id": SEMANTIC_ID,
        "run_mode": "real_cpu" if study.workload.device == "cpu" else "real_gpu",
        "run_label": study.label or study.name,
        "task": "profiling_driven_optimization",
        "stage": stage,
        "study_id": study.study_id,
        "workload_digest": study.workload.digest,
    }


def _sources(study: Study) -> Json:
    return {"baseline": study.study_id, "strategy": study.study_id}


def _config(study: Study, attempts: Iterable[Attempt], warmup: int, iters: int) -> Json:
    base = next((v for v in study.variants if v.role == "baseline"), study.variants[0]).config
    environment = next((a.environment for a in attempts if a.environment), {})
    packages = environment.get("packages")
    return _without_none(
        {
            "model_id": base.get("model"),
            "batch_size": base.get("batch_size"),
            "seq_len": base.get("seq_len"),
            "dtype": _DTYPES.get(str(base.get("precision"))),
            "optimizer": _OPTIMIZERS.get(str(base.get("optimizer"))),
            "strategies": [variant.name for variant in study.variants],
            "warmup": warmup,
            "iters": iters,
            "seed": study.plan.get("seed"),
            "torch": packages.get("torch") if isinstance(packages, dict) else None,
            "torch_cuda": environment.get("torch_cuda"),
            "device": environment.get("device_name"),
        }
    )


def _standard(item: Mapping[str, Any]) -> Json:
    names = ("step_time_ms", "samples_per_s", "loss", "peak_memory_mb", "peak_reserved_mb")
    return {"status": item["status"], **{name: item[name] for name in names if name in item}}


def _ending(attempts: Iterable[Attempt]) -> Json:
    attempts = list(attempts)
    status = variant_status(attempt.status for attempt in attempts)
    error = next((a.error for a in attempts if a.status is status and a.error), None)
    return {"status": status.value, "error": error}


def _device_memory_mb(attempts: Iterable[Attempt]) -> float | None:
    """All of an accelerator's memory; None on a CPU, which shares it with everything else."""
    found = (attempt.environment.get("device_memory_mb") for attempt in attempts)
    return next((float(mb) for mb in found if isinstance(mb, int | float)), None)


def _per_second(per_step: float | None, step_ms: float | None) -> float | None:
    return per_step * 1000.0 / step_ms if per_step and step_ms else None


def _mean(values: Sequence[float]) -> float | None:
    return statistics.fmean(values) if values else None


def _mean_maps(maps: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Means by key; a key that a map lacks counts as 0 there, as a category without bytes."""
    keys = dict.fromkeys(key for found in maps for key in found)
    return {key: statistics.fmean(found.get(key, 0.0) for found in maps) for key in keys}


def _without_none(values: Json) -> Json:
    return {key: value for key, value in values.items() if value is not None}
