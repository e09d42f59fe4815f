"""Pictures show what was measured: their content is looked at, not their pixels."""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import made_pictures as made
import made_studies
import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from PIL import Image

from trainperf_mlflow.analysis.round_ratios import pair_ratios, round_ratios
from trainperf_mlflow.attribution import CATEGORIES, PHASES
from trainperf_mlflow.decisions.study import decide_study
from trainperf_mlflow.reporting.pictures import style
from trainperf_mlflow.reporting.pictures.loss import figure_loss
from trainperf_mlflow.reporting.pictures.memory import figure_memory
from trainperf_mlflow.reporting.pictures.phases import figure_phases
from trainperf_mlflow.reporting.pictures.ratios import Looked, PairedRatios, figure_ratios
from trainperf_mlflow.reporting.pictures.roofline import figure_roofline
from trainperf_mlflow.reporting.pictures.steps import figure_steps
from trainperf_mlflow.reporting.pictures.time_memory import figure_time_memory
from trainperf_mlflow.reporting.pictures.timeline import figure_timeline
from trainperf_mlflow.results.estimates import PairedEstimate
from trainperf_mlflow.results.repeats import Block
from trainperf_mlflow.results.study import Variant
from trainperf_mlflow.results.values import BlockValues, RepeatValues, VariantValues

THRESHOLDS = {"min_gain": 5.0, "max_cost": 5.0, "max_eval_loss_delta": 0.05}
TRAINING = {"min_time_delta_ms": 10.0, "min_memory_delta_mb": 512.0, "max_eval_loss_delta": 0.05}


def values_of(names: tuple[str, ...]) -> tuple[VariantValues, ...]:
    return tuple(
        made_studies.variant(
            name, time=50.0 * made.FACTORS.get(name, 1.0), memory=600 if "check" in name else 1000
        )
        for name in names
    )


def time_memory(
    names: tuple[str, ...] = made.NAMES, goal: str | None = "step_time", **changed: VariantValues
) -> Figure | None:
    values = [changed.get(value.name, value) for value in values_of(names)]
    study = made_studies.study(
        goal, variants=made.variants(names), thresholds=THRESHOLDS if goal else TRAINING
    )
    return figure_time_memory(study.variants, values, decide_study(study, values), "a verdict")


def ratios(names: tuple[str, ...] = made.NAMES, count: int = 3) -> Figure | None:
    found = [
        PairedRatios(name, tuple(0.1 + 0.01 * i for i in range(count)), 0.11) for name in names[1:]
    ]
    return figure_ratios(made.variants(names), found)


def everything(names: tuple[str, ...], rounds: int = 1) -> dict[str, Figure | None]:
    variants, repeats = made.variants(names), made.repeats(names, rounds)
    return {
        "phases": figure_phases(variants, made.attempts(names, rounds)),
        "memory": figure_memory({name: made.memory(count=40) for name in names}),
        "timeline": figure_timeline({name: made.traced() for name in names}),
        "roofline": figure_roofline(
            variants, {name: made.roofline() for name in names}, made.PEAKS
        ),
        "steps": figure_steps(variants, repeats),
        "loss": figure_loss(variants, repeats),
        "ratios": ratios(names, rounds),
        "time_memory": time_memory(names),
    }


@pytest.fixture(scope="module")
def figures() -> dict[str, Figure]:
    drawn = everything(made.NAMES, 3)
    return {name: figure for name, figure in drawn.items() if figure is not None}


def texts(figure: Figure) -> str:
    """Everything that is written around the panels: finding, notes, legend."""
    legend = [text.get_text() for box in figure.legends for text in box.get_texts()]
    return " ".join([*(text.get_text() for text in figure.texts), *legend]).replace("\n", " ")


def title(figure: Figure) -> str:
    return figure.texts[0].get_text().replace("\n", " ")


def is_png(data: bytes) -> tuple[int, int]:
    with Image.open(io.BytesIO(data)) as image:
        image.load()
        assert image.format == "PNG"
        return image.size


def test_every_picture_is_drawn_with_a_finding_and_units(figures: dict[str, Figure]) -> None:
    assert len(figures) == 8
    for name, figure in figures.items():
        assert len(title(figure)) > 10, name
        labels = [label for axes in figure.axes for label in (axes.get_xlabel(), axes.get_ylabel())]
        said = " ".join(labels)
        assert any(unit in said for unit in (", ms", "MiB", "%", "TFLOP/s", "loss")), (name, said)


def test_a_picture_is_a_png_for_a_projector_and_small(figures: dict[str, Figure]) -> None:
    for name in ("phases", "steps"):
        data = style.png(figures[name])
        assert is_png(data)[0] == 1280
        assert len(data) < 300_000


def test_phases_are_stacked_in_the_order_of_a_step(figures: dict[str, Figure]) -> None:
    times, peaks = figures["phases"].axes
    bars = [bar for bars in times.containers for bar in bars]
    assert len(times.containers) == len(PHASES)
    assert len(bars) == len(PHASES) * len(made.NAMES)
    first = [bars[0] for bars in times.containers]
    for before, after in pairwise(first):
        assert after.get_x() == pytest.approx(before.get_x() + before.get_width())
    assert [bars.get_label() for bars in times.containers] == list(PHASES)
    assert len(peaks.containers) == 3
    assert "backward" in title(figures["phases"])


def test_a_phase_has_one_colour_in_all_pictures(figures: dict[str, Figure]) -> None:
    wanted = style.PHASE_COLORS["backward"].lower()
    bars = figures["phases"].axes[0].containers[PHASES.index("backward")]
    assert to_hex(bars[0].get_facecolor()) == wanted
    spans = figures["timeline"].axes[0].patches
    assert to_hex(spans[PHASES.index("backward")].get_facecolor()) == wanted
    handles = dict(zip(*legend_of(figures["roofline"]), strict=True))
    assert to_hex(handles["backward"]) == wanted
    assert len(set(style.PHASE_COLORS.values())) == len(PHASES)
    assert len(set(style.CATEGORY_COLORS.values())) == len(CATEGORIES)


def legend_of(figure: Figure) -> tuple[list[str], list[str]]:
    (legend,) = figure.legends
    names = [text.get_text() for text in legend.get_texts()]
    return names, [handle.get_color() for handle in legend.legend_handles]  # type: ignore[union-attr]


def test_a_variant_has_one_look_in_all_pictures() -> None:
    look = style.looks(made.variants())
    assert look == {name: style.looks(made.variants())[name] for name in made.NAMES}
    many = style.looks(made.variants(("baseline", *map(str, range(12)))))
    assert len(set(many.values())) == 13


def test_memory_has_a_panel_a_variant_with_its_categories(figures: dict[str, Figure]) -> None:
    panels = figures["memory"].axes
    assert [axes.get_title(loc="left") for axes in panels] == list(made.NAMES)
    areas = panels[0].collections
    assert [area.get_label() for area in areas[:6]] == [
        category.replace("_", " ") for category in CATEGORIES[:6]
    ]
    assert to_hex(areas[3].get_facecolor()[0]) == style.CATEGORY_COLORS["activations"].lower()
    marked = [text.get_text() for text in panels[0].texts]
    assert marked == ["forward", "backward", "optimizer"]
    assert "untracked" not in texts(figures["memory"])  # nothing of it there


def test_a_device_has_a_row_of_its_own_in_the_timeline() -> None:
    figure = figure_timeline({"baseline": made.traced(device=True), "bf16": made.traced(0.5)})
    assert figure is not None
    rows = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert rows == ["baseline, host", "baseline, device", "bf16"]
    assert "backward -14 ms" in title(figure)


def test_the_roofline_is_logarithmic_with_a_roof_for_each_precision_in_use() -> None:
    points = {"baseline": made.roofline(), "bf16": made.roofline("bf16")}
    figure = figure_roofline(made.variants(), points, made.PEAKS)
    assert figure is not None
    (axes,) = figure.axes
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    assert len(axes.lines) == 2
    assert len(axes.collections) == 8
    assert "40%" in title(figure)
    assert "theoretical" in texts(figure)
    assert figure_roofline(made.variants(), points, None) is None


def slow_core(block: Block) -> bool:
    return block.watch is not None and block.watch.reference_ms == (0.3, 0.45)


def test_steps_stand_in_the_order_of_the_clock_and_say_what_disturbed_them() -> None:
    figure = figure_steps(made.variants(), made.repeats(rounds=2))
    assert figure is not None
    steps, waiting, switches, slower = figure.axes
    points = [c for c in steps.collections if c.get_label() in made.NAMES]
    assert [len(c.get_offsets()) for c in points] == [4, 4, 4]
    first = [float(c.get_offsets()[0][0]) for c in points]  # type: ignore[index]
    assert first == sorted(first)
    assert "%" in waiting.get_ylabel()
    assert "second" in switches.get_ylabel()
    assert "slower" in slower.get_ylabel()
    (lines,) = slower.collections
    heights = [float(line[1][1]) for line in lines.get_segments()]  # type: ignore[attr-defined]
    assert sorted(set(np.round(heights))) == [0, 50]
    repeats = made.repeats(rounds=2)
    rings = next(c for c in steps.collections if c.get_label() == "disturbed")
    waited = [b.run_delay_ms or 0.0 for r in repeats for b in r.blocks if not slow_core(b)]
    marked = sum(ms > 20 for ms in waited) + sum(slow_core(b) for r in repeats for b in r.blocks)
    assert len(rings.get_offsets()) == marked  # type: ignore[arg-type]
    assert f"{marked} of 12 blocks disturbed" in title(figure)


def test_without_what_the_system_tells_steps_are_drawn_alone() -> None:
    quiet = [
        repeat.model_copy(
            update={
                "blocks": tuple(
                    b.model_copy(
                        update={"run_delay_ms": None, "involuntary_switches": None, "watch": None}
                    )
                    for b in repeat.blocks
                )
            }
        )
        for repeat in made.repeats()
    ]
    figure = figure_steps(made.variants(), quiet)
    assert figure is not None
    assert len(figure.axes) == 1
    assert "disturbed" not in title(figure)


def test_other_samples_per_step_are_drawn_per_sample() -> None:
    repeats = [made.repeat("baseline"), made.repeat("bf16", samples_per_step=8.0)]
    figure = figure_steps(made.variants(), repeats)
    assert figure is not None
    assert figure.axes[0].get_ylabel() == "time of a sample, ms"


def test_ratios_show_estimate_interval_margin_and_looks_where_they_are_given() -> None:
    bare = PairedRatios("bf16", (0.1, 0.12, 0.11))
    full = PairedRatios("bf16", (0.1, 0.12, 0.11), 0.11, 0.09, 0.13, margin=0.01)
    looked = replace(full, looks=(Looked(1), Looked(2, 0.05, 0.15), Looked(3, 0.09, 0.13)))
    plain, rich, most = (
        figure_ratios(made.variants(), [item], "accept bf16") for item in (bare, full, looked)
    )
    assert plain is not None
    assert rich is not None
    assert most is not None
    assert title(rich) == "accept bf16 | bf16 +11.6 % (+9.42 % to +13.9 %) in speed"
    assert "interval" not in texts(plain)
    assert len(rich.axes[0].lines) == len(plain.axes[0].lines)
    # Three looks, of which the second one's interval is not that of all pairs.
    drawn = most.axes[0].lines[len(rich.axes[0].lines) :]
    assert [line.get_linestyle() for line in drawn] == [":", ":", "-", "-"]
    assert [list(line.get_ydata()) for line in drawn][2] == [0.05, 0.15]
    assert "dotted: looked at" in texts(most)
    assert len(rich.axes[0].collections) == len(plain.axes[0].collections) + 2
    assert "margin" in texts(rich)


def test_pairs_that_were_set_aside_are_hollow_and_not_counted() -> None:
    counted = (True, False, True)
    figure = figure_ratios(
        made.variants(), [PairedRatios("bf16", (0.1, 0.5, 0.11), counted=counted)]
    )
    assert figure is not None
    full, hollow = figure.axes[0].collections[:2]
    assert [len(marks.get_offsets()) for marks in (full, hollow)] == [2, 1]  # type: ignore[arg-type]
    assert len(hollow.get_facecolor()) == 0  # type: ignore[arg-type]
    (name,) = figure.axes[0].get_xticklabels()
    assert name.get_text() == "bf16\n2 of 3 pairs"
    assert "hollow: disturbed from outside, set aside" in texts(figure)


def test_round_ratios_are_those_of_rounds_in_which_both_ran() -> None:
    baseline = made_studies.variant("baseline", time=60.0)
    candidate = made_studies.variant(time=50.0, statuses=("ok", "oom", "ok"))
    assert round_ratios(baseline, candidate) == pytest.approx([math.log(1.2)] * 2)
    # Twice the samples in a step of the same length: twice as fast.
    double = made_studies.variant(time=60.0, samples=4.0)
    assert round_ratios(baseline, double) == pytest.approx([math.log(2)] * 3)


def test_pairs_of_blocks_are_compared_by_the_signal_of_their_estimate() -> None:
    def with_block(name: str, **times: float) -> VariantValues:
        value = made_studies.variant(name, statuses=("ok",))
        block = BlockValues(
            index=0, process=0, started_at=0.0, wall_s=1.0, samples_per_step=2.0, **times
        )
        repeat = value.repeats[0].model_copy(update={"blocks": (block,)})
        return value.model_copy(update={"repeats": (repeat,)})

    baseline = with_block("baseline", mean_ms=70.0, low_ms=66.0, net_low_ms=60.0)
    candidate = with_block("tuned", mean_ms=60.0, low_ms=55.0, net_low_ms=40.0)
    estimate = PairedEstimate.model_construct(signal="net", signal_reason="")
    assert pair_ratios(baseline, candidate, estimate) == pytest.approx([math.log(1.5)])
    gated = PairedEstimate.model_construct(signal="gated wall", signal_reason="")
    assert pair_ratios(baseline, candidate, gated) == pytest.approx([math.log(1.2)])


@pytest.mark.parametrize(
    ("goal", "corner"),
    [("step_time", (47.5, 1050.0)), ("peak_mem", (52.5, 950.0)), ("samples_per_s", (47.6, 1050.0))],
)
def test_the_goals_region_is_marked(goal: str, corner: tuple[float, float]) -> None:
    figure = time_memory(goal=goal)
    assert figure is not None
    (axes,) = figure.axes
    (region,) = [c for c in axes.collections if c.get_label() == "accepted here"]
    box = region.get_datalim(axes.transData)
    assert box.x1 == pytest.approx(corner[0], abs=0.1)
    assert box.y1 == pytest.approx(min(corner[1], axes.get_ylim()[1]), abs=0.1)


def test_a_region_far_from_all_variants_is_said_not_drawn() -> None:
    small = [made_studies.variant(n, memory=100.0) for n in ("baseline", "tuned")]
    figure = time_memory(("baseline", "tuned"), None, **{v.name: v for v in small})
    assert figure is not None
    (text,) = [t.get_text() for t in figure.axes[0].texts]
    assert text.startswith("accepted nowhere")


def test_losses_lie_over_each_other_with_their_difference_below(figures: dict[str, Figure]) -> None:
    upper, lower = figures["loss"].axes
    assert [line.get_label() for line in upper.lines] == list(made.NAMES)
    assert [line.get_label() for line in lower.lines[1:]] == ["bf16", "checkpoint"]
    assert len(upper.lines[0].get_xdata()) == 20  # type: ignore[arg-type]
    assert lower.get_ylabel() == "candidate - baseline"


def test_hostile_names_are_drawn_as_text_without_a_warning() -> None:
    names = ("baseline", *made.HOSTILE)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for name, figure in everything(names).items():
            assert figure is not None, name
            if name == "phases":
                is_png(style.png(figure))
    phases = figure_phases(made.variants(names), made.attempts(names, 1))
    assert phases is not None
    shown = [label.get_text() for label in phases.axes[0].get_yticklabels()]
    assert len(set(shown)) == len(names)
    assert max(map(len, shown)) < 35
    assert all(text.isprintable() for text in shown)


def test_one_variant_alone_is_drawn_where_it_says_something() -> None:
    single = made.variants(("only",))
    repeats = made.repeats(("only",), 2)
    for figure in (
        figure_phases(single, made.attempts(("only",))),
        figure_memory({"only": made.memory()}),
        figure_timeline({"only": made.traced()}),
        figure_roofline(single, {"only": made.roofline()}, made.PEAKS),
        figure_steps(single, repeats),
        figure_loss(single, repeats),
    ):
        assert figure is not None
        assert "only" in title(figure)
    assert figure_ratios(single, []) is None


def test_values_that_are_no_numbers_are_left_out_and_said() -> None:
    nan = math.nan
    strange = made.attempt("bf16", phase_ms={"forward": (nan,), "backward": (5.0,)})
    good = [made.attempt("baseline"), strange]
    sample = made.memory()[0].model_copy(update={"memory_mb": {"activations": math.inf}})
    repeat = made.repeat("baseline")
    broken = repeat.blocks[0].model_copy(update={"losses": (nan, 2.0, 1.0), "wall_ms": nan})
    repeats = [repeat.model_copy(update={"blocks": (broken, repeat.blocks[1])})]
    point = made.roofline()[0].model_copy(update={"achieved_tflops": nan})
    drawn = {
        "1 value NaN": figure_phases(made.variants(), good),
        "1 sample NaN": figure_memory({"baseline": (*made.memory(), sample)}),
        "1 block NaN": figure_steps(made.variants(), repeats),
        "1 loss value NaN": figure_loss(made.variants(), repeats),
        "1 point NaN": figure_roofline(
            made.variants(), {"baseline": (*made.roofline(), point)}, made.PEAKS
        ),
        "1 pair NaN": figure_ratios(made.variants(), [PairedRatios("bf16", (0.1, nan))]),
    }
    for said, figure in drawn.items():
        assert figure is not None, said
        assert f"{said} or infinite: left out" in texts(figure)


@pytest.mark.parametrize(
    "nothing",
    [
        lambda v: figure_phases(v, []),
        lambda v: figure_memory({"baseline": ()}),
        lambda v: figure_timeline({}),
        lambda v: figure_roofline(v, {"baseline": ()}, made.PEAKS),
        lambda v: figure_steps(v, [made.repeat("baseline", blocks=0)]),
        lambda v: figure_ratios(v, [PairedRatios("bf16", ())]),
        lambda v: figure_loss(v, [made.repeat("baseline", blocks=0)]),
    ],
)
def test_nothing_to_show_is_no_picture(
    nothing: Callable[[tuple[Variant, ...]], Figure | None],
) -> None:
    assert nothing(made.variants()) is None


def test_variants_without_memory_are_named_not_drawn() -> None:
    without = made_studies.variant("bf16", memory=None)
    figure = time_memory(bf16=without)
    assert figure is not None
    assert "without comparable time and memory: bf16" in texts(figure)


def test_repeats_of_a_variant_are_marked_beside_their_mean() -> None:
    value = made_studies.variant("bf16", time=40.0)
    repeats = tuple(
        RepeatValues(index=i, status="ok", metrics={**value.metrics, "step_time_ms": 39.0 + i})
        for i in range(3)
    )
    figure = time_memory(bf16=value.model_copy(update={"repeats": repeats}))
    assert figure is not None
    marks = [
        len(c.get_offsets()) for c in figure.axes[0].collections if c.get_label() != "accepted here"
    ]
    assert marks.count(1) == 3  # the means
    assert marks.count(3) == 3  # the repeats


def test_three_hundred_repeats_and_forty_variants_stay_readable_and_small() -> None:
    repeats = made.repeats(rounds=300)
    figure = figure_steps(made.variants(), repeats)
    assert figure is not None
    assert len(style.png(figure)) < 300_000
    names = ("baseline", *(f"candidate {i}" for i in range(40)))
    many = figure_phases(made.variants(names), made.attempts(names, 1))
    assert many is not None
    assert len(many.axes[0].get_yticks()) == style.MAX_VARIANTS
    assert "12 of 41 variants" in texts(many)
