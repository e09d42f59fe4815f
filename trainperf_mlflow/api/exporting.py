"""A study in the formats that the course project's later stages read."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainperf_mlflow.api.reading import find
from trainperf_mlflow.decisions.study import decide_study
from trainperf_mlflow.errors import EvidenceError, PlanError
from trainperf_mlflow.evidence.exported import Exported
from trainperf_mlflow.evidence.formats import build
from trainperf_mlflow.messages import nearest, shown
from trainperf_mlflow.results.study import Study

if TYPE_CHECKING:
    from trainperf_mlflow.tracking.store import Store

BUILT = ("training", "memory-strategy", "memory-budget", "benchmark")
# What other commands attach to a study, and which.
ATTACHED = {
    "profiling": ("profile/trace_evidence.json", "profile"),
    "phase": ("phases/phase_memory.json", "phase"),
    "closing": ("evidence/closing.json", "close"),
    "handoff": ("handoff/handoff.json", "close"),
}
FORMATS = (*BUILT, *ATTACHED)
_BY_POLICY = {"memory-strategy": "memory-strategy", "memory-budget": "memory-budget"}


def export(
    study: str,
    format: str | None = None,
    *,
    tracking_uri: str | None = None,
    experiment: str | None = None,
) -> dict[str, Any]:
    """A study as a report; see ``export_text``."""
    text = export_text(study, format, tracking_uri=tracking_uri, experiment=experiment)
    report: dict[str, Any] = json.loads(text.removeprefix("\ufeff"))
    return report


def export_text(
    study: str,
    format: str | None = None,
    *,
    tracking_uri: str | None = None,
    experiment: str | None = None,
) -> str:
    """A study as a report's text; an imported one in its own format is the report itself.

    Args:
        study: a run id, a unique prefix of one, or a study's name (the newest of it).
        format: training, memory-strategy, memory-budget, benchmark, profiling, phase,
            closing or handoff; by default the one that it was imported from, else its
            policy's.

    Raises:
        PlanError: there is no such study or format, the format has no room for the study,
            or what it consists of was not measured yet.
        EvidenceError: the report that the study was imported from was changed or is gone.
        StoreError: the store cannot be read.
    """
    from trainperf_mlflow.tracking import queries
    from trainperf_mlflow.tracking.reports import load_environment

    store, study_id = find(study, tracking_uri, experiment)
    found = queries.load_study(store, study_id)
    wanted = format or _default_format(found)
    if found.source is not None and wanted in _own_formats(found):
        return _source_text(store, found)
    if wanted not in FORMATS:
        raise PlanError(
            f"unknown format {shown(wanted)}{nearest(wanted, FORMATS)}; known: {', '.join(FORMATS)}"
        )
    if wanted in ATTACHED:
        return _attached(store, found, wanted)
    variants = queries.load_variants(store, study_id)
    exported = Exported(
        study=found,
        variants=variants,
        comparison=decide_study(found, variants),
        environment=load_environment(store, variants),
    )
    return json.dumps(build(exported, wanted), ensure_ascii=False, indent=2) + "\n"


def write_report(path: str | Path, text: str) -> None:
    """Write a report to a file.

    Raises:
        PlanError: the file cannot be written.
    """
    try:
        Path(path).write_bytes(text.encode())
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise PlanError(
            f"{shown(Path(path))} cannot be written ({why}); give another --output"
        ) from None


def _default_format(study: Study) -> str:
    if study.source is not None:
        return study.source.format
    return _BY_POLICY.get(study.policy, "training")


def _own_formats(study: Study) -> set[str]:
    """The formats that an imported study is already in; a probe's is the training format's."""
    own = study.source.format if study.source else ""
    return {own, "training"} if own == "probe" else {own}


def _source_text(store: Store, study: Study) -> str:
    from trainperf_mlflow.tracking.importing import load_source, source_path

    assert study.source is not None
    data = load_source(store, study)
    if hashlib.sha256(data).hexdigest() != study.source.sha256:
        raise EvidenceError(
            f"{source_path(study)} of study {study.study_id} is not the file that was imported "
            f"(its SHA-256 was {study.source.sha256}); import the report again"
        )
    return data.decode()


def _attached(store: Store, study: Study, wanted: str) -> str:
    from trainperf_mlflow.tracking.importing import load_file

    path, command = ATTACHED[wanted]
    data = load_file(store, study.study_id, path)
    if data is None:
        lacks = "is not closed" if command == "close" else f"has no {wanted} report"
        options = " --label LABEL" if command == "close" else ""
        raise PlanError(
            f"study {study.study_id} {lacks}, so there is nothing to export as {wanted}; "
            f"run 'trainperf {command} {study.study_id}{options}' first"
        )
    return data.decode()
