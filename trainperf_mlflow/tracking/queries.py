"""What MLflow holds: studies by reference, their variants and comparisons, tables of them."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar

import pandas as pd
from mlflow.entities import Run
from mlflow.exceptions import MlflowException

from trainperf_mlflow.analysis.metrics import variant_values
from trainperf_mlflow.errors import PlanError, StoreError
from trainperf_mlflow.results.comparison import Comparison
from trainperf_mlflow.results.record import Status
from trainperf_mlflow.results.study import Study, Variant
from trainperf_mlflow.results.values import BlockValues, RepeatValues, VariantValues
from trainperf_mlflow.tracking import names
from trainperf_mlflow.tracking.blocks import Key, load_blocks, with_blocks
from trainperf_mlflow.tracking.convergence import load_convergence, with_convergence
from trainperf_mlflow.tracking.search import runs_of_study, search_runs
from trainperf_mlflow.tracking.store import Store, reason, refusals
from trainperf_mlflow.tracking.uris import masked

T = TypeVar("T")
MIN_PREFIX = 6

# Runs that gather studies.
GATHERING_KINDS = ("regression", "scope")
# What bears a decision of its own; of those with one name the first kind is meant.
DECIDED_KINDS = ("study", *GATHERING_KINDS, "calibration")
DECISION_COLUMNS = (
    "study_id",
    "study",
    "kind",
    "decision",
    "reason",
    "next_action",
    "confidence",
    "policy",
    "goal",
    "best_candidate",
    "closed",
    "measured_decision",
    "workload",
)
DELTA_COLUMNS = (
    "speedup",
    "delta/step_time_ms",
    "delta/step_time_pct",
    "delta/step_time_pct_low",
    "delta/step_time_pct_high",
    "delta/samples_per_s",
    "delta/peak_mem_mb",
    "delta/peak_mem_pct",
    "delta/loss",
    "delta/eval_loss",
)


# --- one study ---------------------------------------------------------------------------------


def find_study(store: Store, ref: str) -> str:
    """The id of the study that is meant.

    Args:
        ref: a run id (of the study, or of one of its runs), a unique prefix of the
            study's of six characters or more, or a study's name: the newest of it.

    Raises:
        PlanError: there is none, or several.
    """
    if re.fullmatch(r"[0-9a-f]{32}", ref):
        found = _by_run_id(store, ref)
        if found is not None:
            return found
    with refusals(store.tracking_uri):
        named = _meant(ref, partial(_studies, store))
        for kind in DECIDED_KINDS[1:]:
            named = named or _meant(ref, partial(_studies, store, kind=kind))
    if named:
        return str(named[0].info.run_id)
    raise PlanError(
        f"no study {ref!r} in {_named(store)} of {masked(store.tracking_uri)!r}; "
        f"give a run id, {MIN_PREFIX} or more characters of one, "
        "or a study's name ('trainperf decisions' lists them), or another --experiment"
    )


def _meant(ref: str, search: Callable[[str], list[Run]]) -> list[Run]:
    meant = by_prefix(ref, search, "studies")
    return [meant] if meant else by_name(ref, search)


def by_prefix(ref: str, search: Callable[[str], list[Run]], what: str) -> Run | None:
    """The run whose id begins so; None where there is none, or where this is no beginning.

    Raises:
        PlanError: there are several.
    """
    if len(ref) < MIN_PREFIX or not re.fullmatch(r"[0-9a-f]+", ref):
        return None
    found = search(f"attributes.run_id LIKE '{ref}%'")
    if len(found) > 1:
        ids = ", ".join(str(run.info.run_id) for run in found[:5])
        raise PlanError(
            f"{ref!r} is the beginning of {len(found)} {what} ({ids}); give more characters"
        )
    return found[0] if found else None


def by_name(ref: str, search: Callable[[str], list[Run]]) -> list[Run]:
    """The runs of this name, the newest first."""
    # Quotes cannot be escaped in MLflow's filters: a wildcard stands for whatever
    # is not plain, and the names are compared here.
    name = names.run_name(ref)
    pattern = re.sub(r"[^A-Za-z0-9 -]", "_", name)
    found = search(f"attributes.run_name LIKE '{pattern}'")
    return [run for run in found if run.info.run_name == name]


def _named(store: Store) -> str:
    return f"experiment {store.experiment_name!r}" if store.experiment_id else "any experiment"


def load_study(store: Store, study_id: str) -> Study:
    """What was asked for and on what it ran, from the study's ``study.json``.

    Raises:
        PlanError: the run is none of a study, but one that gathers studies.
        StoreError: the artifact is missing or unreadable.
    """
    try:
        return _artifact(store, study_id, names.STUDY_FILE, Study.from_json)
    except StoreError:
        run = gathering_run(store, study_id)
        if run is None:
            raise
        kind, ids = run.data.tags[names.KIND], gathered_studies(run)
        raise PlanError(
            f"run {study_id} is a {kind} and no study; 'trainperf show {study_id}' shows what "
            "was decided" + (f"; the studies that it gathers are {', '.join(ids)}" if ids else "")
        ) from None


def gathering_run(store: Store, run_id: str) -> Run | None:
    """The run itself where it gathers studies; None of a study.

    Raises:
        StoreError: the store cannot be read.
    """
    with refusals(store.tracking_uri):
        run = store.client.get_run(run_id)
    return run if run.data.tags.get(names.KIND) in GATHERING_KINDS else None


def gathered_studies(run: Run) -> list[str]:
    """The ids of the studies that a run gathers, the primary one of a regression first."""
    keys = (names.PRIMARY_STUDY, names.ADJACENT_STUDIES, names.SCOPE_STUDIES)
    listed = ",".join(run.data.tags.get(key, "") for key in keys)
    return [study_id for study_id in listed.split(",") if study_id]


def load_gathering(store: Store, run_id: str, file: str, parse: Callable[[bytes], T]) -> T:
    """What a run that gathers studies decided.

    Raises:
        StoreError: it decided nothing, or its file is unreadable.
    """
    return _artifact(store, run_id, file, parse)


def load_comparison(store: Store, study_id: str) -> Comparison:
    """The comparison as it was recorded last.

    Raises:
        StoreError: the study has none, or it is unreadable.
    """
    return _artifact(store, study_id, names.COMPARISON_FILE, Comparison.from_json)


def artifacts(store: Store, study_id: str) -> list[str]:
    """The paths of a study's own artifacts, those in folders too.

    Raises:
        StoreError: the store cannot be read.
    """
    with refusals(store.tracking_uri):
        top = store.client.list_artifacts(study_id)
        within = [store.client.list_artifacts(study_id, item.path) for item in top if item.is_dir]
    found = [item for items in (top, *within) for item in items]
    return sorted(item.path for item in found if not item.is_dir)


def load_variants(
    store: Store, study_id: str, study: Study | None = None
) -> tuple[VariantValues, ...]:
    """All variants with their repeats' values, in the order of the plan, by one query.

    Means are taken of what the repeats' runs hold, so that anyone who asks again
    gets the same answer.

    Args:
        study: its description, where it was read already.

    Raises:
        StoreError: the store or the study's description cannot be read.
    """
    study = study or load_study(store, study_id)
    with refusals(store.tracking_uri):
        store = _where(store, study_id)
        found = runs_of_study(store, study_id)
    variants = variants_of(study, found, load_blocks(store, study_id))
    if not study.plan.get("convergence_steps"):
        return variants
    return with_convergence(variants, load_convergence(store, study_id))


def variants_of(
    study: Study,
    found: Collection[Run],
    blocks: Mapping[Key, tuple[BlockValues, ...]] = MappingProxyType({}),
) -> tuple[VariantValues, ...]:
    """The same of runs that were read already: the study's own and all its descendants."""
    variant_runs = {
        run.data.tags.get(names.VARIANT): run.info.run_id
        for run in found
        if run.data.tags.get(names.KIND) == "variant"
    }
    return tuple(
        _values(
            variant,
            _repeat_runs(found, variant.name),
            variant_runs.get(variant.name),
            study.workload.unsupported.get(variant.name),
            dict(blocks),
        )
        for variant in study.variants
    )


def _values(
    variant: Variant,
    repeats: list[Run],
    run_id: str | None,
    unsupported: str | None,
    blocks: dict[Key, tuple[BlockValues, ...]],
) -> VariantValues:
    tags = [run.data.tags for run in repeats]
    verdicts = {"true": True, "false": False}
    details = [tag[names.EFFECT_DETAIL] for tag in tags if names.EFFECT_DETAIL in tag]
    return variant_values(
        variant,
        [with_blocks(_repeat_values(run), variant.name, blocks) for run in repeats],
        effects=[
            verdicts.get(tag.get(names.EFFECT_VERIFIED, ""))
            for tag in tags
            if names.EFFECT_DETAIL in tag
        ],
        effect_detail="; ".join(dict.fromkeys(details)),
        sources=[
            run.data.params[names.PEAK_MEM_SOURCE]
            for run in repeats
            if names.PEAK_MEM_SOURCE in run.data.params
        ],
        unsupported=unsupported,
        run_id=run_id,
    )


def _repeat_values(run: Run) -> RepeatValues:
    tags = run.data.tags
    return RepeatValues(
        index=int(tags[names.REPEAT]),
        status=Status(tags[names.STATUS]),
        error=tags.get(names.ERROR),
        run_id=run.info.run_id,
        quality_checked=tags.get(names.QUALITY_CHECKED) == "true",
        seed=_whole(run.data.params.get("seed")),
        data_digest=tags.get(names.DATA_DIGEST),
        metrics=_metrics(run),
    )


def _whole(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() else None


def _metrics(run: Run) -> dict[str, float]:
    return {
        key: value
        for key, value in run.data.metrics.items()
        if not key.startswith(names.SERIES_PREFIX)
    }


def _repeat_runs(found: Iterable[Run], variant: str) -> list[Run]:
    """The variant's repeats, one run each: a request sent twice may have made two."""
    repeats: dict[str, Run] = {}
    for run in found:
        tags = run.data.tags
        if tags.get(names.KIND) != "repeat" or tags.get(names.VARIANT) != variant:
            continue
        if run.info.status in ("RUNNING", "SCHEDULED"):
            continue  # cut short while it was being written: recovery will end it
        repeats.setdefault(tags[names.REPEAT], run)
    return sorted(repeats.values(), key=lambda run: int(run.data.tags[names.REPEAT]))


def _by_run_id(store: Store, run_id: str) -> str | None:
    try:
        run = store.client.get_run(run_id)
    except MlflowException as error:
        if error.error_code == "RESOURCE_DOES_NOT_EXIST":
            return None
        raise StoreError(
            f"run {run_id} cannot be read: {reason(error, store.tracking_uri)}; try again"
        ) from None
    if run.info.lifecycle_stage != "active":
        raise PlanError(
            f"run {run_id} is deleted; restore it with 'mlflow runs restore --run-id {run_id}'"
        )
    found = run.data.tags.get(names.STUDY_ID)
    if found is None:
        raise PlanError(
            f"run {run_id} ({run.info.run_name!r}) belongs to no study of this toolkit; "
            "'trainperf decisions' lists the studies"
        )
    return str(found)


def _studies(store: Store, condition: str = "", kind: str = "study") -> list[Run]:
    only = f"tags.`{names.KIND}` = '{kind}'"
    return search_runs(store, f"{only} AND {condition}" if condition else only)


def experiment_of(store: Store, run_id: str) -> str:
    """The name of the experiment that a run is in.

    Raises:
        StoreError: the store cannot be read.
    """
    with refusals(store.tracking_uri):
        return _where(store, run_id).experiment_name


def _where(store: Store, run_id: str) -> Store:
    """The store at the experiment that the run is in."""
    found = store.client.get_run(run_id).info.experiment_id
    if found == store.experiment_id:
        return store
    name = store.client.get_experiment(found).name
    return replace(store, experiment_id=found, experiment_name=name)


def _artifact(store: Store, run_id: str, name: str, parse: Callable[[bytes], T]) -> T:
    with tempfile.TemporaryDirectory(prefix="trainperf-") as folder:
        try:
            path = store.client.download_artifacts(run_id, name, folder)
            return parse(Path(path).read_bytes())
        except (MlflowException, OSError, ValueError) as error:
            why = reason(error, store.tracking_uri)[:200]
            raise StoreError(
                f"study {run_id} has no readable {name} ({why}); a study that was interrupted "
                f"may lack it: 'trainperf recover {run_id}' sends what waits on disk"
            ) from None


# --- tables ------------------------------------------------------------------------------------


def decisions(store: Store, decision: str | None = None) -> pd.DataFrame:
    """One row per study, regression, scope and calibration, the newest first.

    Args:
        decision: accept, tune, reject or measure; all where it is None.

    Raises:
        PlanError: an unknown decision.
    """
    if decision not in (None, "accept", "tune", "reject", "measure"):
        raise PlanError(f"unknown decision {decision!r}; known: accept, tune, reject, measure")
    with refusals(store.tracking_uri):
        only = f"tags.`{names.DECISION}` = '{decision}'" if decision else ""
        # MLflow knows no OR, and no IN for tags.
        found = [run for kind in DECIDED_KINDS for run in _studies(store, only, kind)]
    found.sort(key=lambda run: run.info.start_time, reverse=True)
    columns = [*DECISION_COLUMNS, *DELTA_COLUMNS, "status", "started"]
    return pd.DataFrame([_decision_row(run) for run in found], columns=columns)


def _decision_row(run: Run) -> dict[str, object]:
    tags, info = run.data.tags, run.info
    row: dict[str, object] = {
        name: tags.get(f"trainperf.{name}")
        for name in DECISION_COLUMNS
        if name not in ("study", "workload")
    }
    row |= {name: run.data.metrics.get(name) for name in DELTA_COLUMNS}
    return row | {
        "study_id": info.run_id,
        "study": info.run_name,
        "workload": run.data.params.get(names.WORKLOAD_NAME),
        "status": info.status,
        "started": pd.Timestamp(info.start_time, unit="ms", tz="UTC"),
    }


def runs(store: Store, study_id: str) -> pd.DataFrame:
    """One row per variant and per repeat of a study: level, variant, role, repeat, status,
    the configuration, the metrics."""
    study = load_study(store, study_id)
    variants = load_variants(store, study_id)
    configs = {variant.name: variant.config for variant in study.variants}
    rows: list[dict[str, object]] = []
    for variant in variants:
        shared = {"variant": variant.name, "role": variant.role}
        levels: list[tuple[str, int | None, VariantValues | RepeatValues]] = [
            ("variant", None, variant),
            *(("repeat", repeat.index, repeat) for repeat in variant.repeats),
        ]
        rows += [
            {
                "level": level,
                **shared,
                "repeat": index,
                "status": values.status.value,
                "error": values.error,
                "run_id": values.run_id,
                **configs[variant.name],
                **values.metrics,
            }
            for level, index, values in levels
        ]
    frame = pd.DataFrame(rows)
    return frame.astype({"repeat": "Int64"})
