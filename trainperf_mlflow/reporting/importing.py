"""What became of imported reports, on the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def outcomes_text(outcomes: Sequence[Mapping[str, Any]]) -> str:
    """One paragraph per report; ``outcomes`` are dumped ``ImportOutcome`` records."""
    return "\n".join(line for item in outcomes for line in _lines(item))


def _lines(item: Mapping[str, Any]) -> list[str]:
    known = ", imported before" if item["already"] else ""
    lines = [
        f"{item['file']}: study {item['study_id']} ({item['format']}{known})",
        f"  name: {item['study']}",
    ]
    ours = f"{item['decision']} ({item['reason']})"
    if item["published_decision"] is None:
        lines.append(f"  decided {ours}; the report decides nothing")
    elif item["agrees"]:
        lines.append(f"  decided {ours}, as published")
    else:
        lines.append(f"  published {item['published_decision']}, decided {ours}:")
        lines += [f"    {difference}" for difference in item["differences"]]
    rest = [text for text in item["warnings"] if text not in item["differences"]]
    return [
        *lines,
        *(f"  ! {text}" for text in rest),
        # By its id: several files may bear one name.
        f"  all of it: trainperf show {item['study_id']}",
    ]
