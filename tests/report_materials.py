"""Studies as a report reads them, made of given numbers: with everything, or hardly anything."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import made_pictures
import made_studies
from paired_blocks import a_block

from trainperf_mlflow.analysis.assessment import assess
from trainperf_mlflow.analysis.explanation import phase_summary
from trainperf_mlflow.analysis.roofline import roofline_summary
from trainperf_mlflow.decisions.policies import POLICIES
from trainperf_mlflow.decisions.study import decide_study
from trainperf_mlflow.reporting.report.material import EvidenceFile, Material
from trainperf_mlflow.results.study import Study, Variant
from trainperf_mlflow.results.values import RepeatValues, VariantValues

NAMES = ("baseline", "bf16", "checkpoint")
STEP_MS = (50.0, 40.0, 62.0)
PICTURES = (
    "ratios", "time_memory", "steps", "loss", "phases", "roofline", "memory", "trace_timeline",
)  # fmt: skip
MEMORY_MB = (640.0, 500.0, 300.0)


def study(names: Sequence[str] = NAMES, **fields: Any) -> Study:
    keys = ("precision", "checkpoint")
    variants = (
        Variant(name=names[0], role="baseline", config={"precision": "fp32", "checkpoint": False}),
        *(
            Variant(
                name=each,
                role="candidate",
                config={key: "on"},
                changed={key: "on"},
                changed_variable=key,
            )
            for each, key in zip(names[1:], keys, strict=False)
        ),
    )
    values: dict[str, Any] = {
        "variants": variants,
        "thresholds": {**POLICIES["goal"].thresholds, "max_cost": 30.0},
        "plan": {"repeats": 3, "seed": 42, "threshold": {"max_cost": 30.0}},
        "command": "trainperf measure --candidate bf16 --goal step_time",
        "hypothesis": "backward",
        **fields,
    }
    return made_studies.study(goal="step_time", **values)


def values(names: Sequence[str] = NAMES, repeats: int = 3) -> tuple[VariantValues, ...]:
    """Repeats with four blocks each; the second and third variant differ clearly."""
    made = []
    for place, each in enumerate(names):
        time, memory = STEP_MS[place], MEMORY_MB[place]
        variant = made_studies.variant(
            each,
            role="candidate" if place else "baseline",
            time=time,
            memory=memory,
            statuses=("ok",) * repeats,
            effect_verified=True if place else None,
            effect_detail="seen in its kernels" if place else None,
        )
        runs = tuple(
            RepeatValues(
                index=repeat.index,
                status="ok",
                metrics={**repeat.metrics, "step_time_ms": time * (1 + 0.001 * (repeat.index % 7))},
                blocks=tuple(
                    a_block(i, time * (1 + 0.0005 * ((3 * i + repeat.index) % 5))) for i in range(4)
                ),
            )
            for repeat in variant.repeats
        )
        made.append(variant.model_copy(update={"repeats": runs}))
    return tuple(made)


def bare(names: Sequence[str] = NAMES, repeats: int = 3, **fields: Any) -> Material:
    """A measured study that nobody has looked at further."""
    asked, measured = study(names, **fields), values(names, repeats)
    comparison = decide_study(asked, measured)
    comparison = comparison.model_copy(update={"assessment": assess(comparison, measured)})
    return Material(study=asked, comparison=comparison, variants=measured)


@functools.cache
def whole() -> Material:
    """A study with pictures, phases, an assessment, an environment and evidence."""
    asked, measured = study(), values()
    attempts = [
        made_pictures.attempt(
            each.variant,
            each.index,
            made_pictures.FACTORS[each.variant],
            memory_over_step=made_pictures.memory(count=40),
            memory_mb={"backward": {"parameters": 100.0, "activations": 540.0}},
        )
        for each in made_pictures.attempts()
    ]
    summaries = {}
    for variant in asked.variants:
        own = [attempt for attempt in attempts if attempt.variant == variant.name]
        summaries[variant.name] = {
            **phase_summary(asked.study_id, variant, own),
            **roofline_summary(own, [], None, {}),
        }
    comparison = decide_study(asked, measured)
    comparison = comparison.model_copy(
        update={"assessment": assess(comparison, measured, summaries)}
    )
    return Material(
        study=asked,
        comparison=comparison,
        variants=measured,
        phases=summaries,
        pictures={f"plots/{picture}.png": b"png" for picture in PICTURES},
        environment={"cpu": "a processor", "threads": 2, "packages": {"torch": "2.13"}},
        evidence=[EvidenceFile("study.json", None, "ab" * 32)],
    )
