"""How quiet the machine was: which blocks were disturbed, by what, and what a study makes of it.

Judged from what the kernel and the device tell about a block, never from its step times: whoever
drops slow blocks because they are slow measures what he wants to see.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from statistics import fmean, quantiles
from typing import Literal, NamedTuple

from trainperf_mlflow.analysis.signal import GATE, block_values, choose_signal
from trainperf_mlflow.results.check import Check
from trainperf_mlflow.results.estimates import Noise
from trainperf_mlflow.results.record import Status
from trainperf_mlflow.results.repeats import Block, Watch
from trainperf_mlflow.results.values import BlockValues, VariantValues

# Disturbed neighbouring blocks are measured again so often, then kept and flagged.
MOST_AGAIN = 2
# A study in which more of the blocks were disturbed, or had company, is noisy.
NOISY_SHARE = 0.1
# Other processes that keep so much of a core busy are company, also where a core is free for them:
# caches and clocks are shared.
COMPANY_CORES = 0.25
# The same small computation takes longer than usual by so much: the core itself is slower, mostly
# because another guest of the host works on its other hardware thread. Measured on such a core:
# 97 % of the blocks that were slower than usual by 5 %, with any factor from 1.1 to 1.2.
SLOW_REFERENCE = 1.15
# What is usual is read from so many blocks around one: some 15 s, longer than most disturbances.
REFERENCE_BLOCKS = 24
Level = Literal["quiet", "noisy", "unfit"]
_HOT = ("heat", "hardware slowdown", "power brake")


class Cause(NamedTuple):
    """Something that disturbs a block, and how it is told of a study."""

    seen: Callable[[BlockValues, float | None], bool]
    text: str


def _percent(share: float) -> str:
    return f"{share * 100:.0f} %"


def _share(value: float | None) -> float:
    return value or 0.0


def _watch(block: BlockValues) -> Watch:
    return block.watch or Watch()


def _slow(block: BlockValues, usual_ms: float | None) -> bool:
    times = _watch(block).reference_ms
    # Before or after: what comes and goes often meets only one end of a block.
    return times is not None and usual_ms is not None and max(times) > SLOW_REFERENCE * usual_ms


def _hot(block: BlockValues) -> bool:
    device = _watch(block).device
    return device is not None and any(reason in device.throttled for reason in _HOT)


CAUSES: dict[str, Cause] = {
    "run_delay": Cause(
        lambda block, _: _share(block.run_delay) > GATE,
        f"the training waited for a core for more than {_percent(GATE)} of the time",
    ),
    "steal": Cause(
        lambda block, _: _share(_watch(block).steal) > GATE,
        f"the host gave more than {_percent(GATE)} of the cores' time to other guests",
    ),
    "memory_pressure": Cause(
        lambda block, _: _share(_watch(block).memory_pressure) > GATE,
        f"processes waited for memory for more than {_percent(GATE)} of the time",
    ),
    "slow_core": Cause(
        _slow, f"the core was slow (a fixed computation took {_percent(SLOW_REFERENCE - 1)} longer)"
    ),
    "throttled": Cause(lambda block, _: _hot(block), "the accelerator lowered its clock (heat)"),
}


def usual_references_ms(blocks: Sequence[Block] | Sequence[BlockValues]) -> list[float | None]:
    """What the reference computation takes around each block while nothing slows the core; None
    where no reference is known.

    The lower quartile, because something may slow it for half of the time and more, of the
    readings around it, because clocks change for good as a machine grows warm.
    """
    order = sorted(range(len(blocks)), key=lambda index: blocks[index].started_at)
    usual: list[float | None] = [None] * len(blocks)
    for place, index in enumerate(order):
        first = max(0, min(place - REFERENCE_BLOCKS // 2, len(order) - REFERENCE_BLOCKS))
        near = (blocks[other].watch for other in order[first : first + REFERENCE_BLOCKS])
        known = [ms for watch in near if watch and watch.reference_ms for ms in watch.reference_ms]
        usual[index] = lower_quartile(known) if known else None
    return usual


def lower_quartile(values: Sequence[float]) -> float:
    return quantiles(values, n=4, method="inclusive")[0]


def slow_share(references_ms: Sequence[float]) -> float:
    """The share of these reference computations in which the core was slow.

    >>> slow_share([0.3, 0.31, 0.3, 0.45]), slow_share([])
    (0.25, 0.0)
    """
    if len(references_ms) < 2:
        return 0.0
    usual_ms = lower_quartile(references_ms)
    return fmean(ms > SLOW_REFERENCE * usual_ms for ms in references_ms)


def disturbances(block: BlockValues, usual_ms: float | None = None) -> tuple[str, ...]:
    """The codes of ``CAUSES`` that are seen in a block.

    Args:
        usual_ms: what the reference computation usually takes on this machine.
    """
    return tuple(code for code, cause in CAUSES.items() if cause.seen(block, usual_ms))


def disturbed(block: BlockValues, usual_ms: float | None, waits_count: bool) -> bool:
    """Whether something from outside slowed a block.

    Args:
        waits_count: whether a wait for a core disturbs; not where the signal is without it.
    """
    seen = disturbances(block, usual_ms)
    return any(waits_count or code != "run_delay" for code in seen)


def to_measure_again(
    baseline: Block | None,
    candidates: Sequence[Block],
    usual_ms: float | None,
    device: str,
    data_workers: bool,
) -> bool:
    """Whether half of the pairs or more that these neighbouring blocks make were disturbed in what
    a comparison would read; a block alone stands for its pair.

    With many candidates nearly every set has a disturbed block, and to measure all of them again
    for one pair would cost more than it gives.
    """
    values = [block_values(block, None) for block in (baseline, *candidates) if block is not None]
    known = [value for value in values if value is not None]
    waits_count = choose_signal(known, device, data_workers).name == "gated wall"
    hit = [value is not None and disturbed(value, usual_ms, waits_count) for value in values]
    if baseline is None or not candidates:
        return any(hit)
    return hit[0] or 2 * sum(hit[1:]) >= len(candidates)


def judge(variants: Sequence[VariantValues], unfit: str | None = None) -> Noise | None:
    """What disturbed a study; None where no block is known.

    Args:
        unfit: why the intervals allow no verdict, where they allow none.
    """
    blocks = _measured(variants)
    if not blocks:
        return None
    seen = [disturbances(*known) for known in zip(blocks, usual_references_ms(blocks), strict=True)]
    hit = sum(map(bool, seen))
    company = [cores for block in blocks if (cores := _company(block)) >= COMPANY_CORES]
    noisy = max(hit, len(company)) > NOISY_SHARE * len(blocks)
    causes = [
        f"{cause.text} in {count}"
        for code, cause in CAUSES.items()
        if (count := sum(code in codes for codes in seen))
    ]
    if company:
        took = _cores(fmean(company))
        causes.insert(0, f"other processes took {took} during {len(company)}")
    level: Level = "unfit" if unfit else "noisy" if noisy else "quiet"
    shown = tuple(f"{cause} of {len(blocks)} blocks" for cause in causes)
    again = sum(block.again for block in blocks)
    return Noise(
        level=level,
        text=_text(shown, unfit, again),
        causes=shown,
        blocks=len(blocks),
        disturbed_blocks=hit,
        measured_again=again,
    )


def judge_machine(watch: Watch, references_ms: Sequence[float], cores: int, threads: int) -> Check:
    """What the machine is like now, for somebody who wants to measure on it.

    Args:
        watch: some time in which nothing was measured.
        references_ms: what the reference computation took then, again and again.
        cores: that may be used.
        threads: that will train.
    """
    others = watch.others_cores
    if others is None and not references_ms:
        return Check(
            check="noise",
            status="ok",
            detail="unknown: this system does not tell what other processes do",
        )
    unknown = "what other processes take is unknown"
    told = [unknown if others is None else f"other processes take {_cores(others)}"]
    others = others or 0.0
    for share, name in (
        (watch.steal, "steal"),
        (watch.cpu_pressure, "CPU pressure"),
        (watch.memory_pressure, "memory pressure"),
    ):
        if share is not None:
            told.append(f"{name} {_percent(share)}")
    slow = slow_share(references_ms)
    if references_ms:
        told.append(f"reference {fmean(references_ms):.2f} ms")
    if slow > NOISY_SHARE:
        told.append(f"the core was slow for {_percent(slow)} of the time")
    # Less than half a core left for a thread: it shares its core most of the time.
    crowded = cores - others < threads - 0.5
    waits = max(_share(watch.steal), _share(watch.memory_pressure)) > GATE
    noisy = waits or slow > NOISY_SHARE or others >= COMPANY_CORES
    level: Level = "unfit" if crowded else "noisy" if noisy else "quiet"
    remedy = {
        "quiet": "",
        "noisy": "pairs and the gate stand one neighbour, but studies take longer; stop the "
        "others for small differences",
        "unfit": f"{_counted(cores, 'core')} cannot hold the others and the "
        f"{_counted(threads, 'thread')} that {'trains' if threads == 1 else 'train'}: stop other "
        + ("programs, or wait" if threads == 1 else "programs, wait, or set OMP_NUM_THREADS lower"),
    }[level]
    return Check(
        check="noise",
        status="ok" if level == "quiet" else "warn",
        detail=f"{level}: {', '.join(told)}",
        remedy=remedy,
    )


def _measured(variants: Iterable[VariantValues]) -> list[BlockValues]:
    """The blocks of the repeats that succeeded."""
    return [
        block
        for variant in variants
        for repeat in variant.repeats
        if repeat.status is Status.OK
        for block in repeat.blocks
    ]


def _company(block: BlockValues) -> float:
    return _share(_watch(block).others_cores)


def _counted(number: int, noun: str) -> str:
    """
    >>> _counted(1, "core"), _counted(2, "core")
    ('1 core', '2 cores')
    """
    return f"{number} {noun}{'s' * (number != 1)}"


def _cores(cores: float) -> str:
    return f"{_percent(cores)} of a core" if cores < 1 else f"{cores:.1f} cores"


def _text(causes: Sequence[str], unfit: str | None, again: int) -> str:
    parts = [part for part in (unfit, "; ".join(causes)) if part]
    if again:
        parts.append(f"blocks measured again for it: {again}")
    return "; ".join(parts or ["nothing disturbed the blocks"])
