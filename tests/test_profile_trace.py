"""A trace holds the marks and the operators, stays within its budget, and agrees with torch."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from trainperf_mlflow.analysis.traces import analyse
from trainperf_mlflow.analysis.traces_summary import phase_times, top_operators
from trainperf_mlflow.attribution import TraceMeasurement
from trainperf_mlflow.measurement.profiling import measure_trace
from trainperf_mlflow.plan import Candidate, Plan
from trainperf_mlflow.workloads.task import CallableTask, Task, build_task, run_step

Traced = dict[str, tuple[TraceMeasurement, list[dict[str, Any]], Path]]
CPU = torch.device("cpu")
STEPS = 2


def tiny_task(*candidate: str) -> Task:
    plan = Plan(
        candidates=tuple(Candidate(name=name) for name in candidate),
        set={"batch_size": 1, "seq_len": 32},
    )
    task = build_task("causal_lm", plan.variants()[-1].config, 1, CPU, 1)
    run_step(task)
    return task


@pytest.fixture(scope="module")
def traced(
    tmp_path_factory: pytest.TempPathFactory,
) -> Traced:
    torch.set_num_threads(1)
    found = {}
    for name in ("baseline", "checkpoint"):
        path = tmp_path_factory.mktemp(name) / "trace.json.gz"
        task = tiny_task(*([name] if name != "baseline" else []))
        measured = measure_trace(task, STEPS, 10, str(path), CPU, compiled=False)
        assert [file.name for file in path.parent.iterdir()] == ["trace.json.gz"]
        with gzip.open(path, "rt") as file:
            found[name] = measured, json.load(file)["traceEvents"], path
    return found


def names_of(events: list[dict[str, Any]], category: str) -> list[str]:
    return [str(event["name"]) for event in events if event.get("cat") == category]


def test_every_traced_step_has_each_phases_mark(traced: Traced) -> None:
    measured, events, _ = traced["baseline"]
    assert measured.active_steps == STEPS
    marks = names_of(events, "user_annotation")
    for phase in ("data", "forward", "backward", "optimizer"):
        assert marks.count(f"phase.{phase}") == STEPS
    assert sum(name.startswith("ProfilerStep#") for name in marks) == STEPS
    assert set(measured.phase_ms) == {"data", "forward", "backward", "optimizer", "other"}
    assert measured.phase_ms["other"] >= 0


def test_a_trace_has_shapes_and_memory_but_no_stacks(traced: Traced) -> None:
    _, events, _ = traced["baseline"]
    products = [event for event in events if event.get("name") == "aten::mm"]
    assert all(event["args"]["Input Dims"] for event in products)
    assert not any("Call stack" in event.get("args", {}) for event in events)
    assert "python_function" not in {event.get("cat") for event in events}
    assert any(event.get("name") == "[memory]" for event in events)


def test_recomputing_shows_as_more_matrix_products_than_without(traced: Traced) -> None:
    plain, checkpointed = (
        {o.name: o.calls for o in top_operators(analyse(path), 1000)}
        for _, _, path in traced.values()
    )
    # Five layers of seven products each are repeated; those with a bias are addmm.
    more = {name: checkpointed[name] - plain[name] for name in ("aten::mm", "aten::addmm")}
    assert more == {"aten::mm": STEPS * 5 * 4, "aten::addmm": STEPS * 5 * 3}


def test_the_trace_and_the_tracker_agree_on_what_checkpointing_saves(traced: Traced) -> None:
    """The allocator's events in the trace, and the tensors' lives in a step of their own."""
    swings = {}
    for name, (_, events, _) in traced.items():
        memory = sorted(
            (event for event in events if event.get("name") == "[memory]"),
            key=lambda event: float(event["ts"]),
        )
        total, course = 0, [0]
        for event in memory:
            total += int(event["args"]["Bytes"])
            course.append(total)
        swings[name] = (max(course) - min(course)) / 2**20
    tracked = {name: measured.peak_mem_mb or 0.0 for name, (measured, _, _) in traced.items()}
    saved_by_tracker = tracked["baseline"] - tracked["checkpoint"]
    assert swings["baseline"] - swings["checkpoint"] == pytest.approx(saved_by_tracker, abs=0.3)


def test_own_times_are_those_that_torch_computes(tmp_path: Path) -> None:
    a = torch.randn(64, 64, requires_grad=True)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        (a @ a).relu().sum().backward()
    averages = {
        event.key: (event.count, event.self_cpu_time_total)
        for event in profiler.key_averages()
        if not event.is_user_annotation
    }
    profiler.export_chrome_trace(str(tmp_path / "trace.json"))
    found = analyse(tmp_path / "trace.json")
    ours = {o.name: (o.calls, o.self_cpu_ms * 1000) for o in top_operators(found, 1000)}
    assert ours.keys() == averages.keys()
    for name, (calls, own_us) in averages.items():
        assert ours[name][0] == calls
        assert ours[name][1] == pytest.approx(own_us, abs=0.5)


def test_device_time_goes_to_the_operator_that_launched_it(tmp_path: Path) -> None:
    def event(cat: str, name: str, ts: int, dur: int, tid: int, link: int) -> dict[str, Any]:
        place = {"ph": "X", "pid": 1, "tid": tid, "ts": ts, "dur": dur}
        return {"cat": cat, "name": name, "args": {"correlation": link}, **place}

    events = [
        event("cpu_op", "aten::linear", 0, 100, 1, -1),
        event("cpu_op", "aten::mm", 10, 80, 1, -1),
        event("cuda_runtime", "cudaLaunchKernel", 20, 30, 1, 2),
        event("cpu_op", "aten::add", 200, 50, 1, -1),
        event("cuda_runtime", "cudaMemcpyAsync", 210, 10, 1, 3),
        event("kernel", "sgemm", 1000, 5000, 7, 2),
        event("gpu_memcpy", "copy", 7000, 40, 7, 3),
        event("kernel", "of nobody here", 8000, 10, 7, 99),
    ]
    (tmp_path / "trace.json").write_text(json.dumps({"traceEvents": events}))
    found = analyse(tmp_path / "trace.json")
    largest = {o.name: (o.self_cpu_ms, o.self_device_ms) for o in top_operators(found, 2)}
    assert largest == {"aten::mm": (0.08, 5.0), "aten::add": (0.05, 0.04)}
    everyone = {o.name: o.self_cpu_ms for o in top_operators(found, 9)}
    assert everyone["aten::linear"] == 0.02
    assert phase_times(found) == {}


def test_a_traces_parts_add_up_to_the_profiled_step(traced: Traced) -> None:
    for name, (measured, _, _) in traced.items():
        step_ms = sum(measured.phase_ms.values())
        assert sum(measured.parts_ms.values()) == pytest.approx(step_ms)
        assert 0 < measured.kinds_ms["matmul"] < step_ms
        assert measured.recompute_ms is not None
        assert (measured.recompute_ms > 0) == (name == "checkpoint")


def test_a_trace_over_its_budget_gets_fewer_steps_and_says_so(tmp_path: Path) -> None:
    found = measure_trace(
        tiny_task(), 3, 3, str(tmp_path / "trace.json.gz"), CPU, False, budget_bytes=1
    )
    assert found.active_steps == 1
    assert "1 of 3 steps" in found.notes[0]
    assert len(found.operators) == 3


def test_a_plain_callable_is_traced_without_marks(tmp_path: Path) -> None:
    weight = torch.zeros(16, requires_grad=True)
    task = CallableTask(lambda: (weight * 2).sum())
    found = measure_trace(task, 1, 5, str(tmp_path / "trace.json.gz"), CPU, False)
    assert found.phase_ms == {}
    assert "no phase marks" in found.notes[0]
    assert "aten::mul" in {operator.name for operator in found.operators}
    assert found.slowdown > 0
