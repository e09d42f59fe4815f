"""What a closed study's readers are told: the decision of its close, beside the measured one."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from trainperf_mlflow.errors import EvidenceError, StoreError
from trainperf_mlflow.results.comparison import Comparison
from trainperf_mlflow.results.decision import Closed

if TYPE_CHECKING:
    from trainperf_mlflow.tracking.store import Store

_COMMAND = re.compile(r": trainperf (phase|profile) \w+$")


def with_close(store: Store, comparison: Comparison) -> Comparison:
    """The comparison with what its study was closed as; unchanged while that is open.

    A close whose report cannot be read is a warning: what was measured is told all the same.

    Raises:
        StoreError: the store cannot be read.
    """
    from trainperf_mlflow.tracking.explaining import closed_label

    study_id = comparison.study_id
    label = closed_label(store, study_id)
    if label is None:
        return comparison
    from trainperf_mlflow.evidence.chain import CLOSING
    from trainperf_mlflow.evidence.closed import closed_as
    from trainperf_mlflow.evidence.closing_report import ClosingReport
    from trainperf_mlflow.evidence.manifest import read_record
    from trainperf_mlflow.tracking.queries import load_gathering

    try:
        data = load_gathering(store, study_id, CLOSING, bytes)
        report = read_record(ClosingReport, data, CLOSING)
    except (EvidenceError, StoreError) as error:
        told = (
            f"the study is closed as {label!r}, but its close cannot be read, so the decision "
            f"here is the measured one ({error}); 'trainperf close {study_id} --check' says "
            "what became of the evidence"
        )
        final = as_closed(comparison, None)
        return final.model_copy(update={"warnings": (told, *comparison.warnings)})
    return as_closed(comparison, closed_as(report, comparison))


def as_closed(comparison: Comparison, closed: Closed | None) -> Comparison:
    """The comparison of a study that is closed: no command can look further, so none is named.

    Args:
        closed: how it was closed, where that can be read.
    """
    assessment = comparison.assessment
    if assessment is not None:
        missing = tuple(_COMMAND.sub("", text) for text in assessment.missing)
        assessment = assessment.model_copy(update={"missing": missing})
    return comparison.model_copy(update={"closed": closed, "assessment": assessment})
