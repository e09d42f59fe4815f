"""What holds a study back, whether its hypothesis holds, where the cost moved, what to try."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from made_studies import study, variant
from report_materials import whole

from trainperf_mlflow.analysis import bottlenecks
from trainperf_mlflow.analysis.assessment import assess
from trainperf_mlflow.analysis.bottlenecks import PAIR_RULES, RULES
from trainperf_mlflow.analysis.explained import Explained
from trainperf_mlflow.analysis.explanation import phase_summary, profile_summary
from trainperf_mlflow.analysis.hypothesis import assess_candidate, trend
from trainperf_mlflow.attribution import Attempt, PhaseMeasurement, TraceMeasurement
from trainperf_mlflow.decisions.study import decide_study
from trainperf_mlflow.reporting.assessment import why_lines
from trainperf_mlflow.reporting.note import run_note
from trainperf_mlflow.reporting.table import to_text
from trainperf_mlflow.results.assessment import Statement
from trainperf_mlflow.results.comparison import Comparison
from trainperf_mlflow.results.record import Status
from trainperf_mlflow.results.study import Variant
from trainperf_mlflow.results.values import VariantValues

# Three repeats that differ by 1 % either way.
WOBBLE = (0.99, 1.0, 1.01)
PHASE_MS = {"data": 1.0, "forward": 30.0, "backward": 60.0, "optimizer": 9.0, "other": 0.0}
PEAK_MB = {"forward": 90.0, "backward": 100.0, "optimizer": 80.0}


def phases(
    name: str = "baseline",
    phase_ms: dict[str, float] = PHASE_MS,
    peak_mb: dict[str, float] = PEAK_MB,
    wobble: tuple[float, ...] = WOBBLE,
    samples: float = 2.0,
    environment: dict[str, Any] | None = None,
    **measured: Any,
) -> dict[str, Any]:
    """The summary of one attempt per factor in ``wobble``."""
    attempts = [
        Attempt(
            variant=name,
            index=index,
            status=Status.OK,
            samples_per_step=samples,
            environment=environment or {},
            phases=PhaseMeasurement(
                step_ms=(sum(phase_ms.values()) * factor,),
                phase_ms={phase: (ms * factor,) for phase, ms in phase_ms.items()},
                peak_mem_mb=peak_mb,
                peak_mem_source="tensor_tracker",
                **measured,
            ),
        )
        for index, factor in enumerate(wobble)
    ]
    return phase_summary("s", Variant(name=name, role="candidate", config={}), attempts)


def trace(parts_ms: dict[str, float], **fields: Any) -> dict[str, Any]:
    measured = TraceMeasurement(
        active_steps=1,
        step_ms=100.0,
        plain_step_ms=90.0,
        activities=("CPU",),
        trace_bytes=1,
        operators=(),
        phase_ms={},
        parts_ms=parts_ms,
        **fields,
    )
    return profile_summary(
        "s", Attempt(variant="baseline", index=0, status=Status.OK, trace=measured)
    )


def explained(
    name: str = "baseline",
    *,
    seen: dict[str, Any] | None = None,
    traced: dict[str, Any] | None = None,
    **values: Any,
) -> Explained:
    return Explained(variant(name, **values), seen or {}, traced or {})


def found(code: str, one: Explained, baseline: Explained | None = None) -> Statement | None:
    made = [rule(one) for rule in RULES]
    made += [rule(baseline, one) for rule in PAIR_RULES] if baseline else []
    return next((each for each in made if each is not None and each.code == code), None)


# --- rules: both sides of each threshold -------------------------------------------------------


def shifted(**ms: float) -> dict[str, float]:
    return {**dict.fromkeys(PHASE_MS, 0.0), **ms}


def on_device(busy: float, **idle: float) -> dict[str, float]:
    rest = dict.fromkeys(
        ("exposed_communication", "exposed_copy", "data_wait", "synchronisation", "launch_bound"),
        0.0,
    )
    return {"compute": busy, **rest, **idle}


@pytest.mark.parametrize(("data", "told"), [(5.0, False), (5.1, True)])
def test_data_wait_is_told_above_five_percent_of_a_step(data: float, told: bool) -> None:
    seen = phases(phase_ms=shifted(data=data, backward=100.0 - data))
    statement = found("data_wait", explained(seen=seen))
    assert (statement is not None) is told
    if statement:
        assert statement.evidence == "phases/phases.json"
        assert statement.numbers["share"] == pytest.approx(0.051)
        assert statement.threshold == 0.05
        assert statement.suggestion
        assert statement.suggestion.win == pytest.approx(0.051)


def test_on_a_device_only_the_data_wait_that_no_work_hides_counts() -> None:
    seen = phases(phase_ms=shifted(data=50.0, backward=50.0))
    hidden = trace(on_device(97.0, data_wait=3.0))
    assert found("data_wait", explained(seen=seen, traced=hidden)) is None
    statement = found("data_wait", explained(seen=seen, traced=trace(on_device(90, data_wait=10))))
    assert statement
    assert statement.evidence == "profile/summary.json"


@pytest.mark.parametrize("code", ["exposed_communication", "exposed_copy"])
@pytest.mark.parametrize(("ms", "told"), [(10.0, False), (10.1, True)])
def test_exposed_transfers_are_told_above_ten_percent(code: str, ms: float, told: bool) -> None:
    one = explained(traced=trace(on_device(100.0 - ms, **{code: ms})))
    assert (found(code, one) is not None) is told


@pytest.mark.parametrize(("busy", "told"), [(50.0, False), (49.9, True)])
def test_an_idle_device_is_told_with_the_cause_of_most_of_it(busy: float, told: bool) -> None:
    parts = on_device(busy, launch_bound=40.0, synchronisation=60.0 - busy)
    statement = found("device_idle", explained(traced=trace(parts)))
    assert (statement is not None) is told
    if statement:
        assert "launch bound" in statement.text
        assert statement.suggestion
        assert statement.suggestion.win == pytest.approx(0.4)
        assert statement.suggestion.setting == "compile"


def test_without_a_device_what_lies_outside_of_operators_is_the_idle_time() -> None:
    parts = {"data_wait": 0.0, "compute": 40.0, "exposed_communication": 0.0}
    one = explained(traced=trace({**parts, "outside_operators": 60.0}))
    statement = found("device_idle", one)
    assert statement
    assert statement.text.startswith("operators run in 40 % of a profiled step")


def step_point(**fields: Any) -> dict[str, Any]:
    return {
        "name": "step", "precision": "fp32", "time_ms": 100.0, "flops": 1.0, "moved_bytes": 1.0,
        "intensity": 1.0, "achieved_tflops": 0.5, "attainable_tflops": 1.0, "fraction": 0.5,
        "bound": "memory", **fields,
    }  # fmt: skip


PEAKS = {"device": "a device", "memory_gb_s": 1.0, "source": "made", "evidence_level": "measured"}


@pytest.mark.parametrize(("fast", "told"), [(1.49, False), (1.5, True)])
def test_fp32_products_are_told_where_a_faster_path_is_known(fast: float, told: bool) -> None:
    # 50 ms at the peak, of a step of 100 ms.
    seen = {**phases(), "roofline": [step_point(precision="fp32", flops=1e12 * 0.05)]}
    seen["peaks"] = {**PEAKS, "tflops": {"fp32": 1.0, "tf32": fast, "bf16": 1.2}}
    statement = found("fp32_products", explained(seen=seen))
    assert (statement is not None) is told
    if statement:
        assert statement.suggestion
        assert statement.suggestion.setting == "matmul_precision"
        assert statement.suggestion.win == pytest.approx(0.5 * (1 - 1 / 1.5))
    seen["roofline"] = [step_point(precision="tf32")]
    assert found("fp32_products", explained(seen=seen)) is None
    # A trace knows better.
    traced = trace(on_device(100.0), matmul_precision_ms={"tf32": 30.0, "fp32": 20.0})
    statement = found("fp32_products", explained(seen=seen, traced=traced))
    assert (statement is not None) is told
    if statement:
        assert statement.numbers["share"] == pytest.approx(0.2)


@pytest.mark.parametrize(("fraction", "told"), [(0.2, False), (0.19, True)])
def test_a_step_far_below_its_roofline_is_told(fraction: float, told: bool) -> None:
    one = explained(seen={**phases(), "roofline": [step_point(fraction=fraction)]})
    assert (found("low_roofline", one) is not None) is told


def test_an_optimizer_that_holds_the_peak_says_that_fewer_activations_cannot_lower_it() -> None:
    assert found("optimizer_holds_peak", explained(seen=phases())) is None
    seen = phases(peak_mb={"forward": 60.0, "backward": 75.0, "optimizer": 100.0})
    statement = found("optimizer_holds_peak", explained(seen=seen))
    assert statement
    assert "fewer activations cannot lower it" in statement.text
    assert statement.suggestion
    # Below the next phase's peak nothing more is won.
    assert statement.suggestion.win == pytest.approx(0.25)


def test_activations_that_hold_the_peak_can_be_lowered_to_the_next_phases_peak() -> None:
    memory = {"backward": {"parameters": 30.0, "activations": 70.0}}
    statement = found("activations_hold_peak", explained(seen=phases(memory_mb=memory)))
    assert statement
    assert statement.suggestion
    assert statement.suggestion.win == pytest.approx(0.2)
    other = {"backward": {"parameters": 70.0, "activations": 30.0}}
    assert found("activations_hold_peak", explained(seen=phases(memory_mb=other))) is None


@pytest.mark.parametrize(("reserved", "told"), [(900.0, False), (901.0, True)])
def test_a_device_nearly_full_is_told_where_its_size_is_known(reserved: float, told: bool) -> None:
    metrics = {"peak_reserved_mb": reserved, "peak_mem_mb": 800.0}
    seen = phases(environment={"device_memory_mb": 1000.0})
    one = explained(seen=seen, metrics=metrics)
    assert (found("reserved_near_capacity", one) is not None) is told
    assert found("reserved_near_capacity", explained(seen=phases(), metrics=metrics)) is None


@pytest.mark.parametrize(("backward", "told"), [(2.3, False), (2.31, True)])
def test_recompute_is_told_above_a_tenth_of_the_baselines_products(
    backward: float, told: bool
) -> None:
    baseline = explained(
        seen=phases(matmul_flops={"forward": 1.0, "backward": 2.0}, recomputed_modules=0)
    )
    seen = phases(
        phase_ms={**PHASE_MS, "backward": 80.0},
        matmul_flops={"forward": 1.0, "backward": backward},
        recomputed_modules=5,
    )
    statement = found("recompute", explained("checkpoint", seen=seen), baseline)
    assert (statement is not None) is told
    if statement:
        assert statement.suggestion
        assert statement.suggestion.win == pytest.approx(20 / 120)
        traced = trace(on_device(100.0), recompute_ms=15.0)
        statement = found("recompute", explained("c", seen=seen, traced=traced), baseline)
        assert statement
        assert statement.evidence == "profile/summary.json"
        assert statement.text.endswith("of the baseline's products, 15 % of a step")


def noisy(*times: float) -> VariantValues:
    made = variant(statuses=("ok",) * len(times))
    repeats = [
        repeat.model_copy(update={"metrics": {"step_time_ms": ms}})
        for repeat, ms in zip(made.repeats, times, strict=True)
    ]
    return made.model_copy(update={"repeats": tuple(repeats)})


@pytest.mark.parametrize(("slowest", "told"), [(115.0, False), (116.0, True)])
def test_repeats_of_the_same_code_that_differ_are_noisy_evidence(
    slowest: float, told: bool
) -> None:
    one = Explained(noisy(100.0, slowest))
    assert (found("noisy_repeats", one) is not None) is told


THRESHOLDS = {
    "data_wait": bottlenecks.DATA_WAIT,
    "exposed_communication": bottlenecks.EXPOSED_COMMUNICATION,
    "exposed_copy": bottlenecks.EXPOSED_COPY,
    "device_idle": bottlenecks.DEVICE_BUSY,
    "low_roofline": bottlenecks.LOW_ROOFLINE,
    "reserved_near_capacity": bottlenecks.RESERVED_OF_DEVICE,
    "recompute": bottlenecks.RECOMPUTE,
    "noisy_repeats": bottlenecks.NOISE,
}


@pytest.mark.parametrize("code", [rule.__name__ for rule in (*RULES, *PAIR_RULES)])
def test_the_documentation_has_each_rule_with_its_true_threshold(code: str) -> None:
    text = (Path(__file__).parent.parent / "docs" / "measuring.md").read_text("utf-8")
    row = next(line for line in text.splitlines() if line.startswith(f"| `{code}` |"))
    if code in THRESHOLDS:
        assert f"{THRESHOLDS[code] * 100:.0f} %" in row


# --- the hypothesis ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("after", "shows"),
    [
        ([97.0, 97.5, 97.9], "shrank"),
        ([98.5, 98.6, 98.7], "unclear"),  # apart, but by less than the margin
        ([97.0, 97.5, 99.1], "unclear"),  # more than the margin, but not apart
        ([102.9, 103.0, 103.5], "grew"),
        ([99.5, 100.0, 100.9], "same"),
        ([90.0, 91.0], "unknown"),  # too few
        ([float("nan")] * 3, "unclear"),
    ],
)
def test_a_change_is_one_beyond_the_repeats_spread_and_the_margin(
    after: list[float], shows: str
) -> None:
    assert trend([99.0, 100.0, 100.5], after, 3) == shows


BASELINE = explained(seen=phases())


def judged(hypothesis: str, more: dict[str, float], **fields: Any) -> tuple[str | None, str]:
    candidate = explained("tuned", seen=phases("tuned", {**PHASE_MS, **more}, **fields))
    made = assess_candidate(hypothesis, BASELINE, candidate)
    return made.verdict, made.text


def test_a_phase_that_shrank_and_holds_the_steps_gain_supports_the_hypothesis() -> None:
    verdict, text = judged("backward", {"backward": 40.0, "forward": 29.0})
    assert verdict == "supported"
    assert text == "backward 60 ms -> 40 ms: 95 % of the step's gain of 21 ms"


def test_a_phase_that_grew_or_stayed_refutes_it() -> None:
    assert judged("backward", {"backward": 70.0, "forward": 10.0})[0] == "refuted"
    still = (0.997, 1.0, 1.003)
    steady = explained(seen=phases(wobble=still))
    same = explained("tuned", seen=phases("tuned", {**PHASE_MS, "forward": 10.0}, wobble=still))
    assert assess_candidate("backward", steady, same).text.endswith("it did not shrink")
    assert assess_candidate("backward", steady, same).verdict == "refuted"


@pytest.mark.parametrize(
    ("more", "fields", "why"),
    [
        ({"backward": 59.5}, {}, "within the repeats' spread"),
        ({"backward": 30.0}, {"wobble": (1.0,)}, "fewer than 3"),
        ({"backward": 50.0, "forward": 45.0}, {}, "the whole step did not"),
        ({"backward": 55.0, "forward": 10.0}, {}, "only 20 % of the step's gain"),
    ],
)
def test_what_the_phases_cannot_show_is_not_shown(
    more: dict[str, float], fields: dict[str, Any], why: str
) -> None:
    verdict, text = judged("backward", more, **fields)
    assert verdict == "not_shown"
    assert why in text


def test_without_phases_a_hypothesis_on_time_is_not_shown_and_one_on_memory_is_judged() -> None:
    one = explained("tuned", memory=700.0)
    assert assess_candidate("backward", explained(), one).verdict == "not_shown"
    assert assess_candidate("memory", explained(), one).verdict == "supported"
    assert assess_candidate("memory", explained(), explained("tuned")).verdict == "refuted"
    reported = explained("tuned", memory=700.0, peak_mem_source="reported")
    assert assess_candidate("memory", explained(), reported).verdict == "not_shown"


def test_times_are_compared_for_the_same_samples() -> None:
    doubled = {phase: 2 * ms for phase, ms in PHASE_MS.items()}
    candidate = explained("big", seen=phases("big", {**doubled, "backward": 60.0}, samples=4.0))
    made = assess_candidate("backward", BASELINE, candidate)
    assert made.time["backward"].after == pytest.approx(30.0)
    assert made.verdict == "supported"


def test_where_the_cost_moved_is_the_phase_that_grew_and_what_now_comes_first() -> None:
    seen = phases(
        "checkpoint",
        {**PHASE_MS, "forward": 20.0, "backward": 20.0, "optimizer": 45.0},
        {"forward": 50.0, "backward": 60.0, "optimizer": 80.0},
    )
    made = assess_candidate(None, BASELINE, explained("checkpoint", seen=seen))
    assert made.verdict is None
    assert (made.moved_to, made.relieved) == ("optimizer", "shrank")
    assert made.moved == (
        "optimizer grew by 36 ms; optimizer instead of backward takes the most time; "
        "optimizer instead of backward holds the memory's peak"
    )
    assert {phase: change.trend for phase, change in made.memory.items()} == {
        "forward": "shrank",
        "backward": "shrank",
        "optimizer": "same",
    }
    steady = explained(seen=phases(wobble=(0.997, 1.0, 1.003)))
    still = assess_candidate(None, steady, steady)
    assert (still.moved_to, still.relieved) == (None, "same")
    assert still.moved == "nowhere: no phase grew"
    once = explained(seen=phases(wobble=(1.0,)))
    other = explained("t", seen=phases("t", shifted(forward=90.0, backward=10.0), wobble=(1.0,)))
    few = assess_candidate("forward", once, other)
    assert (few.moved_to, few.moved) == (None, "not known with 1 repeat")
    assert {change.trend for change in few.time.values()} == {"unknown"}
    assert few.text.endswith("fewer than 3 repeats show no change")
    # What is nothing to the step is no place for its cost: data doubles to 2 of 100 ms.
    tiny = assess_candidate(
        None, BASELINE, explained("t", seen=phases("t", {**PHASE_MS, "data": 1.9}))
    )
    assert tiny.time["data"].trend == "grew"
    assert tiny.moved_to is None
    loud = assess_candidate(None, BASELINE, explained("t", seen=phases(wobble=(0.5, 1.0, 1.5))))
    assert loud.moved.startswith("not shown: forward, backward and optimizer changed within")


# --- the whole ---------------------------------------------------------------------------------


def compared(**fields: Any) -> tuple[Comparison, list[VariantValues]]:
    plain = {"checkpoint": False, "num_workers": 0}
    values = [
        variant("baseline", config=plain),
        variant("checkpoint", time=70.0, memory=900.0, config={**plain, "checkpoint": True}),
    ]
    return decide_study(study(**fields), values), values


SEEN = {
    "baseline": phases(
        phase_ms={**PHASE_MS, "data": 30.0},
        memory_mb={"backward": {"activations": 70.0, "parameters": 30.0}},
        matmul_flops={"forward": 1.0, "backward": 2.0},
        recomputed_modules=0,
    ),
    "checkpoint": phases(
        "checkpoint",
        {**PHASE_MS, "data": 30.0, "backward": 90.0},
        {"forward": 50.0, "backward": 60.0, "optimizer": 80.0},
        matmul_flops={"forward": 1.0, "backward": 3.0},
        recomputed_modules=9,
    ),
}


def test_suggestions_are_ranked_by_what_they_could_win_and_leave_out_what_was_tried() -> None:
    comparison, values = compared()
    made = assess(comparison, values, SEEN)
    codes = {(s.code, s.variant) for s in made.statements}
    assert {("data_wait", "baseline"), ("activations_hold_peak", "baseline"),
            ("optimizer_holds_peak", "checkpoint"), ("recompute", "checkpoint"),
            ("peak_moved", "checkpoint")} <= codes  # fmt: skip
    # Data waits for 23 %, the recompute costs 19 % of the candidate's step; checkpoint was tried.
    assert [s.code for s in made.next] == ["data_wait", "recompute"]
    assert made.next[0].win == pytest.approx(30 / 129)


def test_what_serves_the_studys_aim_comes_first() -> None:
    comparison, values = compared(goal="peak_mem", thresholds={"max_cost": 90.0})
    assert comparison.decision.decision == "accept"
    made = assess(comparison, values, SEEN)
    # The accepted candidate is what can be improved now: its optimizer holds the peak.
    assert [s.code for s in made.next] == ["optimizer_holds_peak", "data_wait", "recompute"]
    assert made.next[0].variant == "checkpoint"


def test_what_was_not_looked_at_is_said_with_its_command() -> None:
    comparison, values = compared(hypothesis="backward")
    made = assess(comparison, values)
    assert made.verdict == "not_shown"
    assert made.statements == ()
    assert made.missing == (
        "no phases yet: trainperf phase 01234567",
        "no traces yet: trainperf profile 01234567",
    )
    failed = {"status": "oom", "error": "too large"}
    some = assess(comparison, values, {"baseline": phases(wobble=(1.0,)), "checkpoint": failed})
    assert some.missing[0].startswith("fewer than 3 repeats of the phases of baseline")
    assert some.missing[1] == "no phases of checkpoint: oom, too large"


def test_an_imported_study_is_not_sent_to_commands_that_cannot_run_it() -> None:
    values = [variant("baseline", peak_mem_source="reported"), variant("tuned", memory=900.0)]
    (said,) = assess(decide_study(study(), values), values).missing
    assert "imported" in said


def test_a_probe_has_statements_but_no_verdict() -> None:
    values = [variant("slow")]
    comparison = decide_study(study(plan={"probe": True}, hypothesis="data"), values)
    made = assess(comparison, values, {"slow": phases("slow", shifted(data=50.0, forward=50.0))})
    assert [s.code for s in made.statements] == ["data_wait"]
    assert [s.code for s in made.next] == ["data_wait"]
    assert made.candidates == ()
    assert made.verdict is None


def test_terminal_and_note_say_why_in_a_few_lines_and_json_has_all() -> None:
    comparison, values = compared(hypothesis="backward")
    made = assess(comparison, values, SEEN)
    lines = why_lines(made)
    assert len(lines) <= 5
    assert lines[0].startswith("hypothesis backward: refuted by checkpoint: backward 60 ms -> 90")
    assert lines[1] == "baseline: backward takes the most time and holds the memory's peak"
    assert lines[2].startswith(
        "checkpoint: backward grew (60 -> 90 ms); cost moved: backward grew by 30 ms; optimizer"
    )
    assert lines[3].startswith("try next: prepare batches in other processes")
    explaining = comparison.model_copy(update={"assessment": made})
    assert "\nwhy\n  hypothesis backward: refuted" in to_text(explaining, width=200)
    assert "- Why: hypothesis backward: refuted" in run_note(explaining)
    assert Comparison.from_json(explaining.to_json()) == explaining
    assert explaining.summary()["assessment"]["next"][0]["code"] == "data_wait"
    assert comparison.summary()["assessment"] is None


@pytest.mark.parametrize("goal", ["step_time", None])
def test_what_was_not_looked_at_is_no_reason(goal: str | None) -> None:
    comparison, values = compared(goal=goal)
    unseen = comparison.model_copy(update={"assessment": assess(comparison, values)})
    told = "ot looked at: phases: trainperf phase 01234567; traces: trainperf profile 01234567"
    assert f"\nwhy: nothing is known yet\n  n{told}\n" in to_text(unseen, width=200)
    note = run_note(unseen)
    assert f"\n- N{told}" in note
    assert "Why:" not in note
    seen = comparison.model_copy(update={"assessment": assess(comparison, values, SEEN)})
    assert "\nwhy\n  baseline: backward takes" in to_text(seen, width=200)
    assert "\n- Not looked at: traces: trainperf profile 01234567" in run_note(seen)


@pytest.mark.parametrize("repeats", [1, 2])
def test_what_too_few_repeats_show_is_said_to_be_not_known_in_plain_words(repeats: int) -> None:
    comparison, values = compared()
    few = {
        name: phases(name, found["phase_ms"], wobble=(1.0,) * repeats)
        for name, found in SEEN.items()
    }
    made = assess(comparison, values, few)
    lines = why_lines(made)
    known = f"not known with {repeats} repeat{'s' * (repeats - 1)}"
    assert lines[1].startswith(
        "checkpoint: whether backward changed (60 -> 90 ms) or cost moved: " + known
    )
    note = run_note(comparison.model_copy(update={"assessment": made}))
    assert "\n- Fewer than 3 repeats of the phases of baseline, checkpoint, so" in note


@pytest.mark.parametrize("width", [80, 120])
def test_every_candidate_has_its_verdict_and_one_row_in_the_terminals_width(width: int) -> None:
    material = whole()
    made = material.comparison.assessment
    assert made is not None
    lines = to_text(material.comparison, width).splitlines()
    why = lines[lines.index("why") + 1 : lines.index("", lines.index("why"))]
    assert why[0] == "  hypothesis backward: supported by bf16; refuted by checkpoint"
    for name in ("bf16", "checkpoint"):
        (row,) = [line for line in why if line.startswith(f"  {name}: ")]
        assert row.startswith(f"  {name}: backward 28.3 ms -> ")
    assert max(map(len, why)) <= width
    note = run_note(material.comparison)
    for each in made.candidates:
        assert f"- Why: {each.variant}: backward" in note
