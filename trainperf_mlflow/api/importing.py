"""Published result files become studies, decided again by our own rules."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import trainperf_mlflow
from trainperf_mlflow.analysis.metrics import repeat_values, variant_values
from trainperf_mlflow.api.annotating import annotate, note_of
from trainperf_mlflow.api.pages import attach_report
from trainperf_mlflow.api.picturing import attach, compared_pictures
from trainperf_mlflow.decisions.study import decide_study
from trainperf_mlflow.errors import MeasurementError, PlanError
from trainperf_mlflow.evidence.agreement import ImportOutcome, beside_published, outcome
from trainperf_mlflow.evidence.formats import parse
from trainperf_mlflow.evidence.imported import Imported
from trainperf_mlflow.evidence.reading import read_document
from trainperf_mlflow.messages import shown
from trainperf_mlflow.results.comparison import Comparison
from trainperf_mlflow.results.study import Study
from trainperf_mlflow.results.values import VariantValues

if TYPE_CHECKING:
    from trainperf_mlflow.tracking.recorder import Recorder
    from trainperf_mlflow.tracking.store import Store


@dataclass(frozen=True)
class _Read:
    file: str
    found: Imported


def import_reports(
    *files: str | Path,
    tracking_uri: str | None = None,
    experiment: str | None = None,
    warn: Callable[[str], None] = lambda message: None,
) -> list[ImportOutcome]:
    """Import published reports, each as a study with variants and repeats.

    All files are read and checked before anything is written. A file that was
    imported before, byte for byte, is the study that it was then.

    Returns:
        One outcome per file, in their order: the study and both decisions.

    Raises:
        PlanError: a file is no report that can be imported, with the field's path.
        StoreError: the store cannot be read or written.
    """
    if not files:
        raise PlanError("no file is given; name the reports to import")
    reports = [_read(Path(file)) for file in files]
    from trainperf_mlflow.tracking.store import open_store

    store = open_store(tracking_uri, experiment)
    return [_import(store, report, warn) for report in reports]


def _read(path: Path) -> _Read:
    found = parse(read_document(path))
    now = time.time()
    study = found.study.model_copy(
        update={"created_at": now, "toolkit_version": trainperf_mlflow.__version__}
    )
    repeats = (r.model_copy(update={"started_at": now, "ended_at": now}) for r in found.repeats)
    found = found.model_copy(update={"study": study, "repeats": tuple(repeats)})
    try:
        decide_imported(found, study, _values(found))  # refused before anything is written
    except (MeasurementError, PlanError) as error:
        raise PlanError(f"{shown(Path(path))} cannot be decided: {error}") from None
    return _Read(str(path), found)


def decide_imported(
    found: Imported, study: Study, variants: tuple[VariantValues, ...]
) -> Comparison:
    """Our own decision on a report."""
    comparison = decide_study(study, variants)
    if found.decision is not None:
        comparison = comparison.model_copy(update={"decision": found.decision})
    return beside_published(study, comparison)


def _values(found: Imported) -> tuple[VariantValues, ...]:
    values = []
    for variant in found.study.variants:
        own = [repeat for repeat in found.repeats if repeat.variant == variant.name]
        values.append(
            variant_values(
                variant,
                [repeat_values(repeat, compiled=False) for repeat in own],
                sources=[r.peak_mem_source for r in own if r.peak_mem_source],
            )
        )
    return tuple(values)


def _import(store: Store, report: _Read, warn: Callable[[str], None]) -> ImportOutcome:
    from trainperf_mlflow.tracking import queries
    from trainperf_mlflow.tracking.importing import find_import, record_import

    found = report.found
    assert found.study.source is not None
    known = find_import(store, found.study.source.sha256)
    if known is not None:
        study = queries.load_study(store, known)
        comparison = queries.load_comparison(store, known)
        return outcome(study, comparison, report.file, already=True, warnings=found.warnings)

    def decide(store: Store, recorder: Recorder) -> tuple[Comparison, str]:
        comparison = decide_imported(found, recorder.study, recorder.values())
        return comparison, note_of(store, comparison)

    comparison = record_import(store, found.study, found.repeats, found.text, decide, warn)
    study_id, variants = comparison.study_id, queries.load_variants(store, comparison.study_id)
    pictures = compared_pictures(found.study, variants, comparison, warn)
    attach(store, study_id, pictures, warn)
    attach_report(store, comparison, warn, pictures)
    annotate(store, comparison)
    return outcome(found.study, comparison, report.file, already=False, warnings=found.warnings)
