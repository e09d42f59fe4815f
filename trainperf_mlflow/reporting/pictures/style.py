"""What all pictures share: colours, marks, text that is safe to draw, panels, the PNG itself.

Everything is set on the figure itself, never in matplotlib's global state, so that a
program that draws pictures of its own is not disturbed and does not disturb.
"""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Iterable, Sequence
from functools import cache
from typing import NamedTuple
from unicodedata import east_asian_width

from matplotlib import font_manager
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.text import Text

from trainperf_mlflow.attribution import CATEGORIES, PHASES
from trainperf_mlflow.reporting.text import clipped, plain
from trainperf_mlflow.results.study import Variant

WIDTH, HEIGHT, DPI = 10.0, 5.6, 128  # 1280 pixels wide: a projector's
TITLE, LABEL, TICK, NOTE = 14, 12, 11, 9.5  # points
INK, FAINT, GRID = "#222222", "#666666", "#dddddd"

# Okabe and Ito, "Color Universal Design" (2008): told apart with every colour vision.
BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
YELLOW, BLUE, VERMILION, PURPLE = "#F0E442", "#0072B2", "#D55E00", "#CC79A7"
GREY, DARK_GREY = "#BBBBBB", "#5A5A5A"

PHASE_COLORS = dict(zip(PHASES, (ORANGE, SKY, BLUE, GREEN, GREY), strict=True))
CATEGORY_COLORS = dict(
    zip(CATEGORIES, (BLUE, SKY, GREEN, VERMILION, ORANGE, GREY, DARK_GREY), strict=True)
)
# More would be smaller than can be read.
MAX_VARIANTS = 12
# Of Linux, macOS and Windows.
_MORE_FONTS = (
    "Noto Sans CJK SC",
    "Noto Sans SC",
    "WenQuanYi Micro Hei",
    "PingFang SC",
    "Hiragino Sans GB",
    "Microsoft YaHei",
    "SimHei",
    "Noto Emoji",
)
_CANDIDATE_COLORS = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY)
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "p", "h", "*")
_NAME_CHARS = 26
_TITLE_CHARS, _TITLE_LINES, _NOTE_CHARS = 82, 3, 132
_LEGEND_CHARS = 108


class Look(NamedTuple):
    """How a variant is drawn, in every picture of its study."""

    color: str
    marker: str


def looks(variants: Sequence[Variant]) -> dict[str, Look]:
    """Variant name -> its look; the baseline is dark grey, candidates go by the plan's order."""
    candidates = [variant.name for variant in variants if variant.role == "candidate"]
    found = {v.name: Look(DARK_GREY, "o") for v in variants if v.role == "baseline"}
    for index, name in enumerate(candidates):
        color = _CANDIDATE_COLORS[index % len(_CANDIDATE_COLORS)]
        found[name] = Look(color, _MARKERS[(index + 1) % len(_MARKERS)])
    return found


def phase_color(phase: str) -> str:
    """A trace may name phases that are not ours."""
    return PHASE_COLORS.get(phase, PURPLE)


# --- text --------------------------------------------------------------------------------------


def safe(text: str, limit: int = _NAME_CHARS) -> str:
    """Foreign text as one short line that matplotlib neither sets as a formula nor hides.

    >>> safe("$x^2$"), safe("_private")
    ('\\\\$x^2\\\\$', ' _private')
    """
    shown = plain(text)
    wide = _width(shown[:limit]) - len(shown[:limit])
    shown = clipped(shown, limit - wide // 2).replace("$", r"\$")
    # A legend leaves out what begins with an underscore.
    return f" {shown}" if shown.startswith("_") else shown


def _width(text: str) -> int:
    """In narrow characters: a Chinese one takes the room of two."""
    return len(text) + sum(east_asian_width(character) in "WF" for character in text)


def listed(names: Sequence[str], limit: int = 4) -> str:
    """Some names in a sentence.

    >>> listed(["a", "b", "c"], 2)
    'a, b and 1 more'
    """
    shown = ", ".join(names[:limit])
    return shown if len(names) <= limit else f"{shown} and {len(names) - limit} more"


def signed_percent(before: float, after: float) -> str:
    """
    >>> signed_percent(50.0, 62.0), signed_percent(0.0, 1.0)
    ('+24 %', '')
    """
    return f"{(after - before) / before * 100:+.2g} %" if before > 0 else ""


def left_out(count: int, what: str = "value") -> str:
    """What to say of numbers that cannot be drawn; nothing where there are none."""
    if count == 0:
        return ""
    return f"{count} {what}{'' if count == 1 else 's'} NaN or infinite: left out"


def finite(values: Iterable[float]) -> list[float]:
    return [value for value in values if math.isfinite(value)]


# --- figures -----------------------------------------------------------------------------------


def blank(height: float = HEIGHT) -> Figure:
    """A figure for panels of this height together, in inches; ``finish`` adds what is around."""
    return Figure((WIDTH, height), DPI, facecolor="white")


def finish(
    figure: Figure,
    title: str,
    *,
    notes: Iterable[str] = (),
    legend: tuple[Sequence[Artist], Sequence[str]] = ((), ()),
) -> Figure:
    """Put the finding above the panels, then the legend, and below, small, what to know."""
    height = float(figure.get_figheight())
    heads = _wrapped(title, _TITLE_CHARS, _TITLE_LINES)
    said = "; ".join(note for note in notes if note)
    feet = _wrapped(said, _NOTE_CHARS, 2)
    handles, labels = legend
    columns = _columns(labels)
    above = 0.12 + 0.25 * len(heads)
    key = 0.04 + 0.215 * math.ceil(len(handles) / columns) if handles else 0.0
    below = 0.06 + 0.19 * len(feet)
    whole = height + above + key + below
    figure.set_size_inches(WIDTH, whole)
    left = 0.12 / WIDTH
    figure.text(
        left,
        1 - 0.1 / whole,
        "\n".join(heads),
        va="top",
        fontsize=TITLE,
        fontweight="bold",
        color=INK,
        linespacing=1.15,
    )
    if handles:
        figure.legend(
            handles,
            labels,
            loc="upper left",
            bbox_to_anchor=(left, 1 - above / whole),
            ncols=columns,
            fontsize=TICK,
            frameon=False,
            borderpad=0,
            borderaxespad=0,
            labelspacing=0.3,
            columnspacing=1.4,
            handlelength=1.6,
        )
    figure.text(left, 0.05 / whole, "\n".join(feet), va="bottom", fontsize=NOTE, color=FAINT)
    rectangle = (0, below / whole, 1, height / whole)
    figure.set_layout_engine(ConstrainedLayoutEngine(rect=rectangle, w_pad=0.08, h_pad=0.06))
    return figure


def _wrapped(text: str, width: int, most: int) -> list[str]:
    """Lines of words; what does not fit into the last one is cut there."""
    lines: list[str] = []
    for word in text.split():
        if lines and _width(lines[-1]) + 1 + _width(word) <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines if len(lines) <= most else [*lines[: most - 1], f"{lines[most - 1]} ..."]


def _columns(labels: Sequence[str]) -> int:
    """How many of a legend's entries go beside each other."""
    lengths = [_width(label) + 5 for label in labels] or [1]
    return len(lengths) if sum(lengths) <= _LEGEND_CHARS else max(1, _LEGEND_CHARS // max(lengths))


def panel(axes: Axes, *, x: str = "", y: str = "", title: str = "", grid: str = "y") -> Axes:
    """Labels (with units), sizes and a quiet frame for one panel; ``grid``: x, y, both or none."""
    axes.set_facecolor("white")
    axes.set_xlabel(x, fontsize=LABEL, color=INK)
    axes.set_ylabel(y, fontsize=LABEL, color=INK)
    if title:
        axes.set_title(title, fontsize=LABEL, color=INK, loc="left")
    axes.tick_params(labelsize=TICK, colors=INK)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.set_axisbelow(True)
    if grid != "none":
        axes.grid(axis=grid, color=GRID, linewidth=0.8)  # type: ignore[arg-type]
    return axes


@cache
def _families() -> list[str]:
    """The default font, then those of this machine that have what it lacks: Chinese, emoji."""
    there = set(font_manager.get_font_names())
    return ["DejaVu Sans", *(name for name in _MORE_FONTS if name in there)]


def png(figure: Figure) -> bytes:
    """The figure as a PNG file; a character that no font has becomes a box."""
    buffer = io.BytesIO()
    families = _families()
    if len(families) > 1:
        for text in figure.findobj(Text):
            text.set_fontfamily(families)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # Unlike ``savefig`` this draws once, not twice. Without its version of matplotlib the
        # file depends on what is drawn alone.
        canvas = FigureCanvasAgg(figure)
        canvas.print_png(buffer, metadata={"Software": None})  # type: ignore[no-untyped-call]
    return buffer.getvalue()
