"""How sure a close is of what it decides."""

from __future__ import annotations

from pathlib import Path

import pytest
from closing_studies import add_regression, record_closable
from made_studies import variant
from recorded_studies import a_comparison, a_store, a_study, clean_surroundings

import trainperf_mlflow as tp
from trainperf_mlflow.evidence.closing_report import (
    Basis,
    ClosingReport,
    Confidence,
    Regression,
    Validation,
)
from trainperf_mlflow.evidence.confidence import candidate_confidence, rests_on, weakest
from trainperf_mlflow.evidence.exported import Exported
from trainperf_mlflow.evidence.gates import Closable
from trainperf_mlflow.results.comparison import Comparison
from trainperf_mlflow.tracking import names

REGRESSIONS = tuple(
    Regression(
        status="collected", study_id="r", candidate=name, decision="accept", confidence=confidence
    )
    for name, confidence in (("one", "confirmed"), ("two", "unfit"), (None, "confirmed"))
)


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


def measured(**sure: Confidence) -> Comparison:
    """A comparison of candidates by name, each as sure as given; of the study as a whole it is
    confirmed."""
    made = a_comparison(a_study(), (variant("baseline"), *(variant(name) for name in sure)))
    return made.model_copy(
        update={
            "decision": made.decision.model_copy(update={"confidence": "confirmed"}),
            "candidates": tuple(
                one.model_copy(
                    update={
                        "decision": one.decision.model_copy(
                            update={"confidence": sure[one.variant]}
                        )
                    }
                )
                for one in made.candidates
            ),
        }
    )


@pytest.mark.parametrize(
    ("accepted", "regressions", "expected"),
    [
        (("one",), ("one", None), "confirmed"),
        (("two",), ("two", None), "unfit"),
        (("three",), (None,), "unconfirmed"),
        (("one", "two"), ("one", "two", None), "unfit"),
        ((), ("one", "two", None), "unfit"),  # nothing is adopted: why rests on all
    ],
)
def test_an_adoption_rests_on_what_was_decided_about_what_is_adopted(
    accepted: tuple[str, ...], regressions: tuple[str | None, ...], expected: Confidence
) -> None:
    comparison = measured(one="confirmed", two="confirmed", three="unconfirmed")
    found = Closable(
        exported=Exported(a_study(), (), comparison),
        profiles={},
        phases={},
        scope_basis=Basis(
            what="activation_scope", study_id="l", decision="tune", confidence="unfit"
        ),
        regressions=REGRESSIONS,
    )
    bases = rests_on(found, accepted)
    by_kind = {
        what: tuple(basis.candidate for basis in bases if basis.what == what)
        for what in ("measured", "regression", "activation_scope")
    }
    assert by_kind == {
        "measured": (None, *accepted),
        "regression": regressions,
        "activation_scope": (None,),
    }
    assert weakest(bases) == expected


@pytest.mark.parametrize(
    ("name", "weighed", "expected"),
    [
        ("one", True, "confirmed"),
        ("two", True, "unfit"),  # by its regression
        ("three", True, "unconfirmed"),  # as it was measured
        ("one", False, "unconfirmed"),  # in a close from before this was weighed
    ],
)
def test_a_close_is_as_sure_of_a_candidate_as_the_least_sure_decision_about_that_one(
    name: str, weighed: bool, expected: Confidence
) -> None:
    report = ClosingReport.model_construct(
        confidence="unfit" if weighed else None,
        validation=Validation.model_construct(regression=REGRESSIONS),
    )
    comparison = measured(one="confirmed", two="confirmed", three="unconfirmed")
    assert candidate_confidence(name, report, comparison) == expected


def test_a_close_of_one_candidate_is_as_sure_of_it_as_of_the_study(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    clean_surroundings(monkeypatch, tmp_path)
    store = a_store(tmp_path)
    recorder = record_closable(store, repeats=3, explained=False, policy="training")
    regression = add_regression(store, recorder.study_id)
    store.client.set_tag(regression, names.CONFIDENCE, "confirmed")
    tp.close(recorder.study_id, "sure-v1", tracking_uri=store.tracking_uri)
    for run_id in (recorder.study_id, recorder.variant_runs["checkpoint"]):
        assert store.client.get_run(run_id).data.tags[names.CONFIDENCE] == "confirmed"
    closed = tp.compare(recorder.study_id, tracking_uri=store.tracking_uri).closed
    assert closed is not None
    assert closed.candidates["checkpoint"].confidence == closed.confidence == "confirmed"
    said = tp.report(recorder.study_id, "markdown", tracking_uri=store.tracking_uri)
    assert "not confirmed" not in said
