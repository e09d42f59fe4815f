"""The list of decisions on a terminal: what matters, in a width that people have."""

from trainperf_mlflow.reporting.listing import format_rows

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
    "delta/peak_mem_pct": -3.25,
    "started": None,
}


def test_a_hundred_columns_show_study_decision_and_gains_whole() -> None:
    text = format_rows([ROW], width=100)
    line = next(line for line in text.splitlines() if "01234567" in line)
    for cell in ("bf16 or not", "accept", "1.46", "-3.25", "goal_met"):
        assert cell in line
    assert "0123456789" not in text


def test_csv_and_json_keep_every_column_and_the_whole_id() -> None:
    for output in ("csv", "json"):
        text = format_rows([ROW], output)
        assert str(ROW["study_id"]) in text
        assert "keep_change" in text
