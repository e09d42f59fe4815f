"""Records with given numbers for the tests of the pictures."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Any

from trainperf_mlflow.analysis.traces_timeline import Span, TracedStep
from trainperf_mlflow.attribution import (
    PHASES,
    Attempt,
    MemorySample,
    Peaks,
    PhaseMeasurement,
    RooflinePoint,
)
from trainperf_mlflow.results.record import Status
from trainperf_mlflow.results.repeats import Block, Repeat, Watch
from trainperf_mlflow.results.study import Variant

NAMES = ("baseline", "bf16", "checkpoint")
PHASE_MS = {"data": 0.6, "forward": 15.0, "backward": 28.0, "optimizer": 6.0, "other": 0.4}
FACTORS = {"baseline": 1.0, "bf16": 0.8, "checkpoint": 1.25}
HOSTILE = (
    "$x^{2$ <b>_%",
    "_hidden",
    "精度混合训练",
    "🚀" * 30,
    "\u202eevil\x1b[31m\n\0",
    "a$b$c\\",
    "\ud800",
    "x" * 300,
)


def variants(names: Sequence[str] = NAMES) -> tuple[Variant, ...]:
    return tuple(
        Variant(name=name, role="candidate" if index else "baseline", config={})
        for index, name in enumerate(names)
    )


def attempt(variant: str, index: int = 0, factor: float = 1.0, **fields: Any) -> Attempt:
    times = {phase: (ms * factor, ms * factor * 1.02) for phase, ms in PHASE_MS.items()}
    phases = PhaseMeasurement(
        **{
            "step_ms": tuple(sum(ms[i] for ms in times.values()) for i in range(2)),
            "phase_ms": times,
            "peak_mem_mb": {"forward": 610.0 * factor, "backward": 640.0, "optimizer": 540.0},
            "peak_mem_source": "tensor_tracker",
            **fields,
        }
    )
    return Attempt(variant=variant, index=index, status=Status.OK, phases=phases)


def attempts(names: Sequence[str] = NAMES, repeats: int = 3) -> list[Attempt]:
    chance = random.Random(1)
    return [
        attempt(name, index, FACTORS.get(name, 1.0) * chance.uniform(0.96, 1.04))
        for index in range(repeats)
        for name in names
    ]


def memory(factor: float = 1.0, count: int = 200) -> tuple[MemorySample, ...]:
    """Activations that rise through forward and fall through backward."""
    samples = []
    for i in range(count):
        at = i / count
        phase = "data" if at < 0.02 else "forward" if at < 0.32 else "backward"
        phase = "optimizer" if at > 0.88 else phase
        rise = at / 0.32 if at < 0.32 else max(0.0, 1 - (at - 0.32) / 0.56)
        samples.append(
            MemorySample(
                at_ms=at * 50 / factor,
                phase=phase,
                memory_mb={
                    "parameters": 120.0,
                    "gradients": 0.0 if at < 0.32 else 120 * min(1.0, (at - 0.32) / 0.5),
                    "optimizer_state": 240.0,
                    "activations": 380 * rise * factor,
                    "temporaries": 30.0 if i % 7 == 0 else 5.0,
                    "other": 2.0,
                    "untracked": 0.0,
                },
            )
        )
    return tuple(samples)


def repeat(
    variant: str, index: int = 0, *, at: float = 0.0, step_ms: float = 50.0, **fields: Any
) -> Repeat:
    chance = random.Random(ascii(f"{variant} {index}"))
    blocks = []
    for number in range(fields.pop("blocks", 2)):
        steps = tuple(step_ms * chance.uniform(0.97, 1.05) for _ in range(10))
        disturbed = chance.random() < 0.2
        blocks.append(
            Block(
                index=number,
                started_at=1.7e9 + at + number * 0.6,
                wall_ms=sum(steps),
                step_ms=steps,
                losses=tuple(
                    6.0 * math.exp(-0.02 * (number * 10 + i))
                    + FACTORS.get(variant, 1.0) * 0.01
                    + chance.uniform(-0.01, 0.01)
                    for i in range(10)
                ),
                run_delay_ms=sum(steps) * (0.08 if disturbed else 0.002),
                involuntary_switches=12 if disturbed else 1,
                watch=Watch(reference_ms=(0.3, 0.45 if number == 1 and index == 1 else 0.3)),
            )
        )
    return Repeat(
        **{
            "study_id": "0" * 32,
            "variant": variant,
            "index": index,
            "seed": index,
            "status": Status.OK,
            "started_at": 1.7e9 + at,
            "ended_at": 1.7e9 + at + 2,
            "samples_per_step": 4.0,
            "blocks": tuple(blocks),
            **fields,
        }
    )


def repeats(names: Sequence[str] = NAMES, rounds: int = 3) -> list[Repeat]:
    order = [(name, index) for index in range(rounds) for name in names]
    return [
        repeat(name, index, at=4.0 * place, step_ms=50 * FACTORS.get(name, 1.0))
        for place, (name, index) in enumerate(order)
    ]


def traced(factor: float = 1.0, *, device: bool = False) -> TracedStep:
    spans, at = [], 0.0
    for phase in PHASES:
        length = PHASE_MS[phase] * (factor if phase == "backward" else 1.0)
        spans.append(Span(phase, at, at + length))
        at += length
    behind = tuple(Span(p, a + 4, b + 4) for p, a, b in spans if p not in ("data", "other"))
    return TracedStep(at, tuple(spans), behind if device else ())


PEAKS = Peaks(
    device="a device",
    tflops={"fp32": 19.5, "bf16": 312.0},
    memory_gb_s=1555.0,
    source="its data sheet",
    evidence_level="theoretical",
)


def roofline(precision: str = "fp32", factor: float = 1.0) -> tuple[RooflinePoint, ...]:
    points = []
    for name, intensity in (
        ("step", 25.0),
        ("forward", 60.0),
        ("backward", 40.0),
        ("optimizer", 0.3),
    ):
        attainable = min(PEAKS.tflops[precision], intensity * factor * PEAKS.memory_gb_s / 1000)
        points.append(
            RooflinePoint(
                name=name,
                precision=precision,
                time_ms=10.0,
                flops=1e12,
                moved_bytes=1e9,
                intensity=intensity * factor,
                achieved_tflops=attainable * 0.4,
                attainable_tflops=attainable,
                fraction=0.4,
                bound="memory",
            )
        )
    return tuple(points)
