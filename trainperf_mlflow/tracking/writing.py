"""What was measured and decided, as MLflow keeps it: tags, params, metrics and files.

Every function here may be called again with the same arguments and leaves the same
state, so that what an outage cut short can be sent again.
"""

from __future__ import annotations

import json
import math
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

from mlflow import MlflowClient
from mlflow.entities import Metric

from trainperf_mlflow.analysis.estimate import Prediction
from trainperf_mlflow.analysis.metrics import (
    effect_verdict,
    is_compiled,
    not_finite,
    repeat_metrics,
)
from trainperf_mlflow.results.comparison import CandidateComparison, Comparison
from trainperf_mlflow.results.decision import Decision
from trainperf_mlflow.results.record import Setting, Status
from trainperf_mlflow.results.repeats import Repeat
from trainperf_mlflow.results.study import Study, Variant
from trainperf_mlflow.results.values import VariantValues
from trainperf_mlflow.tracking import colours, names
from trainperf_mlflow.tracking.creating import create_child, variant_tags
from trainperf_mlflow.tracking.entities import error_text, milliseconds, params_of, run_tags
from trainperf_mlflow.tracking.store import Store, refusals

RunStatus = Literal["FINISHED", "FAILED", "KILLED"]
MAX_POINTS = 1000  # what a chart can show


def send_repeat(
    store: Store,
    study: Study,
    variant: Variant,
    variant_run_id: str,
    repeat: Repeat,
    existing: str | None = None,
) -> str:
    """A child run of the variant, written in four calls and ended.

    Args:
        existing: the run that an earlier, interrupted attempt has left.
    """
    client = store.client
    files = {
        names.RESULT_FILE: repeat.to_json(indent=None),
        names.ENVIRONMENT_FILE: json.dumps(repeat.environment, indent=2, ensure_ascii=False),
    }
    run_id = existing or create_child(
        store,
        study,
        parent=variant_run_id,
        title=f"{variant.name} #{repeat.index + 1}",
        started_at=repeat.started_at,
        tags={
            **variant_tags(study, variant),
            **_repeat_tags(repeat),
            **names.digest_tags(files),
        },
    )
    ended_ms = milliseconds(repeat.ended_at)
    metrics = [
        Metric(key, value, ended_ms, 0)
        for key, value in repeat_metrics(repeat, compiled=is_compiled(variant)).items()
    ]
    params: dict[str, Setting] = {"seed": repeat.seed, "warmup_steps": repeat.warmup_steps}
    if repeat.peak_mem_source is not None:
        params[names.PEAK_MEM_SOURCE] = repeat.peak_mem_source
    client.log_batch(
        run_id,
        metrics=[*metrics, *_series(repeat)],
        params=params_of(params),
        synchronous=True,
    )
    with tempfile.TemporaryDirectory(prefix="trainperf-") as folder:
        for name, text in files.items():
            (Path(folder) / name).write_bytes(text.encode())
        client.log_artifacts(run_id, folder)
    ok = repeat.status is Status.OK
    client.set_terminated(run_id, "FINISHED" if ok else "FAILED", end_time=ended_ms)
    return run_id


def _repeat_tags(repeat: Repeat) -> dict[str, str | None]:
    verified, detail = effect_verdict(repeat.effects)
    strange = not_finite(repeat)
    return {
        names.KIND: "repeat",
        names.REPEAT: str(repeat.index),
        names.STATUS: repeat.status.value,
        names.ERROR: error_text(repeat.error),
        names.EFFECT_VERIFIED: None if verified is None else str(verified).lower(),
        names.EFFECT_DETAIL: detail or None,
        names.DATA_DIGEST: repeat.data_digest,
        names.QUALITY_CHECKED: str(repeat.quality_checked).lower(),
        names.NOT_FINITE: ", ".join(f"{key}={value}" for key, value in strange.items()) or None,
    }


def _series(repeat: Repeat) -> Iterator[Metric]:
    """One point per measured step, counted from 1 over all blocks of the repeat; of very many
    steps evenly chosen ones (``result.json`` has them all)."""
    number = 0
    every = max(1, math.ceil(sum(len(block.step_ms) for block in repeat.blocks) / MAX_POINTS))
    for block in repeat.blocks:
        at_ms = block.started_at * 1000.0
        for step, loss in zip(block.step_ms, block.losses, strict=False):
            number += 1
            at_ms += step
            if (number - 1) % every:
                continue
            if math.isfinite(step):
                yield Metric(names.STEP_TIME_SERIES, step, int(at_ms), number)
            if loss is not None and math.isfinite(loss):
                yield Metric(names.LOSS_SERIES, loss, int(at_ms), number)


def send_variant(store: Store, run_id: str, values: VariantValues, status: RunStatus) -> None:
    """The means over a variant's repeats, its status, whether its change took effect; ended."""
    now = milliseconds(time.time())
    ok = sum(repeat.status is Status.OK for repeat in values.repeats)
    verified = values.effect_verified
    tags = {
        names.STATUS: values.status.value,
        names.OK_REPEATS: f"{ok}/{len(values.repeats)}",
        names.ERROR: error_text(values.error),
        names.EFFECT_VERIFIED: None if verified is None else str(verified).lower(),
        names.EFFECT_DETAIL: values.effect_detail,
    }
    source = values.peak_mem_source
    store.client.log_batch(
        run_id,
        metrics=[Metric(key, value, now, 0) for key, value in values.metrics.items()],
        params=params_of({names.PEAK_MEM_SOURCE: source} if source else {}),
        tags=run_tags(tags),
        synchronous=True,
    )
    store.client.set_terminated(run_id, status)


def send_prediction(store: Store, run_id: str, prediction: Prediction) -> None:
    """What was predicted of a variant's memory, and by how much that is wrong; or why not."""
    now = milliseconds(time.time())
    values = {
        names.PREDICTED_PEAK: prediction.peak_mem_mb,
        names.PREDICTION_ERROR: prediction.error_pct,
    }
    tags = {names.PREDICTION: prediction.reason or prediction.peak_phase}
    store.client.log_batch(
        run_id,
        metrics=[Metric(key, value, now, 0) for key, value in values.items() if value is not None],
        tags=run_tags(tags),
        synchronous=True,
    )


def send_comparison(
    store: Store, comparison: Comparison, note: str, variant_runs: Mapping[str, str]
) -> None:
    """The comparison, its decision and its note, on the study and on each candidate."""
    client, study_id = store.client, comparison.study_id
    text = comparison.to_json()
    client.log_text(study_id, text, names.COMPARISON_FILE)
    for candidate in comparison.candidates:
        run_id = variant_runs.get(candidate.variant) or candidate.run_id
        if run_id:
            tags = {**decision_tags(candidate.decision), **_direction_tags(candidate)}
            _log(client, run_id, tags, _comparison_metrics(candidate))
    best = next((c for c in comparison.candidates if c.variant == comparison.best_candidate), None)
    tags = {
        **decision_tags(comparison.decision),
        **_direction_tags(best),
        **names.digest_tags({names.COMPARISON_FILE: text}),
        names.BEST_CANDIDATE: comparison.best_candidate,
        names.RUN_COLOUR: colours.of_decision(comparison.decision.decision),
        names.NOTE: note,
    }
    metrics = _comparison_metrics(best) if best else {}
    _log(client, study_id, tags, metrics | _calibration_metrics(comparison))


def send_notes(store: Store, notes: Mapping[str, str]) -> None:
    """Run id -> the Markdown that its page begins with.

    Raises:
        StoreError: the store refuses.
    """
    with refusals(store.tracking_uri):
        for run_id, note in notes.items():
            store.client.set_tag(run_id, names.NOTE, names.cut(note, names.MAX_TAG))


def end_run(store: Store, run_id: str, status: RunStatus, error: str | None = None) -> None:
    """End a run; one that did not end in order says why in its tags."""
    store.client.set_terminated(run_id, status)
    if status != "FINISHED":
        tags = names.tags({names.STATUS: status.lower(), names.ERROR: error_text(error)})
        store.client.log_batch(run_id, tags=run_tags(tags), synchronous=True)


def decision_tags(decision: Decision) -> dict[str, str | None]:
    return {
        names.DECISION: decision.decision,
        names.REASON: decision.reason,
        names.NEXT_ACTION: decision.next_action,
        names.ROLLBACK: str(decision.rollback).lower(),
        names.CONFIDENCE: decision.confidence,
        names.POLICY: decision.policy,
    }


def _direction_tags(candidate: CandidateComparison | None) -> dict[str, str | None]:
    time = candidate.time if candidate else None
    return {names.DIRECTION: time.direction if time else None}


def _comparison_metrics(candidate: CandidateComparison) -> dict[str, float]:
    # For people: comparison.json has all digits, and is what is read again.
    metrics = {
        names.delta_metric(key): float(f"{value:.6g}") for key, value in candidate.delta.items()
    }
    if "break_even_steps" in candidate.metrics:
        metrics["break_even_steps"] = candidate.metrics["break_even_steps"]
    return metrics


def _calibration_metrics(comparison: Comparison) -> dict[str, float]:
    """What a calibration found; nothing for a study that cites one."""
    found = comparison.calibration
    if found is None or found.run_id != comparison.study_id:
        return {}
    return {
        names.NOISE_FLOOR: found.noise_floor_pct,
        names.BETWEEN_PROCESS: found.between_process_pct,
        names.SMALLEST_DETECTABLE: found.smallest_detectable_pct,
    }


def _log(
    client: MlflowClient, run_id: str, tags: dict[str, str | None], metrics: dict[str, float]
) -> None:
    now = milliseconds(time.time())
    strange = {key: value for key, value in metrics.items() if not math.isfinite(value)}
    if strange:
        tags[names.NOT_FINITE] = ", ".join(f"{key}={value}" for key, value in strange.items())
    client.log_batch(
        run_id,
        metrics=[Metric(k, v, now, 0) for k, v in metrics.items() if k not in strange],
        tags=run_tags(tags),
        synchronous=True,
    )
