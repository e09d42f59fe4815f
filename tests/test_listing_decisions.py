"""The list of decisions on a terminal: what matters, in a width that people have."""

from datetime import UTC, datetime

import pytest
from rich.cells import cell_len

from trainperf_mlflow.decisions.reasons import REASONS
from trainperf_mlflow.reporting.folding import pieces
from trainperf_mlflow.reporting.listing import format_rows

NOW = datetime(2026, 1, 2, 3, 4, tzinfo=UTC)
ROW = {
    "study_id": "0123456789abcdef" * 2,
    "study": "bf16 or not",
    "decision": "accept",
    "reason": "goal_met",
    "next_action": "keep_change",
    "confidence": "unconfirmed",
    "policy": "goal",
    "goal": "peak_mem",
    "best_candidate": "bf16",
    "workload": "quick",
    "speedup": 1.4567,
    "delta/step_time_ms": 10.0,
    "delta/step_time_pct": 31.35,
    "delta/step_time_pct_low": 28.0,
    "delta/step_time_pct_high": 34.5,
    "delta/peak_mem_pct": -3.25,
    "started": None,
}


def test_a_hundred_columns_show_study_decision_and_gains_whole() -> None:
    text = format_rows([ROW], width=100)
    line = next(line for line in text.splitlines() if "01234567" in line)
    for cell in ("bf16 or not", "accept", "31.4 (28.0 to 34.5)", "-3.25", "goal_met"):
        assert cell in line
    assert "0123456789" not in text


def test_csv_and_json_keep_every_column_and_the_whole_id() -> None:
    for output in ("csv", "json"):
        text = format_rows([ROW], output)
        assert str(ROW["study_id"]) in text
        assert "keep_change" in text


def test_a_narrow_terminal_shows_fewer_columns_and_cuts_no_number_or_decision() -> None:
    rows = [
        {
            **ROW,
            "study": "שלום 中文的研究 🚀 <b>" * 20,
            "reason": "a_long_code_" * 5,
            "started": NOW,
        }
    ]
    for width in (80, 100, 140):
        lines = format_rows(rows, width=width, colour=False).splitlines()
        assert max(cell_len(line) for line in lines) <= width
        first = next(line for line in lines if "01234567" in line)
        assert {"accept", "31.4", "-3.25"} <= set(first.replace("(", " ").split())
        assert ("started" in lines[0]) == (width > 120)


@pytest.mark.parametrize("closed", [False, True])
def test_a_word_is_cut_only_where_nothing_else_helps(closed: bool) -> None:
    reasons = [reason for reason in REASONS if len(reason) > 25]
    rows = [
        {**ROW, "study": f"budget of {index} MiB", "reason": reason, "confidence": "confirmed",
         "best_candidate": "checkpoint",
         **({"closed": "release-v1", "measured_decision": "accept"} if closed else {})}
        for index, reason in enumerate(reasons)
    ]  # fmt: skip
    rows[1] |= {"delta/step_time_pct_low": -1234.5, "delta/step_time_pct_high": 1234.5}
    parts = {part for reason in reasons for part in pieces(reason)}
    for width in (80, 100, 140):
        text = format_rows(rows, width=width, colour=False)
        lines = text.splitlines()
        assert max(map(len, lines)) <= width
        assert {"budget", "MiB", "accept"} <= set(text.split())
        # Every line of a code ends where a part of it does.
        head = next(index for index, line in enumerate(lines) if "reason" in line)
        column = lines[head].index("reason")
        for line in lines[head + 2 :]:
            cell = line[column:].split()
            assert not cell or set(pieces(cell[0])) <= parts, line
    assert "confirmed" in format_rows(rows[2:], width=100)
    assert "checkpoint" in format_rows(rows, width=100)


def test_colours_are_only_for_a_terminal() -> None:
    assert "\x1b" not in format_rows([ROW])
    assert "\x1b[32maccept" in format_rows([ROW], colour=True)


def test_the_runs_of_a_study_are_shown_with_the_digits_of_a_loss() -> None:
    rows = [
        {"variant": "bf16", "repeat": 0, "status": "ok", "loss": 2.34567, "peak_mem_mb": 1.5,
         "step_time_ms": 12.345, "precision": "bf16", "error": None},
        {"variant": "x\x1b[31m", "repeat": 1, "status": "oom", "loss": None, "peak_mem_mb": None,
         "step_time_ms": None, "precision": "bf16", "error": "out of\nmemory"},
    ]  # fmt: skip
    text = format_rows(rows, width=120, colour=False)
    assert text.splitlines()[0].split("  ")[0] == "variant"
    assert "2.3457" in text
    assert "12.35" in text
    assert "x\\x1b[31m" in text
    assert "out of\\nmemory" in text
    assert "precision" not in text  # csv and json have it
    assert "precision" in format_rows(rows, "csv")
