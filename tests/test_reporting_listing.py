from __future__ import annotations

import csv
import io
import json
from datetime import UTC, datetime

import numpy as np
import pandas as pd
import pytest

from trainperf_mlflow.reporting.listing import format_checks, format_rows
from trainperf_mlflow.results.check import Check

ROWS = [
    {
        "study": "=cmd|' /C calc'!A0",
        "decision": "accept",
        "step_time_pct": -5.25,
        "started_at": datetime(2026, 1, 2, 3, 4, tzinfo=UTC),
        "gain": float("nan"),
    },
    {"study": "[red]x\x1b[0m", "decision": "reject", "step_time_pct": 1.0, "goal": None},
]


def test_rows_as_json_keep_every_column_and_know_only_null_for_what_is_missing():
    made = json.loads(format_rows(ROWS, "json"))
    assert made[0]["gain"] is None
    assert made[0]["started_at"] == "2026-01-02T03:04:00+00:00"
    assert made[0]["step_time_pct"] == -5.25
    assert made[1] == {
        "study": "[red]x\x1b[0m",
        "decision": "reject",
        "step_time_pct": 1.0,
        "started_at": None,
        "gain": None,
        "goal": None,
    }


def test_text_in_csv_cannot_run_as_a_formula_and_numbers_stay_numbers():
    header, first, _ = csv.reader(io.StringIO(format_rows(ROWS, "csv")))
    row = dict(zip(header, first, strict=True))
    assert row["study"] == "'=cmd|' /C calc'!A0"
    assert row["step_time_pct"] == "-5.25"
    assert row["gain"] == ""


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r", " ="])
def test_every_way_to_begin_a_formula_is_defused(start):
    made = format_rows([{"name": f"{start}1+1"}], "csv")
    assert next(iter(csv.DictReader(io.StringIO(made, newline=""))))["name"].startswith("'")


def test_the_table_shows_names_as_they_are_and_dashes_for_what_is_missing():
    text = format_rows(ROWS, "table", width=160)
    assert "[red]x\\x1b[0m" in text
    assert "\x1b" not in text
    assert "2026-01-02 03:04" in text
    assert "-" in text.splitlines()[-1].split()


def test_a_data_frame_is_read_like_rows():
    frame = pd.DataFrame(
        {
            "study": ["a", "b"],
            "n": np.array([1, 2], dtype="int64"),
            "when": [pd.Timestamp(0), pd.NaT],
        }
    )
    assert json.loads(format_rows(frame, "json")) == [
        {"study": "a", "n": 1, "when": "1970-01-01T00:00:00"},
        {"study": "b", "n": 2, "when": None},
    ]
    assert "1970-01-01" in format_rows(frame, "table")


def test_no_studies_are_no_error():
    empty = pd.DataFrame(columns=["study", "decision"])
    assert format_rows(empty, "table") == "no studies yet"
    assert format_rows(empty, "csv") == "study,decision"
    assert format_rows(empty, "json") == "[]"
    assert format_rows([], "json") == "[]"


def test_an_unknown_output_is_refused():
    with pytest.raises(ValueError, match="known: table, json, csv"):
        format_rows([], "xml")


def test_checks_show_status_detail_and_remedy():
    text = format_checks(
        [
            Check(check="python", status="ok", detail="3.12"),
            Check(check="disk [red]", status="fail", detail="1 MiB free", remedy="free some"),
        ],
        width=100,
    )
    assert "python" in text
    assert "-> free some" in text
    assert "disk [red]" in text
