"""A published report as a study of ours: variants, repeats, and what was decided about them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from statistics import fmean
from typing import Any

from pydantic import JsonValue

from trainperf_mlflow.decisions.policies import POLICIES
from trainperf_mlflow.errors import PlanError
from trainperf_mlflow.evidence.models import Candidate, Config, Report, Run, validated
from trainperf_mlflow.evidence.reading import Document, Json
from trainperf_mlflow.messages import encodable, shown
from trainperf_mlflow.results.decision import Decision
from trainperf_mlflow.results.record import Record, Setting, Status
from trainperf_mlflow.results.repeats import Repeat
from trainperf_mlflow.results.study import PublishedDecision, Source, Study, Variant, Workload
from trainperf_mlflow.workloads.strategies import STRATEGIES, strategy_of

EXPORT_KEY = "trainperf"  # where our exports keep what the published formats have no field for
BASELINE = "baseline"
PRECISIONS = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}
MAX_VARIANTS = 100
MAX_REPEATS = 10_000
# Published means are rounded to 2 or 3 decimals.
_MEAN_TOLERANCE = 0.011
_NOT_IDENTITY = {"repeats", "warmup", "iters", "strategies", "mode", "amp_dtype"}


class Imported(Record):
    """A study as a report published it; ``text`` is the report itself, untouched."""

    study: Study  # without id, version and time: whoever imports it gives them
    repeats: tuple[Repeat, ...]
    text: str
    warnings: tuple[str, ...] = ()  # where the report contradicts itself
    decision: Decision | None = None  # by a rule that is no study's policy


def imported(
    document: Document,
    report: Report,
    *,
    format_name: str,
    policy: str,
    candidates: Sequence[Candidate],
    config: Config,
    published: PublishedDecision | None,
    identity: Mapping[str, JsonValue] | None = None,
    thresholds: Mapping[str, float] | None = None,
    quality_checked: bool = False,
    probe: bool = False,
    warnings: Sequence[str] = (),
) -> Imported:
    """A report's variants as a study that decides as the report did.

    Args:
        candidates: the variants, the baseline too; it is the one named so.
        identity: what was trained, where ``config`` does not say it.
        thresholds: those that the report states, over the policy's defaults.
        quality_checked: the report decided on its eval losses.

    Raises:
        PlanError: two variants have the same name, or there are too many of them.
    """
    _refuse_names(document, candidates)
    path = PurePath(encodable(document.name))
    source = Source(
        file=path.name,
        format=format_name,
        sha256=document.sha256,
        schema_version=report.schema_version,
        semantic_id=report.semantic_id,
        published=published,
    )
    study = _exported_study(document, report, candidates)
    if study is None:
        variants = tuple(_variant(item.name, config) for item in candidates)
        study = Study(
            study_id="",
            name=path.stem[:200] or format_name,
            plan=_plan(config, probe),
            policy=policy,
            thresholds={**POLICIES[policy].thresholds, **(thresholds or {})},
            variants=variants,
            workload=_workload(config, identity or {}),
            command="",
            created_at=0.0,
            toolkit_version="",
        )
    study = study.model_copy(
        update={"study_id": "", "source": source, "command": f"trainperf import {source.file}"}
    )
    environment = _environment(config)
    seed = config.seed or 0
    repeats = [
        repeat
        for item in candidates
        for repeat in _repeats(item, seed, quality_checked, environment, document)
    ]
    return Imported(
        study=study,
        repeats=tuple(repeats),
        text=document.text,
        warnings=(*_contradicted_means(candidates), *warnings),
    )


def _refuse_names(document: Document, candidates: Sequence[Candidate]) -> None:
    names = [item.name for item in candidates]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise PlanError(f"{shown(document.name)}: candidate {shown(twice[0])} is given twice")
    if not 0 < len(names) <= MAX_VARIANTS:
        raise PlanError(
            f"{shown(document.name)} has {len(names)} candidates; give 1 to {MAX_VARIANTS}"
        )


# --- the study ---------------------------------------------------------------------------------


def exported_block(study: Study) -> Json:
    """What our exports add, so that the study can be told from them: under ``EXPORT_KEY``."""
    return {"schema_version": "trainperf-export/v1", "study": json.loads(study.to_json())}


def _exported_study(
    document: Document, report: Report, candidates: Sequence[Candidate]
) -> Study | None:
    """The study that this report was exported from, where it was one of ours."""
    block = (report.model_extra or {}).get(EXPORT_KEY)
    if block is None:
        return None
    content = block.get("study") if isinstance(block, dict) else block
    study = validated(Study, content, document.name, EXPORT_KEY, "study")
    known = {variant.name for variant in study.variants}
    strange = sorted({item.name for item in candidates} - known)
    if strange:
        raise PlanError(
            f"{shown(document.name)}: candidate {shown(strange[0])} is none of "
            f"{EXPORT_KEY}.study ({', '.join(sorted(known))}); export the study again"
        )
    if study.policy not in POLICIES:
        raise PlanError(
            f"{shown(document.name)}: {EXPORT_KEY}.study.policy: {shown(study.policy)} is unknown; "
            f"known: {', '.join(POLICIES)}"
        )
    # A format without room for all of them has left some out.
    kept = tuple(v for v in study.variants if v.name in {item.name for item in candidates})
    return study.model_copy(update={"variants": kept})


def _plan(config: Config, probe: bool) -> dict[str, JsonValue]:
    known = {key: getattr(config, key) for key in ("seed", "repeats", "warmup", "iters")}
    return {
        **{k: v for k, v in known.items() if v is not None},
        **({"probe": True} if probe else {}),
    }


def _variant(name: str, config: Config) -> Variant:
    given: dict[str, Setting] = {
        "model": config.model_id,
        "batch_size": config.batch_size,
        "seq_len": config.seq_len,
        "precision": PRECISIONS.get(config.dtype or "", config.dtype),
        "optimizer": config.optimizer.lower() if config.optimizer else None,
    }
    base = {key: value for key, value in given.items() if value is not None}
    if name == BASELINE:
        return Variant(name=name, role="baseline", config=base)
    changed = dict(STRATEGIES.get(name, {}))
    return Variant(
        name=name,
        role="candidate",
        config={**base, **changed},
        changed=changed,
        changed_variable=next(iter(changed)) if len(changed) == 1 else strategy_of(changed),
    )


def _workload(config: Config, identity: Mapping[str, JsonValue]) -> Workload:
    told: dict[str, JsonValue] = {
        **{k: v for k, v in config.to_json().items() if k not in _NOT_IDENTITY and v is not None},
        **identity,
    }
    return Workload(
        digest=digest_of(told),
        identity=told,
        device=config.device or "unknown",
        name=config.workload or "published",
        source="a published report",
    )


def digest_of(value: Any) -> str:
    """The SHA-256 of an object's canonical JSON."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _environment(config: Config) -> dict[str, JsonValue]:
    known: dict[str, JsonValue] = {
        "device_name": config.device,
        "torch_cuda": config.torch_cuda,
        "packages": {"torch": config.torch} if config.torch else None,
    }
    return {key: value for key, value in known.items() if value is not None}


# --- repeats -----------------------------------------------------------------------------------


def _repeats(
    item: Candidate,
    seed: int,
    quality_checked: bool,
    environment: dict[str, JsonValue],
    document: Document,
) -> list[Repeat]:
    runs: Sequence[Run] = item.runs or [item]  # without runs its means are all there is
    if len(runs) > MAX_REPEATS:
        raise PlanError(
            f"{shown(document.name)}: {shown(item.name)} has {len(runs)} runs; "
            f"at most {MAX_REPEATS} are read"
        )
    indices = [run.repeat - 1 if run.repeat else place for place, run in enumerate(runs)]
    if len(set(indices)) < len(indices):
        raise PlanError(f"{shown(document.name)}: {shown(item.name)} has a repeat twice")
    return [
        _repeat(item.name, index, run, seed, quality_checked, environment)
        for index, run in zip(indices, runs, strict=True)
    ]


def _repeat(
    variant: str,
    index: int,
    run: Run,
    seed: int,
    quality_checked: bool,
    environment: dict[str, JsonValue],
) -> Repeat:
    status = status_of(run.status)
    metrics = run.metrics()
    peak = metrics.get("peak_mem_mb")
    checked = quality_checked if run.quality_checked is None else run.quality_checked
    error = run.error or (None if status is Status.OK else f"published as {run.status}")
    return Repeat(
        study_id="",
        variant=variant,
        index=index,
        seed=seed + index,
        status=status,
        error=error,
        started_at=0.0,
        ended_at=0.0,
        peak_mem_mb=peak,
        peak_mem_source="reported" if peak is not None else None,
        peak_reserved_mb=metrics.get("peak_reserved_mb"),
        host_peak_rss_mb=metrics.get("host_peak_rss_mb"),
        loss=metrics.get("loss"),
        eval_loss=metrics.get("eval_loss"),
        quality_checked=checked,
        reported=metrics,
        environment=environment,
    )


def status_of(word: str | None) -> Status:
    """A published status; without one it succeeded, and an unknown one is a failure.

    >>> status_of(None).value, status_of("OOM").value, status_of("crashed").value
    ('ok', 'oom', 'failed')
    """
    if word is None:
        return Status.OK
    return next((status for status in Status if status.value == word.lower()), Status.FAILED)


def _contradicted_means(candidates: Sequence[Candidate]) -> list[str]:
    """The means that a report states but its own runs do not have."""
    found = []
    for item in candidates:
        ok = [run.metrics() for run in item.runs or [] if status_of(run.status) is Status.OK]
        for key, stated in item.metrics().items():
            values = [metrics[key] for metrics in ok if key in metrics]
            if not values or len(values) < len(ok):
                continue
            mean = fmean(values)
            if abs(stated - mean) > _MEAN_TOLERANCE + 1e-4 * abs(mean):
                found.append(
                    f"{item.name}: {key} is given as {stated:g}, but its runs have a mean of "
                    f"{mean:g}, which decides here"
                )
    return found
