"""Names in narrow columns: lines end between words, and after the _ of a code."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rich.cells import cell_len, chop_cells

# A name without any place to break may be cut from here on.
MAX_PIECE = 24


def pieces(text: str) -> list[str]:
    """What a line holds whole or not at all.

    >>> pieces("two words"), pieces("no_goal_gain")
    (['two ', 'words'], ['no_', 'goal_', 'gain'])
    """
    return re.findall(r"[^\s_/-]*[\s_/-]+|[^\s_/-]+", text)


def least_width(text: str) -> int:
    """Columns of a terminal in which no word is cut; of endless ones ``MAX_PIECE``."""
    return min(max((cell_len(piece.rstrip()) for piece in pieces(text)), default=0), MAX_PIECE)


def folded(text: str, width: int) -> str:
    """Lines of at most ``width`` columns; only a word that is longer is cut.

    >>> print(folded("memory_saving_below_threshold", 14))
    memory_saving_
    below_
    threshold
    """
    lines = [""]
    for piece in pieces(text):
        if cell_len(lines[-1] + piece.rstrip()) <= width:
            lines[-1] += piece
        elif cell_len(piece.rstrip()) <= width:
            lines.append(piece)
        else:
            lines += chop_cells(piece.rstrip(), width)
    return "\n".join(line.rstrip() for line in lines if line.strip())


def shared_out(least: Sequence[int], wanted: Sequence[int], width: int) -> list[int]:
    """The width of each column: the least that it needs, and its part of what is left.

    >>> shared_out([6, 10], [8, 40], 30), shared_out([24, 10], [30, 10], 20)
    ([6, 23], [10, 10])
    """
    found = list(least)
    while sum(found) > width and max(found) > 1:
        found[found.index(max(found))] -= 1
    left, need = width - sum(found), sum(wanted) - sum(found)
    if left >= need:
        return list(wanted)
    return [own + left * (most - own) // need for own, most in zip(found, wanted, strict=True)]
