"""Any run of the store as one side of a comparison, whoever logged it."""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from mlflow.entities import Run
from mlflow.exceptions import MlflowException
from pydantic import Field, JsonValue

from trainperf_mlflow.errors import PlanError
from trainperf_mlflow.messages import nearest, shown
from trainperf_mlflow.results.record import Record, Role, Status
from trainperf_mlflow.results.study import Study
from trainperf_mlflow.results.values import RepeatValues, VariantValues
from trainperf_mlflow.tracking import names, queries
from trainperf_mlflow.tracking.importing import load_file
from trainperf_mlflow.tracking.search import search_runs
from trainperf_mlflow.tracking.store import Store, refusals
from trainperf_mlflow.tracking.uris import masked

# What one value of a metric that was logged step by step is.
_OF_SERIES: dict[str, tuple[str, Callable[[Sequence[float]], float]]] = {
    "step_time_ms": ("mean", statistics.fmean),
    "samples_per_s": ("mean", statistics.fmean),
    "tokens_per_s": ("mean", statistics.fmean),
    "peak_mem_mb": ("largest", max),
    "peak_reserved_mb": ("largest", max),
    "host_peak_rss_mb": ("largest", max),
    "loss": ("last", lambda values: values[-1]),
    "eval_loss": ("last", lambda values: values[-1]),
}
METRICS = tuple(_OF_SERIES)
_ID_CHARS = 8


class Side(Record):
    """One run: its values, and what it states of workload and machine.

    ``changed`` are the settings in which it declares to differ from its own baseline.
    """

    run_id: str
    values: VariantValues
    config: dict[str, JsonValue]
    environment: dict[str, JsonValue]
    # Of a study's workload; empty for a run of other code.
    identity: dict[str, JsonValue] = Field(default_factory=dict)
    changed: tuple[str, ...] = ()
    device: str | None = None
    policy: str | None = None
    notes: tuple[str, ...] = ()  # what to know of its values


def load_sides(
    store: Store, baseline: str, candidate: str, metrics: Mapping[str, str]
) -> tuple[Side, Side]:
    """Baseline and candidate, read.

    Args:
        baseline: a run id, a unique prefix of one, or a run's name (the newest of it). A
            study stands for its baseline, or as a candidate for its best one.
        metrics: our name of a metric -> the name in runs that other code logged.

    Raises:
        PlanError: there is no such run, or it has none of the metrics.
        StoreError: the store cannot be read.
    """
    with refusals(store.tracking_uri):
        runs = [find_run(store, ref) for ref in (baseline, candidate)]
        _check_mapped(runs, metrics)
        before = _side(store, runs[0], "baseline", metrics)
        after = _side(store, runs[1], "candidate", metrics)
    studies = {run.data.tags.get(names.STUDY_ID) for run in runs}
    # Only the rounds of one study were measured next to each other.
    return (before, after) if len(studies) == 1 else (_unpaired(before), _unpaired(after))


def _side(store: Store, run: Run, role: Role, metrics: Mapping[str, str]) -> Side:
    study_id = run.data.tags.get(names.STUDY_ID)
    if study_id is None:
        return _foreign(store, run, role, metrics)
    return _of_study(store, run, study_id, role)


def find_run(store: Store, ref: str) -> Run:
    """Any run, by its id, a unique prefix of one, or its name: the newest of it.

    Raises:
        PlanError: there is none, several, or it is deleted.
    """
    run = _by_id(store, ref) if re.fullmatch(r"[0-9a-f]{32}", ref) else None
    search = partial(search_runs, store)
    run = run or queries.by_prefix(ref, search, "runs")
    named = [run] if run else queries.by_name(ref, search)
    if not named:
        raise PlanError(
            f"no run {shown(ref)} in {masked(store.tracking_uri)!r}; give a run id, "
            f"{queries.MIN_PREFIX} or more characters of one, or a run's name"
        )
    if named[0].info.lifecycle_stage != "active":
        raise PlanError(
            f"run {ref} is deleted; restore it with 'mlflow runs restore --run-id {ref}'"
        )
    return named[0]


def _by_id(store: Store, run_id: str) -> Run | None:
    try:
        return store.client.get_run(run_id)
    except MlflowException as error:
        if error.error_code == "RESOURCE_DOES_NOT_EXIST":
            return None
        raise


# --- a run of the toolkit ----------------------------------------------------------------------


def _of_study(store: Store, run: Run, study_id: str, role: Role) -> Side:
    study = queries.load_study(store, study_id)
    variants = {v.name: v for v in queries.load_variants(store, study_id, study)}
    values = variants[_variant_of(run, study, role)]
    planned = next(variant for variant in study.variants if variant.name == values.name)
    repeat = next((r for r in values.repeats if r.run_id == run.info.run_id), None)
    if repeat is not None:
        values = values.model_copy(
            update={
                "repeats": (repeat,),
                "metrics": repeat.metrics,
                "status": repeat.status,
                "error": repeat.error,
                "quality_checked": repeat.quality_checked,
            }
        )
    identity = {k: v for k, v in study.workload.identity.items() if k not in ("settings", "device")}
    return Side(
        run_id=str(run.info.run_id),
        values=_named(values, run, role),
        config={
            **planned.config,
            "seed": study.plan.get("seed"),
            "device": study.workload.device,
            "peak_mem_source": values.peak_mem_source,
        },
        environment=_environment(store, values),
        identity=identity,
        changed=tuple(planned.changed),
        device=study.workload.device,
        policy=study.policy,
    )


def _variant_of(run: Run, study: Study, role: Role) -> str:
    name = run.data.tags.get(names.VARIANT)
    if name is not None:
        return str(name)
    if role == "candidate":
        best = run.data.tags.get(names.BEST_CANDIDATE)
        candidates = [v.name for v in study.variants if v.role == "candidate"]
        chosen = best or (candidates[0] if len(candidates) == 1 else None)
        if chosen is None:
            raise PlanError(
                f"study {study.name!r} has no best candidate yet, and it has {len(candidates)}; "
                "give the run of one of its variants ('trainperf runs' lists them)"
            )
        return str(chosen)
    return next((v.name for v in study.variants if v.role == "baseline"), study.variants[0].name)


def _environment(store: Store, values: VariantValues) -> dict[str, JsonValue]:
    first = next((r for r in values.repeats if r.status is Status.OK and r.run_id), None)
    data = load_file(store, str(first.run_id), names.ENVIRONMENT_FILE) if first else None
    found = json.loads(data) if data else {}
    if not isinstance(found, dict):
        return {}
    packages = found.pop("packages", None)
    return {**found, **(packages if isinstance(packages, dict) else {})}


# --- any other run -----------------------------------------------------------------------------


def _foreign(store: Store, run: Run, role: Role, mapped: Mapping[str, str]) -> Side:
    held = run.data.metrics
    found: dict[str, float] = {}
    notes: list[str] = []
    for name, (word, of) in _OF_SERIES.items():
        key = mapped.get(name, name)
        if key not in held:
            continue
        series = [m.value for m in store.client.get_metric_history(run.info.run_id, key)]
        found[name] = of(series) if series else held[key]
        if len(series) > 1:
            notes.append(f"{name} is the {word} of {len(series)} logged values of {key!r}")
        else:
            notes.append(f"{name} is one logged value, so its spread is not known")
    if not found:
        raise PlanError(
            f"run {run.info.run_id} ({run.info.run_name!r}) has none of the metrics "
            f"{', '.join(METRICS)}; it has {', '.join(sorted(held)[:20]) or 'none'}; "
            "say which is which with --metric, e.g. --metric step_time_ms=train/step_ms"
        )
    status, error = _status(run)
    if run.info.status == "RUNNING":
        notes.append("the run is not ended")
    params: dict[str, JsonValue] = dict(run.data.params)
    values = VariantValues(
        name="",
        role=role,
        status=status,
        error=error,
        run_id=str(run.info.run_id),
        config=params,
        peak_mem_source=run.data.params.get(names.PEAK_MEM_SOURCE),
        metrics=found,
        repeats=(
            RepeatValues(
                index=0, status=status, error=error, run_id=str(run.info.run_id), metrics=found
            ),
        ),
    )
    return Side(
        run_id=str(run.info.run_id),
        values=_named(values, run, role),
        config=params,
        environment={**params, **_plain_tags(run)},
        device=run.data.params.get("device"),
        notes=tuple(notes),
    )


def _status(run: Run) -> tuple[Status, str | None]:
    if run.info.status in ("FAILED", "KILLED"):
        return Status.FAILED, f"the run ended as {run.info.status}"
    return Status.OK, None


def _plain_tags(run: Run) -> dict[str, JsonValue]:
    return {key: value for key, value in run.data.tags.items() if "." not in key}


def _check_mapped(runs: Sequence[Run], metrics: Mapping[str, str]) -> None:
    """See that a mapping speaks of what is there.

    Raises:
        PlanError: an unknown name of ours, or neither run has the metric.
    """
    for ours, theirs in metrics.items():
        if ours not in METRICS:
            raise PlanError(
                f"unknown metric {shown(ours)}{nearest(ours, METRICS)}; known: {', '.join(METRICS)}"
            )
        held = {name for run in runs for name in run.data.metrics}
        if theirs not in held:
            raise PlanError(
                f"neither run has a metric {shown(theirs)}{nearest(theirs, held)}; "
                f"they have {', '.join(sorted(held)[:20]) or 'none'}"
            )


def _named(values: VariantValues, run: Run, role: Role) -> VariantValues:
    """Under a name that tells the two apart."""
    title = f"{run.info.run_name or 'run'} {str(run.info.run_id)[:_ID_CHARS]}"
    if run.data.tags.get(names.KIND) == "study":
        title += f" ({values.name})"
    return values.model_copy(update={"name": title, "role": role})


def _unpaired(side: Side) -> Side:
    """Without blocks: no round of one belongs to a round of the other."""
    bare: list[Any] = [repeat.model_copy(update={"blocks": ()}) for repeat in side.values.repeats]
    values = side.values.model_copy(update={"repeats": tuple(bare)})
    return side.model_copy(update={"values": values})
