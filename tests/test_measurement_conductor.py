"""How a study is conducted: the order, and what happens when something goes wrong.

The workers are scripted, so nothing waits for a clock and each failure is exact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import pytest

from trainperf_mlflow.errors import Interrupted
from trainperf_mlflow.measurement import pace
from trainperf_mlflow.measurement.conductor import Job, conduct
from trainperf_mlflow.measurement.launcher import WorkerError
from trainperf_mlflow.measurement.protocol import Built, Finished, Warmed
from trainperf_mlflow.measurement.schedule import paired_rounds
from trainperf_mlflow.results.record import Status
from trainperf_mlflow.results.repeats import Block
from trainperf_mlflow.results.study import Variant, Workload

Trouble = dict[tuple[str, int, str], Exception]


class Stage:
    """Starts scripted workers and writes down what they are asked."""

    def __init__(
        self,
        trouble: Trouble | None = None,
        losses: tuple[float, ...] = (2.0, 1.0),
        step_ms: Callable[[str, int], float] = lambda name, step: 10.0,
        memory_mb: tuple[float, float] = (100.0, 1000.0),
    ):
        self.trouble = trouble or {}
        self.step_ms = step_ms
        self.memory_mb = memory_mb
        self.steps: list[tuple[str, str, int]] = []
        self.losses = losses
        self.log: list[str] = []
        self.alive = 0
        self.most_alive = 0
        self.seeds: list[tuple[str, int, int]] = []

    def start(self) -> ScriptedWorker:
        self.alive += 1
        self.most_alive = max(self.most_alive, self.alive)
        return ScriptedWorker(self)


class ScriptedWorker:
    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.name = ""
        self.round = -1
        self.warmed = 0
        self.ended = False

    def ask(self, request: str, timeout: float | None = None, **arguments: Any) -> Any:
        if request == "build":
            self.name = arguments["config"]["name"]
            self.round = arguments["seed"] - arguments["data_seed"]
            self.stage.seeds.append((self.name, arguments["seed"], arguments["data_seed"]))
        self.stage.log.append(f"{request} {self.name}")
        if "steps" in arguments:
            self.stage.steps.append((request, self.name, arguments["steps"]))
        error = self.stage.trouble.get((self.name, self.round, request))
        if error is not None:
            raise error
        return {
            "build": lambda: Built(
                build_s=0.1,
                samples_per_step=2.0,
                tokens_per_step=None,
                quality_checked=True,
                environment={"a": 1},
            ),
            "warmup": lambda: self.warm(arguments["steps"]),
            "calm": lambda: 0.0,
            "block": lambda: Block(
                index=arguments["index"],
                started_at=0.0,
                wall_ms=20.0,
                step_ms=(10.0, 10.0),
                losses=self.stage.losses,
            ),
            "finish": lambda: Finished(
                peak_mem_mb=5.0,
                peak_mem_source="tensor_tracker",
                peak_reserved_mb=None,
                num_alloc_retries=None,
                host_peak_rss_mb=100.0,
                eval_loss=1.5,
                effects=(),
                notes=(),
            ),
        }[request]()

    def warm(self, steps: int) -> Warmed:
        numbers = range(self.warmed + 1, self.warmed + steps + 1)
        self.warmed += steps
        times = [self.stage.step_ms(self.name, number) for number in numbers]
        first = times.pop(0) if numbers and numbers[0] == 1 else None
        held, free = self.stage.memory_mb
        return Warmed(
            first_step_ms=first, steps=steps, step_ms=tuple(times), held_mb=held, free_mb=free
        )

    def __enter__(self) -> ScriptedWorker:
        return self

    def __exit__(self, *exception: Any) -> None:
        if not self.ended:
            self.ended = True
            self.stage.alive -= 1
            self.stage.log.append(f"end {self.name}")


def job(names: tuple[str, ...] = ("baseline", "bf16"), **changes: Any) -> Job:
    variants = tuple(
        Variant(
            name=name,
            role="baseline" if name == "baseline" else "candidate",
            config={"name": name},
        )
        for name in names
    )
    workload = Workload(
        digest="d",
        identity={},
        device="cpu",
        name="w",
        source="s",
        unsupported=changes.pop("unsupported", {}),
    )
    settings: dict[str, Any] = {
        "study_id": "study",
        "task": "t",
        "variants": variants,
        "workload": workload,
        "repeats": 2,
        "blocks": 1,
        "warmup_steps": 1,
        "steps_per_block": 2,
        "seed": 42,
        "isolation": "process",
    }
    return Job(**{**settings, **changes})


def test_resident_processes_take_turns_in_the_exact_order_of_the_seed() -> None:
    stage = Stage()
    list(conduct(job(repeats=1, blocks=3, isolation="resident"), stage.start))
    assert stage.log == [
        "build bf16", "build baseline",
        "warmup bf16", "warmup baseline",
        "block baseline", "block bf16",
        "block bf16", "block baseline",
        "block baseline", "block bf16",
        "finish bf16", "end bf16", "finish baseline", "end baseline",
    ]  # fmt: skip


def test_process_isolation_gives_each_block_its_own_process_in_the_exact_order() -> None:
    stage = Stage()
    repeats = list(conduct(job(repeats=1, blocks=2), stage.start))
    whole = ("build {}", "warmup {}", "block {}")
    assert stage.log == [
        line.format(name)
        for name, *end in (
            ("bf16", "end {}"), ("baseline", "end {}"),
            ("bf16", "finish {}", "end {}"), ("baseline", "finish {}", "end {}"),
        )
        for line in (*whole, *end)
    ]  # fmt: skip
    assert stage.most_alive == 1
    assert [[block.process for block in repeat.blocks] for repeat in repeats] == [[0, 1], [0, 1]]


def test_blocks_follow_the_schedule_round_for_round() -> None:
    stage = Stage()
    names = ("baseline", "bf16", "checkpoint")
    list(conduct(job(names, repeats=3, blocks=4, isolation="resident"), stage.start))
    planned = [
        f"block {name}"
        for one in islice(paired_rounds(names, 4, 42), 3)
        for order in one.blocks
        for name in order
    ]
    assert [line for line in stage.log if line.startswith("block")] == planned


# --- whether processes live side by side ---------------------------------------------------------


@pytest.mark.parametrize(("memory_mb", "most_alive"), [((100.0, 500.0), 3), ((100.0, 300.0), 1)])
def test_auto_keeps_processes_alive_only_where_their_memory_fits(
    memory_mb: tuple[float, float], most_alive: int
) -> None:
    stage = Stage(memory_mb=memory_mb)
    names = ("baseline", "bf16", "checkpoint")
    repeats = list(conduct(job(names, isolation="auto", blocks=2), stage.start))
    assert stage.most_alive == most_alive
    assert [len(repeat.blocks) for repeat in repeats] == [2] * 6
    # The step that showed the memory is a step of warmup: all variants have as many.
    assert {repeat.warmup_steps for repeat in repeats} == {1}


def test_auto_asks_once_and_a_worker_that_never_started_tells_nothing() -> None:
    trouble: Trouble = {("bf16", 0, "build"): WorkerError(Status.FAILED, "no")}
    stage = Stage(trouble)
    repeats = list(conduct(job(isolation="auto", repeats=3), stage.start))
    assert [r.status for r in repeats if r.variant == "baseline"] == [Status.OK] * 3
    assert stage.most_alive == 2


def test_unknown_memory_means_one_process_at_a_time() -> None:
    stage = Stage(memory_mb=(None, None))  # type: ignore[arg-type]
    list(conduct(job(isolation="auto"), stage.start))
    assert stage.most_alive == 1


# --- warmup and the length of a block ------------------------------------------------------------


def slow_start(name: str, step: int) -> float:
    """The candidate needs ten steps until it is as fast as it gets."""
    return 50.0 + (10.0 * max(0, 10 - step) if name == "bf16" else 0.0)


def test_warmup_goes_on_until_all_have_settled_and_all_get_as_many_steps() -> None:
    stage = Stage(step_ms=slow_start)
    open_job = job(warmup_steps=None, steps_per_block=None, isolation="resident")
    repeats = list(conduct(open_job, stage.start))
    (steps,) = {repeat.warmup_steps for repeat in repeats}
    assert 10 <= steps <= 10 + 2 * pace.WINDOW_STEPS
    assert all(repeat.first_step_ms in (140.0, 50.0) for repeat in repeats)
    # Later rounds do as the first one did, in one request.
    assert sorted(asked for asked in stage.steps if asked[0] == "warmup")[-1:] == [
        ("warmup", "bf16", steps)
    ]
    assert ("warmup", "baseline", steps) in stage.steps


def test_the_fastest_variants_block_is_long_enough_and_all_blocks_have_as_many_steps() -> None:
    stage = Stage(step_ms=lambda name, step: 5.0 if name == "bf16" else 60.0)
    list(conduct(job(steps_per_block=None, warmup_steps=3, isolation="resident"), stage.start))
    assert {steps for request, _, steps in stage.steps if request == "block"} == {100}


def test_a_plan_that_fixes_steps_is_obeyed() -> None:
    stage = Stage()
    list(conduct(job(warmup_steps=0, steps_per_block=7, isolation="auto"), stage.start))
    assert {(request, steps) for request, _, steps in stage.steps} == {("warmup", 0), ("block", 7)}


def test_a_warmup_that_never_settles_ends() -> None:
    stage = Stage(step_ms=lambda name, step: 1e3 * 0.5 ** (step / 3))
    repeats = list(conduct(job(warmup_steps=None, repeats=1), stage.start))
    assert all(repeat.status is Status.OK for repeat in repeats)


@pytest.mark.parametrize(
    ("before", "after", "done"),
    [
        ([9.0, 8.0, 7.0], [6.0, 6.0, 6.0], False),
        ([6.0, 6.0, 6.0], [5.8, 5.9, 60.0], True),
        ([6.0, 6.0, 6.0], [9.0, 9.0, 9.0], True),
    ],
)
def test_warmup_has_settled_when_a_window_is_not_faster_than_the_one_before(
    before: list[float], after: list[float], done: bool
) -> None:
    assert pace.settled(before, after) is done


# --- what happens around it ----------------------------------------------------------------------


def test_each_start_is_announced_before_it_happens() -> None:
    stage = Stage()
    list(conduct(job(), stage.start, lambda name, index: stage.log.append(f"start {name} {index}")))
    starts = [stage.log[i + 1] for i, line in enumerate(stage.log) if line.startswith("start")]
    assert len(starts) == 4
    assert all(line.startswith("build") for line in starts)


def test_a_study_ends_as_soon_as_enough_is_known() -> None:
    asked: list[int] = []

    def enough(rounds: int) -> bool:
        asked.append(rounds)
        return rounds == 3

    repeats = list(conduct(job(repeats=8), Stage().start, enough=enough))
    assert asked == [1, 2, 3]
    assert len(repeats) == 6


def test_resident_workers_of_a_round_live_at_once_and_none_outlives_it() -> None:
    stage = Stage()
    repeats = list(conduct(job(isolation="resident", blocks=2), stage.start))
    assert stage.most_alive == 2
    assert stage.alive == 0
    assert [len(repeat.blocks) for repeat in repeats] == [2, 2, 2, 2]


def test_all_variants_of_a_round_share_a_seed_and_the_data_never_change() -> None:
    stage = Stage()
    list(conduct(job(repeats=3), stage.start))
    for name in ("baseline", "bf16"):
        assert [(s, d) for n, s, d in stage.seeds if n == name] == [(42, 42), (43, 42), (44, 42)]


def test_a_repeat_record_carries_what_the_worker_told() -> None:
    repeat = next(conduct(job(), Stage().start))
    assert repeat.status is Status.OK
    assert (repeat.peak_mem_mb, repeat.peak_mem_source) == (5.0, "tensor_tracker")
    assert (repeat.loss, repeat.eval_loss) == (1.0, 1.5)
    assert (repeat.first_step_ms, repeat.warmup_steps, repeat.build_s) == (10.0, 1, 0.1)
    assert repeat.environment == {"a": 1}


@pytest.mark.parametrize("request_name", ["build", "warmup", "block", "finish"])
@pytest.mark.parametrize("status", [Status.OOM, Status.FAILED, Status.TIMEOUT, Status.DIVERGED])
def test_a_candidates_failure_is_its_own_and_the_study_goes_on(
    request_name: str, status: Status
) -> None:
    trouble: Trouble = {("bf16", 0, request_name): WorkerError(status, "because")}
    stage = Stage(trouble)
    repeats = list(conduct(job(), stage.start))
    outcome = {(repeat.variant, repeat.index): repeat.status for repeat in repeats}
    assert outcome == {
        ("baseline", 0): Status.OK,
        ("bf16", 0): status,
        ("baseline", 1): Status.OK,
        ("bf16", 1): Status.OK,
    }
    assert stage.alive == 0
    assert next(r.error for r in repeats if r.status is status) == "because"


def test_blocks_measured_before_a_worker_died_are_kept() -> None:
    trouble: Trouble = {("bf16", 0, "finish"): WorkerError(Status.FAILED, "killed")}
    repeats = list(conduct(job(blocks=3), Stage(trouble).start))
    dead = next(repeat for repeat in repeats if repeat.status is Status.FAILED)
    assert len(dead.blocks) == 3


@pytest.mark.parametrize("request_name", ["build", "warmup", "block", "finish"])
def test_a_failure_of_one_resident_does_not_stop_the_other(request_name: str) -> None:
    trouble: Trouble = {("bf16", 0, request_name): WorkerError(Status.OOM, "full")}
    open_job = job(isolation="resident", repeats=1, blocks=3, warmup_steps=None)
    repeats = list(conduct(open_job, Stage(trouble).start))
    assert len(repeats[-1].blocks) == 3
    assert {repeat.variant: repeat.status for repeat in repeats} == {
        "bf16": Status.OOM,
        "baseline": Status.OK,
    }


@pytest.mark.parametrize("loss", [float("nan"), float("inf"), float("-inf")])
def test_a_loss_that_is_no_number_is_a_divergence_with_its_step(loss: float) -> None:
    repeats = list(conduct(job(repeats=1), Stage(losses=(1.0, loss)).start))
    assert {repeat.status for repeat in repeats} == {Status.DIVERGED}
    assert "measured step 2" in str(repeats[0].error)
    # The block in which it happened stays on record.
    assert all(len(repeat.blocks) == 1 for repeat in repeats)


def test_a_variant_that_the_device_cannot_do_is_told_once_and_never_started() -> None:
    stage = Stage()
    repeats = list(
        conduct(job(("baseline", "tf32"), unsupported={"tf32": "no such cores"}), stage.start)
    )
    unsupported = [repeat for repeat in repeats if repeat.status is Status.UNSUPPORTED]
    assert [(repeat.variant, repeat.error) for repeat in unsupported] == [("tf32", "no such cores")]
    assert [repeat.variant for repeat in repeats if repeat.status is Status.OK] == ["baseline"] * 2
    assert not any("tf32" in line for line in stage.log)


def test_an_unsupported_baseline_ends_the_study_at_once() -> None:
    stage = Stage()
    repeats = list(conduct(job(unsupported={"baseline": "no"}), stage.start))
    assert [repeat.variant for repeat in repeats] == ["baseline"]
    assert stage.log == []


def test_a_baseline_that_fails_twice_ends_the_study() -> None:
    trouble: Trouble = {
        ("baseline", i, "build"): WorkerError(Status.FAILED, "no") for i in range(9)
    }
    repeats = list(conduct(job(repeats=9), Stage(trouble).start))
    assert max(repeat.index for repeat in repeats) == 1


def test_a_baseline_that_fails_once_is_tried_again() -> None:
    trouble: Trouble = {("baseline", 0, "build"): WorkerError(Status.FAILED, "no")}
    repeats = list(conduct(job(repeats=4), Stage(trouble).start))
    assert [r.status for r in repeats if r.variant == "baseline"] == [Status.FAILED] + [
        Status.OK
    ] * 3


def ticking(step: float) -> Callable[[], float]:
    def times() -> Iterator[float]:
        now = 0.0
        while True:
            yield now
            now += step

    clock = times()
    return lambda: next(clock)


def test_the_time_budget_starts_no_new_round_but_always_measures_one() -> None:
    repeats = list(conduct(job(repeats=50, max_time_s=10.0), Stage().start, clock=ticking(6.0)))
    assert max(repeat.index for repeat in repeats) == 1
    repeats = list(conduct(job(repeats=50, max_time_s=10.0), Stage().start, clock=ticking(100.0)))
    assert {repeat.index for repeat in repeats} == {0}


def test_an_interrupt_ends_the_live_workers_and_passes_on() -> None:
    trouble: Trouble = {("bf16", 0, "block"): Interrupted(15)}
    stage = Stage(trouble)
    # An Interrupted is a signal to the command, never a worker's failure.
    with pytest.raises(Interrupted):
        list(conduct(job(isolation="resident"), stage.start))
    assert stage.alive == 0
