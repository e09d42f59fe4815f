"""Notes on the runs of a study: what a reader of MLflow's page sees first."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from trainperf_mlflow.errors import StoreError
from trainperf_mlflow.reporting.note import run_note, variant_notes
from trainperf_mlflow.results.comparison import Comparison

if TYPE_CHECKING:
    from trainperf_mlflow.tracking.store import Store


def note_of(store: Store, comparison: Comparison) -> str:
    """The note on the study's run.

    Raises:
        StoreError: the store cannot be read.
    """
    from trainperf_mlflow.tracking.links import note_links

    links = note_links(store, comparison.study_id)
    return run_note(comparison, {name: link for name, link in links.items() if name != "study"})


def annotate(store: Store, comparison: Comparison) -> None:
    """Write the notes on the study and its variants anew, with links to all that is there now.

    A store that takes no note has the decision all the same.
    """
    from trainperf_mlflow.tracking.links import note_links
    from trainperf_mlflow.tracking.writing import send_notes

    with suppress(StoreError):
        links = note_links(store, comparison.study_id)
        study = links.pop("study")
        notes = {comparison.study_id: run_note(comparison, links)}
        runs = {item.variant: item.run_id for item in comparison.candidates}
        if comparison.baseline is not None:
            runs[comparison.baseline.name] = comparison.baseline.run_id
        for variant, note in variant_notes(comparison, {"study": study}).items():
            run_id = runs[variant]
            if run_id is not None:
                notes[run_id] = note
        send_notes(store, notes)
