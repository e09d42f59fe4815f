"""Whether a candidate's training losses are the baseline's, within what seeds alone cause.

In a round both begin with the same seed and see the same batches, so that their losses pair step
by step; what the baseline's own seeds differ by says how large a difference means nothing.
"""

from __future__ import annotations

import math
from itertools import accumulate
from typing import Any

import numpy as np

from trainperf_mlflow.analysis.rounds import common_rounds
from trainperf_mlflow.analysis.sequential import LEVEL
from trainperf_mlflow.analysis.student import quantile
from trainperf_mlflow.analysis.thinning import LOSSES_OF_BLOCK, stride
from trainperf_mlflow.results.estimates import LossCurve
from trainperf_mlflow.results.values import RepeatValues, VariantValues

# Among hundreds of steps with the spread of the seeds one lies this many standard deviations off.
_STEP_DEVIATIONS = 3.0
# fp32 sums in another order; a task that ignores its seed has no spread to hide that.
_ROUNDING = 1e-5

Step = tuple[int, int]  # block, and place in it


def loss_curve(baseline: VariantValues, candidate: VariantValues) -> LossCurve | None:
    """The candidate's losses against the baseline's; None where neither, or one side only, has any.

    Different is what exceeds the limit on average over all steps or at one of them. With R seeds
    and the standard deviation s between the baseline's own (over all steps), the limit of the
    average is t s sqrt(2 / R), t being Student's for R - 1 degrees of freedom: by so much two
    sets of R seeds differ at 95 %. A single step may be 3 s off at least.
    """
    rounds = common_rounds(baseline, candidate)
    curves = [(_losses(before), _losses(after)) for before, after in rounds]
    if not all(before and after for before, after in curves) or not curves:
        return None
    gap = _gap(rounds)
    if gap is not None:
        return LossCurve(verdict="not_shown", text=f"training losses cannot be compared: {gap}")
    steps = sorted(set.intersection(*(set(curve) for pair in curves for curve in pair)))
    before, after = (np.array([[p[side][s] for s in steps] for p in curves]) for side in (0, 1))
    return _judged(before, after, [_number(rounds[0][0], step) for step in steps])


def _judged(before: np.ndarray, after: np.ndarray, numbers: list[int]) -> LossCurve:
    """Losses [seeds, steps] of both, and the number of each step among the measured ones."""
    seeds = len(before)
    difference = (after - before).mean(axis=0)
    at = int(np.argmax(np.abs(difference)))
    most, mean = float(difference[at]), float(difference.mean())
    equal = bool((after == before).all())
    facts: dict[str, Any] = {
        "equal": equal,
        "seeds": seeds,
        "steps": numbers[-1],
        "mean_difference": mean,
        "max_difference": most,
        "max_at_step": numbers[at],
    }
    if equal:
        text = f"training losses equal the baseline's in every step ({_of(seeds)})"
        return LossCurve(verdict="same", text=text, **facts)
    apart = f"{most:+.3g} at measured step {numbers[at]}, {mean:+.3g} on average"
    if seeds < 2:
        text = (
            f"training losses differ ({apart}), and one seed does not tell what seeds alone cause; "
            "give more --repeats"
        )
        return LossCurve(verdict="not_shown", text=text, **facts)
    spread = math.sqrt(float(before.var(axis=0, ddof=1).mean()))
    rounding = _ROUNDING * float(np.abs(before).mean())
    mean_limit = max(quantile(seeds - 1, LEVEL) * spread * math.sqrt(2 / seeds), rounding)
    step_limit = max(mean_limit, _STEP_DEVIATIONS * spread)
    same = abs(mean) <= mean_limit and abs(most) <= step_limit
    words = "are the baseline's within" if same else "differ from the baseline's by more than"
    text = (
        f"training losses {words} what seeds alone cause: {apart}, where {_of(seeds)} of the "
        f"baseline have a standard deviation of {spread:.3g}"
    )
    return LossCurve(
        verdict="same" if same else "different",
        text=text,
        seed_spread=spread,
        mean_limit=mean_limit,
        step_limit=step_limit,
        **facts,
    )


def _of(seeds: int) -> str:
    return "one seed" if seeds == 1 else f"{seeds} seeds"


def _gap(rounds: list[tuple[RepeatValues, RepeatValues]]) -> str | None:
    """Why losses of the same step belong to different work, or None."""
    if any(before.seed != after.seed for before, after in rounds):
        return "the seeds differ"
    if any(
        before.data_digest and after.data_digest and before.data_digest != after.data_digest
        for before, after in rounds
    ):
        return "the batches differ"
    shapes = {_shape(repeat) for pair in rounds for repeat in pair}
    if len({samples for _, samples in shapes}) > 1:
        return "the samples per step differ"
    if len(shapes) > 1:
        return "the blocks have other numbers of steps"
    return None


def _shape(repeat: RepeatValues) -> tuple[tuple[int | None, ...], float | None]:
    first = next(iter(repeat.blocks), None)
    samples = None if first is None else first.samples_per_step
    return tuple(block.steps for block in repeat.blocks), samples


def _losses(repeat: RepeatValues) -> dict[Step, float]:
    return {
        (block.index, place * stride(block.steps or 0, LOSSES_OF_BLOCK)): loss
        for block in repeat.blocks
        for place, loss in enumerate(block.losses)
        if loss is not None and math.isfinite(loss)
    }


def _number(repeat: RepeatValues, step: Step) -> int:
    """The step's number among the measured ones of its repeat, from 1."""
    counts = [block.steps or 0 for block in repeat.blocks]
    before = dict(
        zip((block.index for block in repeat.blocks), accumulate(counts, initial=0), strict=False)
    )
    return before[step[0]] + step[1] + 1
