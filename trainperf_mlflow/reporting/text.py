"""Names and errors come from users and files: what must not reach a terminal or a page as it is."""

from __future__ import annotations

import re

from trainperf_mlflow.messages import plain as plain


def clipped(text: str, limit: int) -> str:
    """At most ``limit`` characters, the end replaced by ``...``.

    >>> clipped("abcdefgh", 6)
    'abc...'
    """
    return text if len(text) <= limit else text[: limit - 3] + "..."


def markdown(text: str) -> str:
    """Text that a Markdown page shows as it is, also inside a table and where HTML is allowed.

    >>> markdown("<b>a_b|c</b>")
    '&lt;b&gt;a\\\\_b\\\\|c&lt;/b&gt;'
    """
    text = plain(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    text = re.sub(r"([\\`*_\[\]#|~$])", r"\\\1", text)
    # A bare address would become a link to wherever a name's author wants.
    return re.sub(r"(?i)(https?|ftp|mailto|www)([:.])", r"\1&#8203;\2", text)


def number(value: float | None, decimals: int) -> str:
    """A number for a table; what was not measured is a dash.

    >>> number(None, 2), number(12.3456, 2), number(0.00123, 2), number(12345.67, 2)
    ('-', '12.35', '0.0012', '12346')
    """
    if value is None:
        return "-"
    # Small values, as of a task of microseconds, keep two digits.
    if value and abs(value) < 10 ** (1 - decimals):
        return f"{value:.2g}"
    return f"{value:.{0 if abs(value) >= 10_000 else decimals}f}"
