"""How sure a close is of what it decides."""

from __future__ import annotations

import pytest

from trainperf_mlflow.evidence.closing_report import Basis, Confidence
from trainperf_mlflow.evidence.confidence import weakest


@pytest.mark.parametrize(
    ("measured", "regression", "scope", "expected"),
    [
        ("confirmed", "confirmed", "unfit", "confirmed"),  # a ladder bears no adoption
        ("confirmed", "unconfirmed", None, "unconfirmed"),
        ("unconfirmed", "confirmed", None, "unconfirmed"),
        ("unfit", "confirmed", None, "unfit"),
        ("confirmed", None, None, "confirmed"),
    ],
)
def test_a_close_is_as_sure_as_the_least_sure_decision_that_it_rests_on(
    measured: Confidence,
    regression: Confidence | None,
    scope: Confidence | None,
    expected: Confidence,
) -> None:
    given = (("measured", measured), ("regression", regression), ("activation_scope", scope))
    bases = [
        Basis(what=what, study_id="s", decision="accept", confidence=confidence)
        for what, confidence in given
        if confidence is not None
    ]
    assert weakest(bases) == expected
