"""The benchmark of decisions works: peers' rules, made streams, tables, and a short recording.

No rate of a live recording is checked: that is what the benchmark is run for.
"""

from __future__ import annotations

import math
import re
import shlex
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from scipy import stats

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "scripts"))

import bench_decisions  # noqa: E402
from decisions_bench import peers, recording, scoring, streams, tables  # noqa: E402
from decisions_bench.neighbour import neighbour  # noqa: E402
from decisions_bench.streams import Sides, Stream, Study  # noqa: E402

from trainperf_mlflow.measurement import pace  # noqa: E402

LOOP = (100, 100, 102, 110)


def made_stream(
    seed: int,
    condition: str = "quiet",
    work: tuple[int, ...] = (100, 100),
    rounds: int = 6,
    steps: int = 10,
    drift: float = 0.0,
    waits: float = 0.0,
) -> Stream:
    """Step times with noise by process, block and step, that grow by ``drift`` over the stream."""
    chance = np.random.default_rng(seed)
    blocks = (rounds, 4, len(work))
    started = 1e9 + np.arange(math.prod(blocks), dtype=float).reshape(blocks)
    # Within a set, any order.
    started = chance.permuted(started, axis=-1)
    log = chance.normal(0, 0.002, (rounds, 1, len(work)))
    log = log + chance.normal(0, 0.004, blocks) + drift * (started - 1e9) / math.prod(blocks)
    steps_ms = np.exp(log[..., None] + chance.normal(0, 0.01, (*blocks, steps)))
    steps_ms *= 50 * np.array(work)[:, None] / work[0]
    wait_ms = steps_ms * waits * (chance.random(steps_ms.shape) < 0.2)
    wall = steps_ms + wait_ms
    about: dict[str, Any] = {
        **{"condition": condition, "workload": "made", "isolation": "resident"},
        **{"work": list(work), "neighbour_cores": None, "busy_cores": 1.0, "cores": 2},
        **{"cpu": "a made one", "recorded_at": "never", "seconds": 1, "measured_again": 0},
    }
    reference = np.full((*blocks, 2), 0.3)
    return Stream(about, wall, wait_ms, wall.sum(-1), steps_ms.sum(-1), started, reference)


def sides(before: Any, after: Any) -> Sides:
    before, after = np.asarray(before, float), np.asarray(after, float)
    return Sides(before, after, before, after)


def normal(mean: float, spread: float = 1.0, count: int = 60, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).normal(mean, spread, count)


# --- peers' rules ------------------------------------------------------------------------------


def judge(name: str, studied: Sides) -> str:
    return str(next(rule for rule in peers.rules() if rule.name == name).judge(studied))


@pytest.mark.parametrize(
    ("name", "at", "beyond", "verdict"),
    [
        ("pytest-benchmark, mean:5%", 104.99, 105.01, "slower"),
        ("torchbench, 7 %", 106.99, 107.01, "slower"),
        ("torchbench, 7 %", 93.01, 92.99, "faster"),
    ],
)
def test_a_rule_with_a_fixed_threshold_keeps_it(
    name: str, at: float, beyond: float, verdict: str
) -> None:
    before = [90.0, 100.0, 110.0]
    shifted = [[value / 100 * after for value in before] for after in (at, beyond)]
    assert [judge(name, sides(before, after)) for after in shifted] == ["same", verdict]


def test_the_regression_check_of_pytest_benchmark_reports_no_gain() -> None:
    assert judge("pytest-benchmark, mean:5%", sides([100.0], [50.0])) == "same"


@pytest.mark.parametrize("shift", [0.2, 0.6, -0.6, 1.0, -1.0])
def test_the_t_tests_agree_with_scipy(shift: float) -> None:
    studied = sides(normal(50, 1.0), normal(50 + shift, 2.5, seed=2))
    direction = peers.direction(studied.after.mean() / studied.before.mean())
    for name, equal_var in (("pyperf", True), ("hyperfine, Welch script", False)):
        p = stats.ttest_ind(studied.before, studied.after, equal_var=equal_var).pvalue
        assert abs(p - 0.05) > 0.005
        assert judge(name, studied) == (direction if p < 0.05 else "same")


@pytest.mark.parametrize("shift", [0.0, 0.3, 1.0, -1.0])
def test_mann_whitney_agrees_with_scipy_and_asv_asks_for_a_factor_as_well(shift: float) -> None:
    studied = sides(normal(50), normal(50 + shift, seed=2))
    p = stats.mannwhitneyu(studied.before, studied.after).pvalue
    wanted = ("slower" if shift > 0 else "faster") if p < 0.002 else "same"
    assert judge("Mann-Whitney per step", studied) == wanted
    assert judge("asv, Mann-Whitney alone", studied) == wanted
    assert judge("asv, default", studied) == "same"
    assert judge("asv, default", sides(studied.before, studied.before * 1.11)) == "slower"
    assert judge("asv, default", sides(studied.before, studied.before / 1.11)) == "faster"


@pytest.mark.parametrize(
    ("ratio", "spread", "verdict"),
    [(1.03, 0.01, "slower"), (0.97, 0.01, "faster"), (1.005, 0.002, "same"), (1.03, 0.3, "same")],
)
def test_criterion_asks_for_significance_and_for_more_than_its_noise(
    ratio: float, spread: float, verdict: str
) -> None:
    studied = sides(normal(1, spread), normal(1, spread, seed=2) * ratio)
    assert judge("criterion", studied) == verdict
    # Half a percent is significant here, and still no change.
    if spread == 0.002:
        assert stats.ttest_ind(studied.before, studied.after).pvalue < 1e-6


def test_the_source_calls_any_lower_mean_a_gain_and_never_slower() -> None:
    name = "the source, 3 means"
    assert judge(name, sides([50.0] * 6, [49.998] * 6)) == "faster"
    assert judge(name, sides([50.0] * 6, [50.0] * 6)) == "same"
    assert judge(name, sides([50.0] * 6, [60.0] * 6)) == "same"


# --- studies -----------------------------------------------------------------------------------


def counted_stream() -> Stream:
    """Each step is as long as its block's number in time; the second variant comes first."""
    blocks = np.arange(2 * 4 * 2, dtype=float).reshape(2, 4, 2)[:, :, ::-1]
    steps = np.repeat(blocks[..., None] + 1, 2, axis=-1)
    stream = made_stream(1, rounds=2, steps=2)
    return stream._replace(step_ms=steps, wait_ms=steps * 0.25, started_at=blocks)


def test_the_same_blocks_are_given_to_both_sides_as_the_order_says() -> None:
    study = Study(counted_stream(), 0, 2, 0, 1)
    even, odd = list(range(2, 17, 2)), list(range(1, 17, 2))
    seen = {order: study.sides(order) for order in ("pairs", "sequence", "abba")}
    assert seen["pairs"].before[::2].tolist() == even
    assert seen["pairs"].after[::2].tolist() == odd
    assert sorted(seen["sequence"].before[::2]) == list(range(1, 9))
    assert sorted(seen["sequence"].after[::2]) == list(range(9, 17))
    assert sorted(seen["abba"].before[::2]) == [1, 2, 3, 4, 13, 14, 15, 16]
    assert seen["pairs"].before_net.tolist() == (seen["pairs"].before * 0.75).tolist()


def test_a_swapped_round_changes_roles_and_the_factor_stays_with_the_candidate() -> None:
    study = Study(counted_stream(), 0, 2, 0, 1, factor=2.0, swapped=(False, True))
    seen = study.sides("pairs")
    assert seen.before[::2].tolist() == [2, 4, 6, 8, 9, 11, 13, 15]
    assert seen.after[::2].tolist() == [2, 6, 10, 14, 20, 24, 28, 32]
    read = study.pairs(2)
    assert [pair.candidate.low_ms for pair in read] == seen.after[::2].tolist()
    assert [pair.baseline.net_low_ms for pair in read] == (seen.before[::2] * 0.75).tolist()


def test_blocks_with_processes_of_their_own_are_process_pairs_of_their_own() -> None:
    stream = made_stream(1, rounds=2)
    shared = Study(stream, 0, 2, 0, 1).pairs(2)
    alone = stream._replace(about=stream.about | {"isolation": "process"})
    apart = Study(alone, 0, 2, 0, 1).pairs(2)
    assert len({pair.process_pair for pair in shared}) == 2
    assert len({pair.process_pair for pair in apart}) == 8


def test_a_stream_survives_its_file(tmp_path: Path) -> None:
    stream = made_stream(2, rounds=2)
    streams.save(stream, tmp_path / "new" / "a.npz")
    (back,) = streams.load_all(tmp_path / "new")
    assert back.about == stream.about
    assert np.allclose(back.step_ms, stream.step_ms, rtol=1e-6)
    assert (back.started_at == stream.started_at).all()


def test_studies_begin_everywhere_or_evenly_apart_and_only_where_they_fit() -> None:
    stream = made_stream(3, rounds=12, steps=1)
    assert list(streams.starts(stream, 6, 100)) == [0, 1, 2, 3, 4, 5, 6]
    assert list(streams.starts(stream, 6, 3)) == [0, 3, 6]
    assert list(streams.starts(stream, 13, 3)) == []


# --- scores ------------------------------------------------------------------------------------


def test_a_rates_interval_counts_studies_without_overlap() -> None:
    low, high = scoring.wilson(0.1, 50)
    known = stats.binomtest(5, 50).proportion_ci(method="wilson")
    assert (low, high) == pytest.approx((known.low, known.high))
    stream = made_stream(4, rounds=12, steps=1)
    covered = [scoring.Covered(0, "quiet", index > 0, 3) for index in range(10)]
    seen = scoring.rate(covered, lambda one: one.held, [stream])
    assert seen is not None
    assert (seen.share, seen.studies) == (0.9, 4)
    assert (seen.low, seen.high) == pytest.approx(scoring.wilson(0.9, 4))


def test_ours_is_never_wrong_on_made_noise_and_finds_what_is_there() -> None:
    made = [made_stream(seed, waits=0.5) for seed in range(25)]
    same = [Study(stream, 0, 6, 0, 1) for stream in made]
    verdicts = [scoring.judge_ours(study, 1.0)[0] for study in same]
    assert not {"faster", "slower"} & set(verdicts)
    for factor, truth in ((1.1, "slower"), (1 / 1.1, "faster"), (1.05, "slower")):
        for study in same[:5]:
            assert scoring.judge_ours(study._replace(factor=factor), 1.0) == (truth, 3)


@pytest.fixture(scope="module")
def findings() -> tables.Findings:
    made = [
        made_stream(1, work=LOOP),
        made_stream(2, "one neighbour", drift=0.1, waits=0.6),
    ]
    return bench_decisions.findings_of(made)


def shares(findings: tables.Findings, condition: str, kind: Any, hit: str, order: str = "pairs",
           change: int | None = None) -> dict[str, float]:  # fmt: skip
    found = {}
    for rule in findings.rules:
        own = findings.select(condition, rule, kind, order, change)
        if own:
            found[rule] = sum(getattr(one, hit) for one in own) / len(own)
    return found


def test_all_rules_judge_the_same_studies_and_find_ten_percent(findings: tables.Findings) -> None:
    judged = findings.select("quiet", scoring.OURS, "identical")
    for rule in findings.rules:
        assert len(findings.select("quiet", rule, "identical")) == len(judged) == scoring.DRAWS
    found = shares(findings, "quiet", "real", "right", change=10)
    assert {rule for rule, share in found.items() if share < 1} <= {"asv, default"}
    assert found[scoring.OURS] == 1
    assert shares(findings, "quiet", "real", "wrong")[scoring.OURS] == 0


def test_a_drift_is_a_change_to_whoever_measures_one_after_the_other(
    findings: tables.Findings,
) -> None:
    in_sequence = shares(findings, "one neighbour", "identical", "wrong", "sequence")
    assert in_sequence["Mann-Whitney per step"] == 1
    assert shares(findings, "one neighbour", "identical", "wrong")[scoring.OURS] == 0
    equal = shares(findings, "one neighbour", "identical", "wrong")[scoring.EQUAL]
    assert equal == 0


def test_the_threshold_for_equal_alarms_lets_no_more_through() -> None:
    p_values = [0.5, 0.01, 0.2, 0.001]
    for share in (0.0, 0.25, 0.5, 1.0):
        threshold = scoring.threshold_for(p_values, share)
        assert sum(p < threshold for p in p_values) / 4 <= share


def test_the_interval_of_made_streams_is_counted_against_the_true_work(
    findings: tables.Findings,
) -> None:
    # Four windows; identical ones with each draw of roles, and two with more work.
    assert len(findings.covered) == 4 * (scoring.DRAWS + 2) + 4 * scoring.DRAWS
    assert np.mean([one.held for one in findings.covered]) > 0.9


def test_the_tables_name_each_rule_and_fit_between_the_marks_of_the_page(
    findings: tables.Findings,
) -> None:
    text = tables.markdown(findings)
    for rule in findings.rules:
        assert text.count(f"| {rule} |") >= 2
    for table in re.findall(r"(?:^\|.*\n)+", text + "\n", re.M):
        assert len({line.count("|") for line in table.splitlines()}) == 1
    assert "% found within 16 pairs" in text
    page = bench_decisions.PAGE.read_text("utf-8")
    once = bench_decisions.put_between(page, text)
    assert text in once
    assert bench_decisions.put_between(once, text) == once
    with pytest.raises(ValueError, match="lacks"):
        bench_decisions.put_between("no marks", text)


def test_recordings_are_judged_printed_and_put_into_the_docs(
    findings: tables.Findings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for index, stream in enumerate(findings.streams):
        streams.save(stream, tmp_path / f"{index}.npz")
    seen: list[str] = []

    def judged(found: list[Stream]) -> tables.Findings:
        seen.extend(stream.about["condition"] for stream in found)
        return findings

    page, picture = tmp_path / "page.md", tmp_path / "picture.png"
    page.write_text(f"# A page\n\n{bench_decisions.BEGIN}\n{bench_decisions.END}\n\nThe end\n")
    monkeypatch.setattr(bench_decisions, "findings_of", judged)
    monkeypatch.setattr(bench_decisions, "PAGE", page)
    monkeypatch.setattr(bench_decisions, "PICTURE", picture)
    words = ["bench_decisions.py", "--score", "--docs", "--streams", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", words)
    bench_decisions.main()
    assert seen == ["quiet", "one neighbour"]
    text = page.read_text()
    assert tables.markdown(findings) in text
    assert "(picture.png)" in text
    assert text.endswith("The end\n")
    assert tables.markdown(findings) in capsys.readouterr().out
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert picture.stat().st_size < 300_000


def test_a_folder_without_recordings_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["bench_decisions.py", "--score", "--streams", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", words)
    with pytest.raises(SystemExit, match="no recordings"):
        bench_decisions.main()


def test_the_commands_of_the_page_are_the_scripts() -> None:
    page = bench_decisions.PAGE.read_text("utf-8")
    shown = re.findall(r"^\.venv/bin/python (scripts/\S+)(.*)$", page, re.M)
    assert len(shown) == 2
    for script, words in shown:
        assert (ROOT / script).is_file()
        bench_decisions.arguments(shlex.split(words))


# --- recording ---------------------------------------------------------------------------------


def test_a_neighbour_uses_a_core_until_it_is_ended() -> None:
    with neighbour("always") as cores:
        end = time.monotonic() + 30
        while cores() == 0 and time.monotonic() < end:
            time.sleep(0.05)
        assert cores() > 0
    with pytest.raises(psutil.NoSuchProcess):
        cores()


def test_a_recording_holds_every_block_in_the_order_of_its_measurement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = {"multiplications": 1}
    tiny = recording.Workload(
        "matrix loop", "decisions_bench.matrix:matrix_loop", ((100, config), (100, config))
    )
    monkeypatch.setattr(recording, "workload", lambda name: tiny)
    monkeypatch.setattr(recording, "WARMUP_STEPS", 2)
    monkeypatch.setattr(pace, "steps_per_block", lambda times: 5)
    setup = recording.Setup("quiet", "matrix loop", "resident", (), 1.0)
    stream = recording.record(setup, 0.0, 1, note=lambda text: None)
    assert stream.step_ms.shape == stream.wait_ms.shape == (1, 4, 2, 5)
    assert (stream.step_ms > 0).all()
    assert (stream.block_ms >= stream.step_ms.sum(-1) * 0.999).all()
    # Blocks of a set are neighbours in time.
    by_set = stream.started_at.reshape(-1, 2)
    assert (by_set[1:].min(1) >= by_set[:-1].max(1)).all()
    assert stream.about["work"] == [100, 100]
    streams.save(stream, tmp_path / "a.npz")
    assert streams.load(tmp_path / "a.npz").about == stream.about
