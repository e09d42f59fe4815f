"""What holds a study's variants back, from all that MLflow has of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from trainperf_mlflow.analysis.assessment import assess
from trainperf_mlflow.results.comparison import Comparison
from trainperf_mlflow.results.values import VariantValues

if TYPE_CHECKING:
    from trainperf_mlflow.tracking.store import Store


def assessed(
    store: Store, comparison: Comparison, variants: Sequence[VariantValues], files: set[str]
) -> Comparison:
    """The comparison with the assessment of what phases and traces have shown until now.

    Args:
        files: the study's, as ``study_files`` lists them.
    """
    from trainperf_mlflow.tracking.explaining import load_summaries

    phases, profiles = load_summaries(store, files, variants)
    made = assess(comparison, variants, phases, profiles)
    return comparison.model_copy(update={"assessment": made})
