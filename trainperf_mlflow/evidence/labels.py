"""The label of a close: a name that somebody gave it, and not what stands in an example."""

from __future__ import annotations

from trainperf_mlflow.errors import PlanError
from trainperf_mlflow.messages import shown

MAX_LABEL = 250
# What stands in examples where a label of one's own belongs.
_PLACEHOLDERS = frozenset(
    {"label", "l", "run_label", "your_label", "unique_label", "placeholder", "changeme"}
    | {"change_me", "todo", "tbd", "fixme", "xxx", "none", "null", "..."}
    | {"replace_with_unique_label", "replace_with_your_label", "replace_me", "replaceme"}
)


def known_label(label: str | None) -> str:
    """A label that says something.

    Raises:
        PlanError: it is missing, empty, too long or a placeholder.
    """
    text = (label or "").strip()
    word = text.lower().strip("<>[]{}$").replace("-", "_").replace(" ", "_")
    if not text or word in _PLACEHOLDERS:
        what = f"{shown(label)} is a placeholder" if text else "it is empty"
        raise PlanError(f"a close needs a label of its own ({what}); give --label, such as v1")
    if len(text) > MAX_LABEL or not text.isprintable():
        raise PlanError(
            f"the label {shown(text)} has {len(text)} characters or one that cannot be printed; "
            f"give at most {MAX_LABEL} plain ones"
        )
    return text
