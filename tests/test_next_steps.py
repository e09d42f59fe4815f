"""What is printed below a decision: every next action with its words, no line too wide."""

from __future__ import annotations

from trainperf_mlflow.decisions.reasons import REASONS
from trainperf_mlflow.reporting.closing import closure_text
from trainperf_mlflow.reporting.console import wrapped
from trainperf_mlflow.reporting.importing import outcomes_text
from trainperf_mlflow.reporting.next_steps import next_line


def test_every_next_action_stands_beside_its_words() -> None:
    for action in {reason.next_action for reason in REASONS.values()}:
        line = next_line(action)
        assert line.startswith(f"next: {action} (")
        assert "_" not in line.removeprefix(f"next: {action}")


def test_a_next_action_that_a_report_brought_along_stands_as_it_is() -> None:
    assert next_line("ask_someone_else") == "next: ask_someone_else"


def test_lines_are_wrapped_between_words_and_keep_their_indent() -> None:
    lines = ["head", "", "  ! " + "word-of-some-length " * 20, "    deeper " + "and on " * 30]
    text = wrapped(lines, 80)
    assert max(map(len, text.splitlines())) <= 80
    assert set(text.split()) == {"head", "!", "word-of-some-length", "deeper", "and", "on"}
    assert "\n\n" in text
    assert "\n    word" in text
    assert "\n      and" in text


def test_an_import_names_the_study_and_the_next_command() -> None:
    item = {
        "file": "a.json", "study": "75 budget", "study_id": "ab" * 16, "format": "x/v1",
        "already": False, "published_decision": "tune", "decision": "tune", "reason": "r",
        "agrees": True, "differences": (), "warnings": ("read this",),
    }  # fmt: skip
    text = outcomes_text([item])
    assert "name: 75 budget" in text
    assert text.splitlines()[-1].strip() == f"all of it: trainperf show {'ab' * 16}"


MISSING = (
    "profile_trace", "phase_memory", "three_repeats", "confirmed_gain", "regression",
    "activation_memory_scope",
)  # fmt: skip


def closed(*limitations: str) -> str:
    return closure_text(
        {
            "status": "ready", "study": "s", "study_id": "ab" * 16, "label": "", "decision": "tune",
            "reason": "r", "confidence": "confirmed", "text": "t",
            "next_action": "collect_phase_memory_evidence", "candidates": (),
            "decision_scopes": {"activation_memory_mechanism": {"decision": "x", "reason": "y"}},
            "missing_evidence": MISSING, "limitations": limitations, "artifacts": 1, "bytes": 1,
            "measured_repeats": 1,
        }
    )  # fmt: skip


def test_a_close_asks_for_no_run_of_what_was_imported() -> None:
    measured, imported = closed(), closed("runs_were_imported_and_not_paired")
    for command in ("trainperf profile", "trainperf phase", "trainperf measure --repeats 3"):
        assert (command in measured, command in imported) == (True, False)
    for text in (measured, imported):
        assert "trainperf regress" in text
        assert "close --scope-study" in text
        assert all(name in text for name in MISSING)
        assert "collect_phase_memory_evidence (collect evidence of memory by phase)" in text
    assert "measure the workload here" in imported
