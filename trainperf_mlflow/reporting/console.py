"""What is printed: as wide as the terminal is, with colours only where one is there."""

from __future__ import annotations

import io
import os
import shutil
import sys
import textwrap
from collections.abc import Iterable

from rich.console import Console, RenderableType
from rich.text import Text

MIN_WIDTH, MAX_WIDTH = 80, 200


def columns_of(width: int | None) -> int:
    """The width that is asked for, else the terminal's, within what can be read."""
    return min(max(width or shutil.get_terminal_size((100, 24)).columns, MIN_WIDTH), MAX_WIDTH)


def wrapped(lines: Iterable[str], width: int | None = None) -> str:
    """Lines within the terminal's width; one that goes on keeps its indent and two more.

    >>> print(wrapped(["  a word " + "x" * 76], 80))
      a word
        xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx
    """
    columns = columns_of(width)
    return "\n".join(
        part
        for line in lines
        for part in textwrap.wrap(
            line,
            columns,
            subsequent_indent=" " * (len(line) - len(line.lstrip()) + 2),
            break_on_hyphens=False,
        )
        or [""]
    )


def one_row(line: str, width: int) -> str:
    """What one row of a terminal holds of a line; of a longer one the end is left out.

    >>> one_row("checkpoint: it grew", 12)
    'checkpoint:…'
    """
    text = Text(line)
    text.truncate(width, overflow="ellipsis")
    return text.plain


def rendered(part: RenderableType, *, width: int | None = None, colour: bool | None = None) -> str:
    """Text without spaces at the ends of lines.

    Args:
        width: columns, kept within 80 and 200; by default those of the terminal.
        colour: with ANSI colours; by default where stdout is a terminal and NO_COLOR is unset.
    """
    if colour is None:
        colour = sys.stdout is not None and sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    buffer = io.StringIO()
    console = Console(
        file=buffer,
        width=columns_of(width),
        force_terminal=colour,
        color_system="standard" if colour else None,
        legacy_windows=False,
    )
    console.print(part)
    return "\n".join(line.rstrip() for line in buffer.getvalue().rstrip().split("\n"))
