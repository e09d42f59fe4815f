"""Which labels a close takes."""

from __future__ import annotations

import pytest

from trainperf_mlflow.errors import PlanError
from trainperf_mlflow.evidence.labels import known_label


@pytest.mark.parametrize(
    "label",
    [
        *("replace_with_unique_label", "REPLACE_WITH_UNIQUE_LABEL", "<replace-me>", "replace me"),
        *("LABEL", "${RUN_LABEL}", "your label", "todo", "..."),
    ],
)
def test_what_stands_in_examples_is_no_label(label: str) -> None:
    with pytest.raises(PlanError, match="placeholder"):
        known_label(label)


@pytest.mark.parametrize(
    "label",
    [
        *("replaced-adamw-v2", "replace-adamw", "replacement 1", "label-smoothing", "labels"),
        *("none-fused", "todo-list v1", "L2"),
    ],
)
def test_a_label_that_only_begins_like_a_placeholder_says_something(label: str) -> None:
    assert known_label(f" {label} ") == label
