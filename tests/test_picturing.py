"""Pictures reach the study's run, also through an outage, and never fail what was measured."""

from __future__ import annotations

from pathlib import Path

import made_pictures as made
import made_studies
import pytest
import report_materials
from made_traces import call, document, kernel, mark, operator, write_trace
from recorded_studies import a_comparison, a_repeat, a_store, a_study, clean_surroundings

from trainperf_mlflow.analysis.traces_timeline import typical_step
from trainperf_mlflow.api import picturing
from trainperf_mlflow.decisions.study import decide_study
from trainperf_mlflow.errors import Interrupted
from trainperf_mlflow.tracking.pictures import send_pictures
from trainperf_mlflow.tracking.recorder import Recorder
from trainperf_mlflow.tracking.recovery import recover
from trainperf_mlflow.tracking.store import Store

PNG = b"\x89PNG a picture"


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    clean_surroundings(monkeypatch, tmp_path)
    return a_store(tmp_path)


def plots(store: Store, run_id: str) -> set[str]:
    return {item.path for item in store.client.list_artifacts(run_id, "plots")}


def drawn(warnings: list[str]) -> picturing.Pictures:
    values = [made_studies.variant(name) for name in made.NAMES]
    study = made_studies.study(variants=made.variants())
    comparison = decide_study(
        study.model_copy(
            update={
                "thresholds": {
                    "min_time_delta_ms": 10.0,
                    "min_memory_delta_mb": 512.0,
                    "max_eval_loss_delta": 0.05,
                }
            }
        ),
        values,
    )
    return picturing.measured_pictures(study, values, comparison, made.repeats(), warnings.append)


def test_a_measured_study_has_four_pictures_and_one_that_fails_is_a_warning(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    warnings: list[str] = []
    assert set(drawn(warnings)) == {
        f"plots/{name}.png" for name in ("steps", "loss", "ratios", "time_memory")
    }
    assert warnings == []

    def fail(*given: object) -> None:
        raise ZeroDivisionError("no such thing")

    monkeypatch.setattr("trainperf_mlflow.reporting.pictures.steps.figure_steps", fail)
    monkeypatch.setattr("trainperf_mlflow.reporting.pictures.loss.figure_loss", lambda *given: None)
    monkeypatch.setattr(
        "trainperf_mlflow.reporting.pictures.ratios.figure_ratios", lambda *given: None
    )
    assert set(drawn(warnings)) == {"plots/time_memory.png"}
    assert warnings == ["plots/steps.png could not be drawn (ZeroDivisionError: no such thing)"]


def test_an_interrupt_while_drawing_is_an_interrupt() -> None:
    def interrupt() -> None:
        raise Interrupted(2)

    with pytest.raises(Interrupted):
        picturing._drawn({"steps": interrupt}, print)


def test_phases_without_peaks_of_the_device_have_no_roofline() -> None:
    attempts = [made.attempt(name, memory_over_step=made.memory(count=20)) for name in made.NAMES]
    summaries = [{"variant": name, "roofline": [], "peaks": None} for name in made.NAMES]
    study = made_studies.study(variants=made.variants())
    pictures = picturing.phase_pictures(study, attempts, summaries, pytest.fail)
    assert set(pictures) == {"plots/phases.png", "plots/memory.png"}


def test_pictures_go_to_the_run_and_replace_earlier_ones(store: Store) -> None:
    run_id = store.client.create_run(store.experiment_id).info.run_id
    send_pictures(store, run_id, {})
    send_pictures(store, run_id, {"plots/a.png": PNG, "plots/b.png": PNG})
    send_pictures(store, run_id, {"plots/a.png": PNG + b"2"})
    assert plots(store, run_id) == {"plots/a.png", "plots/b.png"}
    found = Path(store.client.download_artifacts(run_id, "plots/a.png")).read_bytes()
    assert found == PNG + b"2"


def test_pictures_of_a_study_that_ended_during_an_outage_wait_on_disk(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = Recorder.start(store, a_study())
    recorder.record_repeat(a_repeat(recorder.study_id))
    comparison = a_comparison(recorder.study, recorder.values())

    def away(*given: object) -> None:
        raise OSError("the disk of the artifacts is away")

    with monkeypatch.context() as outage:
        outage.setattr("trainperf_mlflow.tracking.recorder.send_pictures", away)
        assert not recorder.finish_study(comparison, "note", {"plots/steps.png": PNG})
    assert recover(recorder.study_id).complete
    assert plots(store, recorder.study_id) == {"plots/steps.png"}


def test_a_store_that_takes_no_pictures_is_a_warning(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    warnings: list[str] = []
    picturing.attach(store, "0" * 32, {"plots/a.png": PNG}, warnings.append)
    (warning,) = warnings
    assert "the results are not affected" in warning


def test_the_traced_step_of_median_length_is_drawn_by_phase_and_device(tmp_path: Path) -> None:
    events = []
    for number, (start, length) in enumerate(((0, 100), (200, 300), (600, 120))):
        half = start + length / 2
        events += [
            mark(f"ProfilerStep#{number}", start, start + length),
            mark("phase.forward", start, half),
            mark("phase.backward", half, start + length - 10),
            operator("aten::mm", start + 5, start + 9),
            call("cudaLaunchKernel", start + 6, start + 8, number + 1),
            kernel("ampere_sgemm", start + 10, start + 30, number + 1),
        ]
    assert document(events)
    step = typical_step(write_trace(tmp_path / "trace.json", events))
    assert step is not None
    assert step.total_ms == pytest.approx(0.12)
    phases = [(span.phase, round(span.end_ms - span.start_ms, 3)) for span in step.host]
    assert phases == [("forward", 0.06), ("backward", 0.05), ("other", 0.01)]
    (work,) = step.device
    assert (work.phase, round(work.start_ms, 3), round(work.end_ms, 3)) == ("forward", 0.01, 0.03)


def test_a_trace_without_marked_steps_has_no_timeline(tmp_path: Path) -> None:
    path = write_trace(tmp_path / "trace.json", [operator("aten::mm", 5, 9)])
    assert typical_step(path) is None
    assert picturing.trace_pictures({"baseline": path}, pytest.fail) == {}


@pytest.mark.parametrize(("rounds", "pairs"), [(3, (12,)), (4, (12, 16)), (7, (12, 16, 24, 28))])
def test_looks_are_those_at_which_the_study_was_looked_at_each_with_what_it_knew(
    rounds: int, pairs: tuple[int, ...]
) -> None:
    asked = report_materials.study(plan={"repeats": 3, "blocks": "auto", "max_time": 60.0})
    values = report_materials.values(repeats=rounds)
    comparison = decide_study(asked, values)
    bf16, _ = picturing._ratios(asked, values, comparison)
    assert tuple(look.pairs for look in bf16.looks) == pairs
    assert (bf16.looks[-1].low, bf16.looks[-1].high) == (bf16.low, bf16.high)
    first = picturing._ratios(asked, report_materials.values(repeats=3), comparison)[0].looks[0]
    assert bf16.looks[0] == first
    once = report_materials.study(plan={"repeats": rounds})
    assert picturing._ratios(once, values, comparison)[0].looks == ()
