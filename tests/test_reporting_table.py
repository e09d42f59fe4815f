from __future__ import annotations

import pytest
from made_studies import study, variant

from trainperf_mlflow.decisions.study import decide_study
from trainperf_mlflow.reporting.note import MAX_NOTE, run_note, variant_notes
from trainperf_mlflow.reporting.table import COLUMNS, comparison_text, difference_lines, to_text
from trainperf_mlflow.results.comparison import Comparison
from trainperf_mlflow.results.decision import Closed

TIMES = {"baseline": 482.0, "tuned": 238.0}
NASTY = "[red]<b>|a_b`\x1b[31m\u202e\nhttps://evil.example"


def comparison(*more: object, goal: str | None = "step_time", **fields: object) -> Comparison:
    base = variant("baseline", time=482.753, memory=9782.56, loss=11.477, eval_loss=11.4)
    bf16 = variant("bf16", time=237.998, memory=9477.25, loss=11.716, eval_loss=11.42)
    return decide_study(study(goal, **fields), [base, bf16, *more])


def test_the_table_has_every_metric_difference_and_decision():
    text = to_text(comparison(variant("slim", time=612.0, memory=3815.2, statuses=("ok", "oom"))))
    for part in (
        "step time ms", "samples/s", "peak mem MiB", "loss", "eval loss", "decision",
        "482.75", "238.00", "saves 244.75", "50.7 %", "saves 305.3", "3.1 %", "+0.0200",
        "costs 129.25", "26.8 %", "accept", "reject", "oom",
        "bf16: saves 51 % of time and 3.1 % of peak memory, but eval loss is higher by 0.02",
        "accept bf16, unconfirmed (goal_met, policy goal)",
        "next: keep_change (keep the change)",
        "by the fixed thresholds of other policies instead of this study's goal: training: tune",
        "! slim: 1 ok, 1 oom",
    ):  # fmt: skip
        assert part in text


def test_what_was_not_measured_is_a_dash_and_never_zero():
    text = to_text(comparison(variant("x", time=400.0, memory=None, eval_loss=None, loss=None)))
    row = next(line for line in text.splitlines() if line.startswith("x "))
    assert row.split() == ["x", "400.00", "5.00", "-", "-", "-", "accept"]


@pytest.mark.parametrize("width", [10, 80, 100, 200, 1000])
def test_the_text_fits_80_to_200_columns_and_cuts_no_number(width):
    made = comparison(
        variant("a name of some length", time=123456.789, memory=654321.12),
        variant("n" * 100, time=1.5, memory=0.5),
    )
    text = comparison_text(made, width=width, colour=False)
    limit = min(max(width, 80), 200)
    assert max(map(len, text.splitlines())) <= limit
    assert "…" not in text
    assert "123457" in text
    assert "654321" in text


def test_small_values_keep_two_digits():
    base = variant("baseline", time=0.0123, memory=None)
    made = decide_study(study("step_time"), [base, variant("f", time=0.0061, memory=None)])
    text = to_text(made)
    assert "0.012 " in text
    assert "0.0061" in text
    assert "50.4 %" in text


def test_names_cannot_style_or_break_the_terminal():
    text = comparison_text(comparison(variant(NASTY), name=NASTY), width=200, colour=False)
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "[red]<b>|a_b`\\x1b[31m\\u202e\\n" in text


def test_colour_is_asked_for_and_never_in_plain_text():
    made = comparison()
    assert "\x1b[" in comparison_text(made, width=100, colour=True)
    assert "\x1b[" not in to_text(made)


def test_a_probe_shows_what_was_measured():
    made = decide_study(study(plan={"probe": True}), [variant("bf16", time=12.5)])
    text = to_text(made)
    assert "12.50" in text
    assert "measure (nothing_to_compare" in text


# --- the run note -------------------------------------------------------------------------------


def test_the_note_begins_with_the_decision_and_holds_table_reason_and_next_action():
    note = run_note(comparison(), {"Study": "http://127.0.0.1:5000/#/x", "UI": "trainperf ui"})
    assert [line.rstrip() for line in note.splitlines()[:3]] == [
        "**accept: bf16**, unconfirmed",
        "[Study](<http://127.0.0.1:5000/#/x>)",
        "`goal_met`, policy `goal`, goal `step_time`. Next: `keep_change`.",
    ]
    assert "50.7 % better" in note
    assert "- UI: `trainperf ui`" in note
    assert "| bf16&nbsp;&nbsp;&nbsp; | 238.00 (saves 244.75, 50.7 %" in note
    assert "instead of this study's goal: training: tune (gain" in note.replace("\\", "")


@pytest.mark.parametrize("how", ["measured", "closed", "imported"])
def test_the_links_stand_in_the_second_row_however_long_the_reason(how: str) -> None:
    """MLflow lays a shade over what follows of a note until it is unfolded."""
    made = comparison(variant("x" * 300, error="e" * 900, changed_variable="v" * 300))
    if how == "closed":
        closed = Closed.model_validate(
            {**made.decision.model_dump(), "label": "final", "text": "long " * 200}
        )
        made = made.model_copy(update={"closed": closed})
    if how == "imported":
        reported = [variant(n, time=t, peak_mem_source="reported") for n, t in TIMES.items()]
        made = decide_study(study("step_time"), reported)
    notes = variant_notes(made, {"study": "#/s"})
    assert set(notes) == {"baseline", *(item.variant for item in made.candidates)}
    for note in (run_note(made, {"study": "#/s", "report": "#/r"}), *notes.values()):
        first, second = note.splitlines()[:2]
        assert len(first) <= 100
        assert second.startswith("[the study](<#/s>)")


def test_a_rejection_says_to_roll_back():
    made = decide_study(study(), [variant("baseline"), variant("slow", time=70.0)])
    assert "Next: `restore_baseline`, roll the change back." in run_note(made)


def test_a_page_of_the_same_mlflow_is_linked_without_its_host_and_nothing_else_is():
    note = run_note(
        comparison(), {"curves": "#/metric?x", "trace": "#/t", "evil": "javascript:alert(1)"}
    )
    assert "[step times of all repeats](<#/metric?x>) · [trace](<#/t>)" in note
    assert "ui.perfetto.dev" in note
    assert "- evil: `javascript:alert(1)`" in note


def test_a_variants_note_says_what_was_decided_about_it_and_its_numbers():
    made = comparison()
    notes = variant_notes(made, {"study": "#/s", "curves": "#/c"})
    assert list(notes) == [*(item.variant for item in made.candidates), "baseline"]
    candidate = notes["bf16"].replace("&nbsp;", "")
    assert candidate.startswith(
        "**accept**, unconfirmed  \n[the study](<#/s>)  \n"
        "`goal_met`, policy `goal`. Next: `keep_change`.  \n"
    )
    assert "| step time ms | 482.75 | 238.00 | saves 244.75, 50.7 % |" in candidate
    assert "Changed: precision; the change was seen to be in effect." in candidate
    assert notes["baseline"].startswith("**Baseline**")
    assert notes["baseline"].splitlines()[1].startswith("[the study](<#/s>)")
    assert "The study decided about bf16: **accept**" in notes["baseline"]


def test_a_variants_note_is_text_within_what_a_tag_holds():
    made = comparison(variant(NASTY, error="<" * 9000, changed_variable=NASTY))
    notes = variant_notes(made, {"study": "#/s"})
    assert all(len(note) <= MAX_NOTE for note in notes.values())
    assert not [note for note in notes.values() if "<b>" in note or "\x1b" in note]


def test_names_in_the_note_are_text_not_markdown_or_html():
    note = run_note(comparison(variant(NASTY)))
    assert "<b>" not in note
    assert "\x1b" not in note
    assert "https://evil" not in note
    row = next(line for line in note.splitlines() if line.startswith("| \\[red"))
    assert row.replace("\\|", "").count("|") == 8


def test_a_note_stays_within_what_a_tag_holds_and_keeps_the_best_candidate():
    many = [variant(f"{'*' * 240}{index:03}", time=400.0, error="<" * 5000) for index in range(49)]
    note = run_note(comparison(*many), {"UI": "x" * 300})
    assert len(note) <= MAX_NOTE
    assert note.startswith("**accept: bf16**")
    assert "| bf16&nbsp;&nbsp;&nbsp; | 238.00" in note
    assert "comparison.json" in note


def test_commands_with_backticks_stay_code():
    assert "- UI: `` a`b ``" in run_note(comparison(), {"UI": "a`b"})


@pytest.mark.parametrize(
    ("ms", "percent", "low", "high", "lines"),
    [
        (11.0, 17.0, 13.7, 19.3, ["saves 11.00", "17.0 %", "[13.7, 19.3]"]),
        (-23.0, -36.3, -38.7, -34.0, ["costs 23.00", "36.3 %", "[34.0, 38.7]"]),
        (-0.3, -2.3, -8.3, 2.0, ["costs 0.300", "+2.3 %", "[-2.0, +8.3]"]),
        (0.05, 0.4, -0.7, 2.1, ["saves 0.050", "+0.4 %", "[-0.7, +2.1]"]),
    ],
)
def test_an_interval_is_counted_as_its_word_says(
    ms: float, percent: float, low: float, high: float, lines: list[str]
) -> None:
    delta = {"step_time_ms": ms, "step_time_pct": percent}
    delta |= {"step_time_pct_low": low, "step_time_pct_high": high}
    first, *others = difference_lines(COLUMNS[0], delta)
    assert first.split()[0] == lines[0].split()[0]
    assert others == lines[1:]
