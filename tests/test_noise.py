"""How quiet the machine was: judged from what the kernel tells, never from step times."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from trainperf_mlflow.analysis.noise import (
    disturbances,
    judge,
    judge_machine,
    to_measure_again,
)
from trainperf_mlflow.measurement import nvidia
from trainperf_mlflow.measurement.watch import Reading, between, reading, reference_ms
from trainperf_mlflow.results.record import Status
from trainperf_mlflow.results.repeats import Block, DeviceState, Watch
from trainperf_mlflow.results.values import BlockValues, RepeatValues, VariantValues

QUIET = Watch(others_cores=0.02, steal=0.0, memory_pressure=0.0, reference_ms=(0.3, 0.3))


def values(index: int = 0, **changes: Any) -> BlockValues:
    settings: dict[str, Any] = {
        "index": index, "process": 0, "started_at": 0.0, "wall_s": 0.5, "samples_per_step": 1.0,
        "mean_ms": 50.0, "low_ms": 50.0, "run_delay": 0.01, "watch": QUIET,
    }  # fmt: skip
    return BlockValues(**{**settings, **changes})


def study(*blocks: BlockValues) -> list[VariantValues]:
    repeat = RepeatValues(index=0, status=Status.OK, blocks=blocks)
    return [VariantValues(name="baseline", role="baseline", status=Status.OK, repeats=(repeat,))]


def watch(**changes: Any) -> Watch:
    return QUIET.model_copy(update=changes)


@pytest.mark.parametrize(
    ("block", "codes"),
    [
        (values(), ()),
        (values(run_delay=0.06), ("run_delay",)),
        (values(run_delay=0.05), ()),
        (values(watch=watch(steal=0.2)), ("steal",)),
        (values(watch=watch(memory_pressure=0.1)), ("memory_pressure",)),
        (values(watch=watch(reference_ms=(0.5, 0.5))), ("slow_core",)),
        (values(watch=watch(device=DeviceState(throttled=("heat",)))), ("throttled",)),
        # A large card works at its power cap all the time.
        (values(watch=watch(device=DeviceState(throttled=("power cap",)))), ()),
        (values(watch=None, run_delay=None), ()),
        # Slow steps alone are no disturbance: whoever drops them measures what he wants to see.
        (values(mean_ms=5000.0, low_ms=5000.0), ()),
    ],
)
def test_a_block_is_disturbed_by_what_the_kernel_tells(
    block: BlockValues, codes: tuple[str, ...]
) -> None:
    assert disturbances(block, 0.3) == codes


def test_a_study_says_who_took_how_much_during_how_many_blocks() -> None:
    busy = watch(others_cores=0.48)
    made = judge(study(*(values(i, watch=busy if i < 9 else QUIET) for i in range(24))))
    assert made is not None
    assert (made.level, made.disturbed_blocks) == ("noisy", 0)
    assert made.text == "other processes took 48 % of a core during 9 of 24 blocks"


def test_one_disturbed_block_in_ten_leaves_a_study_quiet_and_two_do_not() -> None:
    for disturbed, level in ((1, "quiet"), (2, "noisy")):
        blocks = [values(i, run_delay=0.5 if i < disturbed else 0.0) for i in range(10)]
        made = judge(study(*blocks))
        assert made is not None
        assert (made.level, made.disturbed_blocks) == (level, disturbed)
        assert f"in {disturbed} of 10 blocks" in made.text


def test_a_study_without_a_verdict_is_unfit_and_tells_both_reasons() -> None:
    made = judge(study(values(run_delay=0.5)), unfit="the interval is 30 % wide")
    assert made is not None
    assert made.level == "unfit"
    assert made.text.startswith("the interval is 30 % wide; the training waited for a core")


def test_blocks_that_were_measured_again_are_counted() -> None:
    made = judge(study(values(0, again=2), values(1), values(2, again=1)))
    assert made is not None
    assert made.measured_again == 3
    assert made.text == "blocks measured again for it: 3"


def test_a_study_without_blocks_has_no_noise() -> None:
    assert judge(study()) is None


def test_the_gate_reads_the_thread_that_waited_longest() -> None:
    def block(threads_ms: float) -> Block:
        return Block(
            index=0, started_at=0.0, wall_ms=1000.0, step_ms=(500.0, 500.0), losses=(None, None),
            run_delay_ms=10.0, threads_delay_ms=threads_ms,
        )  # fmt: skip

    assert not to_measure_again(block(20.0), [block(40.0)], None, "cpu", False)
    assert to_measure_again(block(20.0), [block(60.0)], None, "cpu", False)


@pytest.mark.parametrize(
    ("baseline", "candidates", "again"),
    [
        (True, [False], True),
        (False, [True], True),
        (False, [True, False], True),
        (True, [False] * 5, True),
        (False, [True, True, False, False, False], False),
        (False, [True, True, True, False, False], True),
        (None, [False, True], True),
    ],
)
def test_a_set_is_measured_again_where_half_of_its_pairs_were_disturbed(
    baseline: bool | None, candidates: list[bool], again: bool
) -> None:
    def block(hit: bool) -> Block:
        return Block(
            index=0, started_at=0.0, wall_ms=1000.0, step_ms=(500.0, 500.0), losses=(None, None),
            run_delay_ms=60.0 if hit else 0.0,
        )  # fmt: skip

    first = None if baseline is None else block(baseline)
    assert to_measure_again(first, [block(hit) for hit in candidates], None, "cpu", False) == again


@pytest.mark.parametrize(("device", "workers", "again"), [
    ("cpu", False, False), ("cpu", True, True), ("cuda:0", False, True),
])  # fmt: skip
def test_a_wait_that_can_be_subtracted_is_no_reason_to_measure_again(
    device: str, workers: bool, again: bool
) -> None:
    block = Block(
        index=0, started_at=0.0, wall_ms=1000.0, step_ms=(500.0, 500.0), losses=(None, None),
        step_run_delay_ms=(100.0, 0.0), run_delay_ms=100.0, cpu_ms=900.0,
    )  # fmt: skip
    assert to_measure_again(block, [], None, device, workers) == again
    slow = block.model_copy(update={"watch": watch(reference_ms=(0.3, 0.5))})
    assert to_measure_again(slow, [], 0.3, device, workers)


@pytest.mark.parametrize(
    ("seen", "threads", "level", "status"),
    [
        (QUIET, 1, "quiet", "ok"),
        (watch(others_cores=1.0), 1, "noisy", "warn"),
        (watch(others_cores=1.0), 2, "unfit", "warn"),
        (watch(steal=0.3), 1, "noisy", "warn"),
        (Watch(), 1, "quiet", "ok"),
    ],
)
def test_the_doctor_says_what_the_machine_is_like_and_what_to_do(
    seen: Watch, threads: int, level: str, status: str
) -> None:
    check = judge_machine(seen, (0.3,) * 20, cores=2, threads=threads)
    assert check.detail.startswith(level)
    assert check.status == status
    assert bool(check.remedy) == (status == "warn")


@pytest.mark.parametrize(("slow", "level"), [(2, "quiet"), (3, "noisy"), (14, "noisy")])
def test_the_doctor_finds_a_core_that_something_on_the_host_slows_now_and_then(
    slow: int, level: str
) -> None:
    check = judge_machine(QUIET, [0.3] * (20 - slow) + [0.45] * slow, cores=2, threads=1)
    assert check.detail.startswith(level)
    assert (f"the core was slow for {5 * slow} % of the time" in check.detail) == (level == "noisy")
    elsewhere = judge_machine(Watch(), [0.3] * (20 - slow) + [0.45] * slow, cores=2, threads=1)
    assert judge_machine(Watch(), (), cores=2, threads=1).detail.startswith("unknown")
    assert elsewhere.detail.startswith(f"{level}: what other processes take is unknown")


@pytest.mark.parametrize(
    ("cores", "threads", "said", "lower"),
    [
        (2, 1, "2 cores cannot hold the others and the 1 thread that trains: stop", False),
        (1, 1, "1 core cannot hold the others and the 1 thread that trains: stop", False),
        (2, 2, "2 cores cannot hold the others and the 2 threads that train: stop", True),
    ],
)
def test_fewer_threads_are_advised_only_where_there_can_be_fewer(
    cores: int, threads: int, said: str, lower: bool
) -> None:
    remedy = judge_machine(watch(others_cores=1.8), (), cores=cores, threads=threads).remedy
    assert remedy.startswith(said)
    assert ("OMP_NUM_THREADS" in remedy) == lower


# --- reading -----------------------------------------------------------------------------------


def proc(folder: Path, busy: int, stolen: int, pressure_us: int) -> Path:
    """Linux's files as they were recorded, with one usable core and one that is not ours."""
    core = min(os.sched_getaffinity(0))
    (folder / "pressure").mkdir(parents=True)
    (folder / "stat").write_text(
        f"cpu  9 9 9 9 9 9 9 9 0 0\ncpu{core} {busy} 0 0 500 3 0 0 {stolen} 0 0\n"
        "cpu99999 7777 0 0 0 0 0 0 7777 0 0\nintr 1 2 3\n"
    )
    (folder / "pressure" / "cpu").write_text(
        f"some avg10=0.00 avg60=0.00 avg300=0.00 total={pressure_us}\nfull avg10=0.00 total=1\n"
    )
    return folder


def test_two_readings_say_what_others_did_on_the_cores_that_may_be_used(tmp_path: Path) -> None:
    first = reading(proc(tmp_path / "a", busy=100, stolen=0, pressure_us=0))
    last = reading(proc(tmp_path / "b", busy=250, stolen=20, pressure_us=500_000))
    # The clocks are this process's own; two seconds and one second of work are laid over them.
    last = last._replace(clock_s=first.clock_s + 2.0, own_s=first.own_s + 1.0)
    seen = between(first, last)
    assert seen.others_cores == pytest.approx(0.25)
    assert seen.steal == pytest.approx(0.1)
    assert seen.cpu_pressure == pytest.approx(0.25)
    assert seen.memory_pressure is None


def test_a_system_that_tells_nothing_gives_no_numbers(tmp_path: Path) -> None:
    first = reading(tmp_path)
    assert first == Reading(first.clock_s, None, None, 0, first.own_s, None, None)
    assert between(first, first) == Watch()


def test_the_reference_computation_takes_a_part_of_the_shortest_block() -> None:
    assert 0 < reference_ms() < 500 * 0.03


class Nvml:
    """The maker's library, as far as it is asked, on a device that tells no temperature."""

    NVML_CLOCK_SM, NVML_TEMPERATURE_GPU = 1, 0

    @staticmethod
    def nvmlInit() -> None:  # noqa: N802
        pass

    @staticmethod
    def nvmlDeviceGetHandleByUUID(uuid: bytes) -> str:  # noqa: N802
        return uuid.decode()

    @staticmethod
    def nvmlDeviceGetClockInfo(handle: str, kind: int) -> int:  # noqa: N802
        return {"GPU-abc": 1980}[handle]

    @staticmethod
    def nvmlDeviceGetTemperature(handle: str, sensor: int) -> int:  # noqa: N802
        raise RuntimeError("not supported")

    @staticmethod
    def nvmlDeviceGetPowerUsage(handle: str) -> int:  # noqa: N802
        return 651_500

    @staticmethod
    def nvmlDeviceGetCurrentClocksThrottleReasons(handle: str) -> int:  # noqa: N802
        return 0x44


def test_what_an_nvidia_device_tells_is_kept_and_what_it_does_not_is_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", Nvml)
    monkeypatch.setattr(
        torch.cuda, "get_device_properties", lambda device: SimpleNamespace(uuid="abc")
    )
    nvidia._library.cache_clear()
    state = nvidia.device_state(torch.device("cuda", 0))
    nvidia._library.cache_clear()
    assert state == DeviceState(clock_mhz=1980, power_w=651.5, throttled=("power cap", "heat"))
    assert nvidia.device_state(torch.device("cpu")) is None
