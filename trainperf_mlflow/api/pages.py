"""A study's report as files of the study: made after its decision, and never a reason to fail."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Literal

from trainperf_mlflow.decisions.reasons import Language
from trainperf_mlflow.errors import Interrupted
from trainperf_mlflow.results.comparison import Comparison

if TYPE_CHECKING:
    from trainperf_mlflow.reporting.report.material import Material
    from trainperf_mlflow.tracking.store import Store

Format = Literal["html", "markdown"]


def attach_report(
    store: Store,
    comparison: Comparison,
    warn: Callable[[str], None],
    pictures: Mapping[str, bytes] | None = None,
) -> None:
    """Write a study's ``report.html`` and ``report.md`` anew; what keeps them away is a warning.

    Args:
        pictures: all of the study, where the caller has them; else they are read.
    """
    from trainperf_mlflow.tracking import names, queries
    from trainperf_mlflow.tracking.reports import send_report

    try:
        files = queries.artifacts(store, comparison.study_id)
        material = material_of(store, comparison, files, pictures)
        pages = {
            names.REPORT_FILE: page_of(material, "html", "en"),
            names.MARKDOWN_FILE: page_of(material, "markdown", "en"),
        }
        send_report(store, comparison.study_id, pages)
    except Interrupted:
        raise
    except Exception as error:  # the decision stands without it
        warn(
            f"the report could not be written ({type(error).__name__}: {str(error)[:200]}); "
            f"'trainperf report {comparison.study_id}' makes it"
        )


def page_of(material: Material, format: Format, lang: Language) -> str:
    from trainperf_mlflow.reporting.report.content import report_content
    from trainperf_mlflow.reporting.report.page import html_page
    from trainperf_mlflow.reporting.report.pull_request import markdown_page

    content = report_content(material, lang)
    return html_page(content) if format == "html" else markdown_page(content)


def material_of(
    store: Store,
    comparison: Comparison,
    files: list[str],
    pictures: Mapping[str, bytes] | None = None,
) -> Material:
    from trainperf_mlflow.reporting.report.material import EvidenceFile, Material
    from trainperf_mlflow.tracking import queries
    from trainperf_mlflow.tracking.explaining import load_summaries
    from trainperf_mlflow.tracking.importing import source_path
    from trainperf_mlflow.tracking.reports import (
        Listed,
        load_environment,
        load_evidence,
        load_pictures,
    )

    study_id = comparison.study_id
    variants = queries.load_variants(store, study_id)
    top = {path.partition("/")[0] for path in files}
    phases, profiles = load_summaries(store, top, variants)
    listed, manifest = load_evidence(store, files, study_id)
    known = pictures if pictures is not None else load_pictures(store, files, study_id)
    study = queries.load_study(store, study_id)
    source = (
        [Listed(source_path(study), None, study.source.sha256)]
        if study.source is not None and not manifest
        else []
    )
    return Material(
        study=study,
        comparison=comparison,
        variants=variants,
        phases=phases,
        profiles=profiles,
        pictures=known,
        environment=load_environment(store, variants),
        evidence=[EvidenceFile(item.path, item.of, item.sha256) for item in (*source, *listed)],
        manifest=manifest,
    )
