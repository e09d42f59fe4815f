"""Disturbed pairs are measured again, in an exact order and not too often."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from test_measurement_conductor import ScriptedWorker, Stage, job

from trainperf_mlflow.measurement import worker
from trainperf_mlflow.measurement.conductor import conduct
from trainperf_mlflow.results.record import Status
from trainperf_mlflow.results.repeats import Block, Repeat, Watch


class Disturbed(Stage):
    """A machine on which some measurements of a variant's block are disturbed."""

    def __init__(self, when: Callable[[str, int, int], bool]) -> None:
        super().__init__()
        self.when = when  # of variant, block, and how often it was measured before
        self.measured: Counter[tuple[str, int, int]] = Counter()

    def start(self) -> ScriptedWorker:
        super().start()
        return Waiting(self)


class Waiting(ScriptedWorker):
    stage: Disturbed

    def ask(self, request: str, timeout: float | None = None, **arguments: Any) -> Any:
        answer = super().ask(request, timeout, **arguments)
        if not isinstance(answer, Block):
            return answer
        key = (self.name, self.round, answer.index)
        before = self.stage.measured[key]
        self.stage.measured[key] += 1
        waited = 10.0 if self.stage.when(self.name, answer.index, before) else 0.0
        return answer.model_copy(update={"run_delay_ms": waited})


def again(repeats: list[Repeat]) -> list[list[int]]:
    return [[block.again for block in repeat.blocks] for repeat in repeats]


def test_a_disturbed_pair_is_measured_again_at_once_in_the_same_order() -> None:
    stage = Disturbed(lambda name, index, before: (name, index, before) == ("bf16", 1, 0))
    repeats = list(conduct(job(repeats=1, blocks=3, isolation="resident"), stage.start))
    assert stage.log == [
        "build bf16", "build baseline",
        "warmup bf16", "warmup baseline",
        "block baseline", "block bf16",
        "block bf16", "block baseline",
        "block bf16", "block baseline",
        "block baseline", "block bf16",
        "finish bf16", "end bf16", "finish baseline", "end baseline",
    ]  # fmt: skip
    # Both variants have trained as many steps, and each pair is there once.
    assert again(repeats) == [[0, 1, 0], [0, 1, 0]]
    assert [block.run_delay_ms for block in repeats[0].blocks] == [0.0, 0.0, 0.0]


class SlowCore(Waiting):
    """The first block of a variant is on a core that is slower than usual."""

    def ask(self, request: str, timeout: float | None = None, **arguments: Any) -> Any:
        answer = super().ask(request, timeout, **arguments)
        if not isinstance(answer, Block):
            return answer
        slow = answer.run_delay_ms == 10.0
        watch = Watch(reference_ms=(0.3, 0.4 if slow else 0.3))
        return answer.model_copy(update={"run_delay_ms": 0.0, "watch": watch})


def test_a_slow_core_is_waited_for_before_the_pair_is_measured_again() -> None:
    stage = Disturbed(lambda name, index, before: (name, index, before) == ("bf16", 1, 0))
    stage.start = lambda: SlowCore(stage)  # type: ignore[method-assign]
    repeats = list(conduct(job(repeats=1, blocks=2, isolation="resident"), stage.start))
    assert stage.log[8:11] == ["calm bf16", "block bf16", "block baseline"]
    assert again(repeats) == [[0, 1], [0, 1]]


@pytest.mark.parametrize(
    ("times", "at_most_s", "tries"),
    [([0.3], 3.0, 1), ([0.5, 0.4, 0.34, 0.3], 3.0, 3), ([0.5] * 100, 3.0, 60)],
)
def test_a_worker_waits_until_the_core_is_as_fast_as_usual_but_not_for_long(
    times: list[float], at_most_s: float, tries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[float] = []
    clock = [0.0]

    def reference() -> float:
        taken.append(times[len(taken)])
        return taken[-1]

    def sleep(seconds: float) -> None:
        clock[0] += seconds

    monkeypatch.setattr(worker, "reference_ms", reference)
    monkeypatch.setattr(worker.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(worker.time, "sleep", sleep)
    waited = worker.Repeat().calm(0.3, at_most_s)
    assert len(taken) == pytest.approx(tries, abs=1)
    assert waited == pytest.approx((len(taken) - (tries < 60)) * worker.CALM_INTERVAL_S)


def test_a_disturbed_block_with_a_process_of_its_own_gets_a_fresh_one_before_the_next() -> None:
    stage = Disturbed(lambda name, index, before: name == "bf16" and before == 0)
    repeats = list(conduct(job(repeats=1, blocks=2), stage.start))
    once = ("build {}", "warmup {}", "block {}")
    assert stage.log == [
        line.format(name)
        for name, *end in (
            ("bf16", "end {}"), ("bf16", "end {}"), ("baseline", "end {}"),
            ("bf16", "end {}"), ("bf16", "finish {}", "end {}"),
            ("baseline", "finish {}", "end {}"),
        )
        for line in (*once, *end)
    ]  # fmt: skip
    assert again(repeats) == [[1, 1], [0, 0]]
    assert {repeat.status for repeat in repeats} == {Status.OK}
    assert [block.process for block in repeats[0].blocks] == [1, 3]


def test_a_pair_that_stays_disturbed_is_kept_after_two_more_tries() -> None:
    stage = Disturbed(lambda name, index, before: index == 0)
    repeats = list(conduct(job(repeats=1, blocks=4, isolation="resident"), stage.start))
    assert again(repeats) == [[2, 0, 0, 0]] * 2
    assert all(repeat.blocks[0].run_delay_ms == 10.0 for repeat in repeats)


@pytest.mark.parametrize("isolation", ["resident", "process"])
def test_a_study_that_is_always_disturbed_ends_and_has_all_its_blocks(isolation: str) -> None:
    stage = Disturbed(lambda name, index, before: True)
    repeats = list(conduct(job(repeats=3, blocks=4, isolation=isolation), stage.start))
    assert [len(repeat.blocks) for repeat in repeats] == [4] * 6
    # 24 blocks are planned, as many may be measured again.
    assert sum(stage.measured.values()) == 24 + 24


def test_a_worker_that_dies_when_it_is_measured_again_keeps_its_blocks() -> None:
    from trainperf_mlflow.measurement.launcher import WorkerError

    class Dying(Waiting):
        def ask(self, request: str, timeout: float | None = None, **arguments: Any) -> Any:
            if request == "block" and self.stage.measured[self.name, self.round, 0]:
                raise WorkerError(Status.OOM, "no memory")
            return super().ask(request, timeout, **arguments)

    stage = Disturbed(lambda name, index, before: True)
    stage.start = lambda: Dying(stage)  # type: ignore[method-assign]
    repeats = list(conduct(job(repeats=1, blocks=1, isolation="resident"), stage.start))
    assert [(r.status, len(r.blocks)) for r in repeats] == [(Status.OOM, 1)] * 2
