"""A ladder of lengths on the terminal and in the note on its run."""

from __future__ import annotations

from collections.abc import Mapping

from trainperf_mlflow.decisions.scope_study import Rung, Scope
from trainperf_mlflow.reporting.console import wrapped
from trainperf_mlflow.reporting.next_steps import next_line
from trainperf_mlflow.reporting.note import MAX_NOTE
from trainperf_mlflow.reporting.table import how_sure
from trainperf_mlflow.reporting.text import clipped, markdown, number, plain

_CHARS = 400


def scope_text(scope: Scope, *, width: int | None = None) -> str:
    """The lengths, where it stopped, and the verdict; as wide as the terminal is."""
    decision = scope.decision
    lines = [_line(scope.name), "", *(f"  {_line(rung_line(rung))}" for rung in scope.rungs)]
    if scope.stopped:
        lines += ["", f"  ! {_line(scope.stopped)}"]
    lines += [
        "",
        f"{scope.verdict.decision}{how_sure(decision)} ({decision.reason})",
        f"  {_line(decision.text)}",
        f"  {_line(next_line(decision.next_action))}",
        f"  scope run: {scope.study_id}",
    ]
    return wrapped(lines, width)


def scope_note(scope: Scope, links: Mapping[str, str]) -> str:
    """Markdown for the ladder's run; ``links`` are study id -> page."""
    decision = scope.decision
    head = (
        f"**{scope.verdict.decision}**{how_sure(decision)} (`{decision.reason}`)  \n"
        f"{_short(decision.text)}  \nNext: `{decision.next_action}`."
    )
    lines = []
    for rung in scope.rungs:
        page = links.get(rung.study_id or "")
        text = _short(rung_line(rung))
        lines.append(f"- [study](<{page}>): {text}" if page else f"- {text}")
    if scope.stopped:
        lines.append(f"- Stopped: {_short(scope.stopped)}")
    return "\n\n".join([head, "\n".join(lines)])[:MAX_NOTE]


def rung_line(rung: Rung) -> str:
    """One length in words."""
    if rung.study_id is None:
        predicted = ", ".join(f"{name} {mb:.0f} MiB" for name, mb in rung.predicted_mb.items())
        return f"seq_len {rung.seq_len}: not measured; predicted: {predicted}"
    sides = ", ".join(
        f"{name} {number(rung.peak_mem_mb.get(name), 1)} MiB ({status}, "
        f"{rung.successful_runs.get(name, 0)} repeats)"
        for name, status in rung.status.items()
    )
    return f"seq_len {rung.seq_len}: {sides}"


def _line(text: str) -> str:
    return clipped(plain(text), _CHARS)


def _short(text: str) -> str:
    return markdown(clipped(plain(text), _CHARS))
