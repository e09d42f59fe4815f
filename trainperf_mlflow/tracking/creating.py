"""The runs of a study in MLflow: how they come into being, and what says what they are."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from functools import cache

from mlflow.data.code_dataset_source import CodeDatasetSource
from mlflow.data.meta_dataset import MetaDataset
from mlflow.entities import DatasetInput, InputTag
from mlflow.tracking.context.registry import resolve_tags

from trainperf_mlflow.errors import StoreError
from trainperf_mlflow.results.record import Setting
from trainperf_mlflow.results.study import Source, Study, Variant
from trainperf_mlflow.tracking import colours, names
from trainperf_mlflow.tracking.entities import milliseconds, params_of, run_tags
from trainperf_mlflow.tracking.store import Store

MAX_DIGEST = 36  # of a dataset in MLflow


def create_study_run(store: Store, study: Study) -> str:
    """A new run for the study; under ``mlflow run`` the project's run itself.

    Raises:
        StoreError: the project's run is not running, or deleted.
    """
    return own_run(store, study.name, _study_tags(study), study.created_at)


def own_run(store: Store, name: str, tags: dict[str, str], started_at: float) -> str:
    """A new run with a kind of its own; under ``mlflow run`` the project's run itself.

    Raises:
        StoreError: the project's run is not running, or deleted.
    """
    run_id = os.environ.get("MLFLOW_RUN_ID")
    project_run = store.client.get_run(run_id) if run_id else None
    # A second study in the same project run gets a run of its own.
    if project_run is None or names.KIND in project_run.data.tags:
        run = store.client.create_run(
            store.experiment_id,
            start_time=milliseconds(started_at),
            tags=_context() | tags,
            run_name=names.run_name(name),
        )
        return str(run.info.run_id)
    if project_run.info.lifecycle_stage != "active" or project_run.info.status != "RUNNING":
        raise StoreError(
            f"MLFLOW_RUN_ID is {run_id!r}, but that run is {project_run.info.status} "
            f"({project_run.info.lifecycle_stage}); unset MLFLOW_RUN_ID"
        )
    run_id = str(run_id)
    store.client.log_batch(run_id, tags=run_tags(tags), synchronous=True)
    store.client.update_run(run_id, name=names.run_name(name))
    return run_id


def describe_study(store: Store, study: Study) -> None:
    """The study's params, its workload as a dataset, and ``study.json``."""
    client, run_id = store.client, study.study_id
    plan: dict[str, Setting] = {
        f"plan.{key}": value for key, value in study.plan.items() if value not in (None, "")
    }
    workload: dict[str, Setting] = {
        names.WORKLOAD_NAME: study.workload.name,
        "workload.source": study.workload.source,
        "workload.device": study.workload.device,
        **{f"workload.{key}": value for key, value in study.workload.facts.items()},
    }
    text = study.to_json()
    client.log_batch(
        run_id,
        params=params_of(plan | workload),
        tags=run_tags({names.STUDY_ID: run_id, **names.digest_tags({names.STUDY_FILE: text})}),
        synchronous=True,
    )
    client.log_inputs(run_id, datasets=[_dataset(study)])
    client.log_text(run_id, text, names.STUDY_FILE)


def create_variant_run(store: Store, study: Study, variant: Variant) -> str:
    """A child run of the study for one variant."""
    title = variant.name if variant.role == "baseline" else f"candidate {variant.name}"
    return create_child(
        store,
        study,
        parent=study.study_id,
        title=title,
        started_at=time.time(),
        tags={names.KIND: "variant", **variant_tags(study, variant)},
    )


def describe_variant(store: Store, study: Study, variant: Variant, run_id: str) -> None:
    """The variant's configuration as params, and the workload as a dataset."""
    # Facts such as weights=random; the configuration's own keys come first.
    params = {**study.workload.facts, **variant.config}
    store.client.log_batch(run_id, params=params_of(params), synchronous=True)
    store.client.log_inputs(run_id, datasets=[_dataset(study)])


def create_child(
    store: Store,
    study: Study,
    *,
    parent: str,
    title: str,
    started_at: float,
    tags: Mapping[str, str | None],
) -> str:
    """A run below another one of the study, with the tags by which both are found."""
    ours = {
        names.PARENT_RUN_ID: parent,
        names.STUDY_ID: study.study_id,
        names.STUDY: study.name,
        names.SCHEMA: names.SCHEMA_VERSION,
        names.WORKLOAD_DIGEST: study.workload.digest,
        **tags,
    }
    run = store.client.create_run(
        store.experiment_id,
        start_time=milliseconds(started_at),
        tags=_context() | names.tags(ours),
        run_name=names.run_name(title),
    )
    return str(run.info.run_id)


def _study_tags(study: Study) -> dict[str, str]:
    return names.tags(
        {
            **_source_tags(study.source),
            names.KIND: study.kind,
            names.MACHINE_DIGEST: study.machine_digest,
            names.BASELINE_DIGEST: study.baseline_digest,
            names.SCHEMA: names.SCHEMA_VERSION,
            names.WORKLOAD_DIGEST: study.workload.digest,
            names.POLICY: study.policy,
            names.GOAL: study.goal,
            names.HYPOTHESIS: study.hypothesis,
            names.CHANGED_VARIABLE: ", ".join(
                dict.fromkeys(v.changed_variable for v in study.variants if v.changed_variable)
            )
            or None,
        }
    )


def _source_tags(source: Source | None) -> dict[str, str | None]:
    if source is None:
        return {}
    published = source.published
    return {
        names.IMPORTED: source.format,
        names.SOURCE_FILE: source.file,
        names.SOURCE_SHA256: source.sha256,
        names.PUBLISHED_DECISION: published.decision if published else None,
    }


def variant_tags(study: Study, variant: Variant) -> dict[str, str | None]:
    return {
        names.RUN_COLOUR: colours.of_variant(study, variant.name),
        names.ROLE: variant.role,
        names.VARIANT: variant.name,
        names.CHANGED_VARIABLE: variant.changed_variable,
    }


@cache
def _context() -> dict[str, str]:
    """Who ran what, from which commit: MLflow's own tags. Asked once, since git is slow."""
    found = {str(key): str(value) for key, value in resolve_tags().items()}
    return names.tags(found)


def _dataset(study: Study) -> DatasetInput:
    # MLflow's own digests read the first rows only; the workload's covers everything.
    dataset = MetaDataset(  # type: ignore[abstract]
        source=CodeDatasetSource(tags={"source": names.cut(study.workload.source, 1000)}),
        name=names.cut(study.workload.name, names.MAX_NAME),
        digest=study.workload.digest[:MAX_DIGEST],
    )
    context = InputTag(key="mlflow.data.context", value="training")
    return DatasetInput(dataset=dataset._to_mlflow_entity(), tags=[context])
