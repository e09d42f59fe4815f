"""Studies that a close can accept: with traces, phases, a budget and a regression, all made up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from recorded_studies import BEGAN, a_repeat, a_study

from trainperf_mlflow.analysis.explanation import PHASES_FILE, PROFILE_FILE
from trainperf_mlflow.decisions.policies import POLICIES
from trainperf_mlflow.decisions.study import decide_study
from trainperf_mlflow.results.record import Status
from trainperf_mlflow.results.repeats import Block, Convergence, Repeat
from trainperf_mlflow.results.study import Study, Variant, Workload
from trainperf_mlflow.tracking import names
from trainperf_mlflow.tracking.explaining import PHASE_MEMORY_FILE, TRACE_EVIDENCE_FILE
from trainperf_mlflow.tracking.recorder import Recorder
from trainperf_mlflow.tracking.store import Store, local_folder
from trainperf_mlflow.tracking.waiting import Kept, parcel

BASE = {
    "model": "tiny",
    "precision": "fp32",
    "batch_size": 2,
    "seq_len": 128,
    "optimizer": "adamw",
    "checkpoint": False,
}
# Peak memory in MiB: what each variant of the study takes.
PEAKS = {"baseline": 10000.0, "checkpoint": 9000.0}
EVAL_LOSSES = {"baseline": 2.40, "checkpoint": 2.40}


def closable_study(
    name: str = "memory", base: dict[str, Any] | None = None, **fields: Any
) -> Study:
    config = {**BASE, **(base or {})}
    policy = fields.pop("policy", "memory-budget")
    limits = {"memory_cap_mb": 11000.0, "min_samples_per_s": 1.0, "max_val_loss": 2.5}
    thresholds = dict(POLICIES[policy].thresholds)
    if policy == "memory-budget":
        thresholds |= limits
    return a_study(
        name,
        **{
            "plan": {"study": name, "repeats": 3, "seed": 42},
            "policy": policy,
            "thresholds": thresholds,
            "variants": (
                Variant(name="baseline", role="baseline", config=config),
                Variant(
                    name="checkpoint",
                    role="candidate",
                    config={**config, "checkpoint": True},
                    changed={"checkpoint": True},
                    changed_variable="checkpoint",
                ),
            ),
            "workload": Workload(
                digest="cd" * 32,
                identity={"model": "tiny", "seq_len": config["seq_len"]},
                device="cpu",
                name="quick",
                source="standard library",
            ),
            **fields,
        },
    )


def a_block(repeat: int, index: int, step_ms: float) -> Block:
    return Block(
        index=index,
        started_at=BEGAN + 100 * repeat + index,
        wall_ms=2 * step_ms,
        step_ms=(step_ms, step_ms),
        losses=(2.4, 2.3),
    )


def measured_repeat(study_id: str, variant: str, index: int, **fields: Any) -> Repeat:
    step_ms = fields.pop("step_ms", 50.0 if variant == "checkpoint" else 45.0) + index
    return a_repeat(
        study_id,
        variant,
        index,
        **{
            "blocks": tuple(a_block(index, block, step_ms + block / 10) for block in range(6)),
            "peak_mem_mb": PEAKS.get(variant, PEAKS["checkpoint"]),
            "eval_loss": EVAL_LOSSES.get(variant, EVAL_LOSSES["checkpoint"]),
            "quality_checked": True,
            "effects": (),
            **fields,
        },
    )


def record_closable(
    store: Store,
    name: str = "memory",
    *,
    repeats: int = 1,
    explained: bool = True,
    change: dict[str, dict[str, Any]] | None = None,
    trained: Mapping[str, Sequence[float | None]] | None = None,
    **fields: Any,
) -> Recorder:
    """A study under a budget.

    Args:
        change: fields of the repeats by variant.
        trained: by variant, the eval losses of its longer training; None: it diverged.
    """
    if trained:
        fields["plan"] = {"study": name, "repeats": 3, "seed": 42, "convergence_steps": 200}
    recorder = Recorder.start(store, closable_study(name, **fields))
    for index in range(repeats):
        for variant in (planned.name for planned in recorder.study.variants):
            own = (change or {}).get(variant, {})
            recorder.record_repeat(measured_repeat(recorder.study_id, variant, index, **own))
    for variant, losses in (trained or {}).items():
        for index, loss in enumerate(losses):
            recorder.keep_convergence(variant, trained_run(index, loss))
    comparison = decide_study(recorder.study, recorder.values())
    assert recorder.finish_study(comparison, "note")
    if explained:
        explain(store, recorder)
    return recorder


def trained_run(index: int, loss: float | None) -> Convergence:
    return Convergence(
        index=index,
        seed=42 + index,
        status=Status.DIVERGED if loss is None else Status.OK,
        error="the loss became nan in step 7" if loss is None else None,
        steps=200,
        eval_loss=loss,
        quality_checked=True,
    )


def explain(store: Store, recorder: Recorder, oom: str | None = None) -> None:
    """Traces and phases of each variant, as the commands profile and phase leave them; one may
    have run out of memory."""
    parcels = []
    kept = Kept(recorder.study_id, "phase")
    trace = Path("trace.json.gz")
    (kept.path / trace).write_bytes(b"\x1f\x8b made up")
    for variant, run_id in recorder.variant_runs.items():
        head = {"variant": variant, "status": "ok"}
        if variant == oom:
            head["status"] = "oom"
            parcels += [parcel(run_id, {PROFILE_FILE: head}), parcel(run_id, {PHASES_FILE: head})]
            continue
        profile = {**head, "trace_file": "profile/trace.json.gz", "top_operators": [{"name": "mm"}]}
        parcels += [
            parcel(run_id, {PROFILE_FILE: profile}, trace=trace),
            parcel(run_id, {PHASES_FILE: head}),
        ]
    reports = {PHASE_MEMORY_FILE: {"phases": 1}, TRACE_EVIDENCE_FILE: {"traces": 1}}
    kept.put(store, [*parcels, parcel(recorder.study_id, reports)])
    kept.send(store)
    kept.remove()


def add_regression(store: Store, primary: str, decision: str = "accept") -> str:
    """A run as 'trainperf regress' leaves it, as far as a close reads it."""
    tags = {
        names.KIND: "regression",
        names.PRIMARY_STUDY: primary,
        names.DECISION: decision,
        names.REASON: "benefit_and_guardrails_passed",
    }
    run = store.client.create_run(store.experiment_id, tags=tags, run_name="regression")
    run_id = str(run.info.run_id)
    store.client.set_tag(run_id, names.STUDY_ID, run_id)
    store.client.log_text(run_id, '{"regression": 1}', "regression.json")
    store.client.set_terminated(run_id)
    return run_id


def artifact_of(store: Store, run_id: str, path: str) -> Path:
    folder = local_folder(store.client.get_run(run_id).info.artifact_uri)
    assert folder is not None
    return folder / path
