"""What the picture of the phases says above them: what the text says, and no more."""

from __future__ import annotations

import made_pictures as made
import pytest

from trainperf_mlflow.reporting.pictures.phases import figure_phases


def title(factors: dict[str, tuple[float, ...]]) -> str:
    attempts = [
        made.attempt(name, index, factor)
        for name, repeats in factors.items()
        for index, factor in enumerate(repeats)
    ]
    figure = figure_phases(made.variants(tuple(factors)), attempts)
    assert figure is not None
    return figure.texts[0].get_text().replace("\n", " ")


@pytest.mark.parametrize("repeats", [1, 2])
def test_fewer_than_three_repeats_show_no_change(repeats: int) -> None:
    said = title({"baseline": (1.0,) * repeats, "bf16": (0.5,) * 3})
    assert said.startswith("Phases of a step: baseline 50.5 ms, bf16 25.25 ms")
    assert said.endswith("with fewer than 3 repeats no change is known")
    assert "%" not in said


def test_only_what_lies_beyond_the_repeats_spread_is_called_a_change() -> None:
    three = (0.99, 1.0, 1.01)
    said = title({"baseline": three, "fast": (0.5,) * 3, "loud": (0.7, 1.0, 1.5), "once": (0.5,)})
    assert said.startswith("What moved most in a step: fast: backward ")
    assert "(-50 %)" in said
    assert "loud: nothing beyond the repeats' spread" in said
    assert "once: not known" in said
