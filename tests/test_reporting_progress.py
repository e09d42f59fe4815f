from __future__ import annotations

import io
import threading
from types import SimpleNamespace

import pytest
import report_materials

from trainperf_mlflow.api import measuring
from trainperf_mlflow.plan import Plan
from trainperf_mlflow.reporting.progress import Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Closed(io.StringIO):
    def write(self, text: str) -> int:
        raise BrokenPipeError

    def flush(self) -> None:
        raise BrokenPipeError


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def terminal(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    return Terminal()


def test_elsewhere_than_on_a_terminal_each_repeat_is_one_plain_line():
    stream, clock = io.StringIO(), Clock()
    with Progress(4, stream, clock=clock) as progress:
        progress.running("baseline", 0, 2)
        clock.now = 10.0
        progress.advance("baseline", 0, 2, "ok", "50.1 ms")
        clock.now = 20.0
        progress.advance("bf\x1b[16", 0, 2, "oom")
        progress.say("the store does not answer")
    assert stream.getvalue().splitlines() == [
        "[1/4] baseline, round 1 of 2: ok, 50.1 ms, about 30 s left",
        "[2/4] bf\\x1b[16, round 1 of 2: oom, about 20 s left",
        "the store does not answer",
    ]


def test_on_a_terminal_a_bar_names_variant_round_and_time_left(terminal):
    clock = Clock()
    with Progress(4, terminal, clock=clock) as progress:
        progress.running("baseline", 0, 2)
        clock.now = 60.0
        progress.advance("[red]bf16", 1, 2, "ok")
    text = terminal.getvalue()
    assert "baseline, round 1 of 2" in text
    assert "1/4" in text
    assert "[red]bf16, round 2 of 2: ok, about 3 min left" in text


def test_drawing_needs_no_thread_that_could_disturb_the_timed_steps(terminal):
    before = threading.active_count()
    with Progress(2, terminal) as progress:
        progress.advance("baseline", 0, 1, "ok")
        assert threading.active_count() == before


@pytest.mark.parametrize("kind", [Closed, type("Both", (Closed, Terminal), {})])
def test_a_closed_stream_does_not_end_the_study(kind, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    with Progress(2, kind()) as progress:
        progress.running("baseline", 0, 1)
        progress.advance("baseline", 0, 1, "ok")
        progress.say("still here")
        progress.advance("bf16", 0, 1, "ok")


def test_finishing_twice_is_fine():
    progress = Progress(1, io.StringIO())
    progress.start()
    progress.finish()
    progress.finish()


@pytest.mark.parametrize(
    ("rounds", "told"),
    [
        (3, ["12 pairs: decided, stops"]),
        (1, ["12 pairs: undecided, goes on", "16 pairs: undecided, goes on"]),
    ],
)
def test_a_look_tells_whether_the_study_goes_on(terminal, monkeypatch, rounds, told):
    plan = Plan(candidates=["bf16", "checkpoint"], max_time=60.0)
    measured = report_materials.values(repeats=rounds)

    class Recorder:
        study = report_materials.study()

        def values(self):
            return measured

        def record_blocks(self):
            pass

    def conducted(job, worker, announce, *, enough):
        any(map(enough, range(1, 5)))
        return iter(())

    monkeypatch.setattr(measuring, "conduct", conducted)
    plain = io.StringIO()
    for stream in (terminal, plain):
        with Progress(8, stream) as progress:
            launcher = SimpleNamespace(worker=None)
            measuring._run(plan, None, Recorder(), launcher, progress, None)
    ends = [line for line in told if line.endswith("stops")]
    for stream, wanted in ((terminal, told), (plain, ends)):
        assert [line for line in told if line in stream.getvalue()] == wanted
