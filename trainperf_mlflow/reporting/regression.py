"""A regression on the terminal and in its run's note: the single gain and the neighbours apart."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from trainperf_mlflow.decisions.regression import MEMORY, RegressionRow
from trainperf_mlflow.decisions.regression_study import Regression, RegressionWorkload
from trainperf_mlflow.reporting.console import wrapped
from trainperf_mlflow.reporting.next_steps import next_line
from trainperf_mlflow.reporting.note import MAX_NOTE
from trainperf_mlflow.reporting.table import how_sure
from trainperf_mlflow.reporting.text import clipped, markdown, number, plain

_CHARS = 400
_GAINS = (
    ("time", "time_gain_ms", "ms", 2),
    ("memory", "memory_gain_mb", "MiB", 1),
    ("throughput", "throughput_gain", "samples/s", 2),
)


def regression_text(found: Regression, *, width: int | None = None) -> str:
    """The whole decision: contract, each workload, the bottleneck, what does not pass.

    As wide as the terminal is; a line that goes on is indented.
    """
    contract = found.contract
    lines = [
        _line(found.name),
        _line(
            f"{contract.candidate_id} against {contract.baseline_id}, "
            f"changed: {contract.changed_variable}"
        ),
        "",
        *workload_lines(found),
        "",
        f"  bottleneck: {_line(bottleneck_line(found))}",
    ]
    lines += [f"  ! {_line(item.text)}" for item in found.shortfalls]
    decision = found.decision
    lines += [
        "",
        f"{decision.decision} {_line(contract.candidate_id)}{how_sure(decision)} "
        f"({decision.reason}, policy {decision.policy})",
        f"  {_line(decision.text)}",
        f"  {_line(next_line(decision.next_action, rollback=decision.rollback))}",
        f"  regression run: {found.study_id}",
    ]
    return wrapped(lines, width)


def workload_lines(found: Regression) -> list[str]:
    """One line a workload, the primary first; those that failed say why."""
    return [f"  {_line(line)}" for line in _lines(found)]


def bottleneck_line(found: Regression) -> str:
    """Whether the original bottleneck shrank, and what takes the most time now."""
    name, evidence = found.original_bottleneck, found.evidence
    row = evidence.primary
    if name is None:
        return "not known: no hypothesis, and no phases (trainperf phase STUDY)"
    if row is None:
        return f"{name}; the primary workload has no evidence"
    if name == MEMORY:
        shrank = "shrank" if evidence.original_bottleneck_reduced else "did not shrink"
        return f"peak memory {shrank}{_now(row)}"
    if row.original_bottleneck_delta_ms is None:
        return f"{name}; how long it takes was not measured (trainperf phase STUDY)"
    gain = row.original_bottleneck_delta_ms
    word = f"shrank by {gain:.2f} ms" if gain > 0 else f"did not shrink ({-gain + 0.0:+.2f} ms)"
    return f"{name} {word}{_now(row)}"


def regression_note(found: Regression, links: Mapping[str, str]) -> str:
    """Markdown for the regression's run: the decision first, then the studies with their links.

    Args:
        links: study id -> page.
    """
    decision = found.decision
    rollback = ", roll the change back" if decision.rollback else ""
    head = (
        f"**{decision.decision}: {_short(found.contract.candidate_id)}**{how_sure(decision)} "
        f"(`{decision.reason}`, policy `{decision.policy}`)  \n{_short(decision.text)}  \n"
        f"Next: `{decision.next_action}`{rollback}."
    )
    lines = [
        f"- {_linked(workload, links)}: {_short(line)}"
        for workload, line in zip(_ordered(found), _lines(found), strict=True)
    ]
    lines.append(f"- Bottleneck: {_short(bottleneck_line(found))}")
    return "\n\n".join([head, "\n".join(lines)])[:MAX_NOTE]


def _lines(found: Regression) -> Iterator[str]:
    rows = {row.workload_id: row for row in found.evidence.adjacent}
    if found.evidence.primary is not None:
        rows[found.evidence.primary.workload_id] = found.evidence.primary
    for workload in _ordered(found):
        row = rows.get(workload.workload_id)
        if row is None:
            why = workload.error or workload.record.get("status")
            yield f"{workload.role} {workload.workload_id}: failed: {why}"
        else:
            against = f"; {workload.contradicted}" if workload.contradicted else ""
            yield (
                f"{workload.role} {workload.workload_id}: {_gains(row)}{_others(workload)}{against}"
            )


def _ordered(found: Regression) -> list[RegressionWorkload]:
    return sorted(found.workloads, key=lambda workload: workload.role != "primary")


def _gains(row: RegressionRow) -> str:
    said = []
    for what, field, unit, decimals in _GAINS:
        value: float | None = getattr(row, field)
        if value is not None:
            word = "gains" if value > 0 else "loses"
            amount = f"{word} {number(abs(value), decimals)} {unit} of"
            said.append(f"{amount} {what}" if value else f"{what} unchanged")
    return ", ".join([*said, _quality(row.quality_delta)])


def _quality(delta: float | None) -> str:
    """The difference in eval loss in words: its sign would read as a gain.

    >>> _quality(0.02), _quality(-0.5), _quality(0.0), _quality(None)
    ('eval loss worse by 0.02', 'eval loss better by 0.5', 'eval loss unchanged', \
'quality was not checked')
    """
    if delta is None:
        return "quality was not checked"
    if not delta:
        return "eval loss unchanged"
    return f"eval loss {'worse' if delta > 0 else 'better'} by {abs(delta):.4g}"


def _others(workload: RegressionWorkload) -> str:
    listed = ", ".join(f"{key} {new}" for key, (_, new) in workload.differs.items())
    return f" [{listed}]" if listed else ""


def _now(row: RegressionRow) -> str:
    now = row.candidate_bottleneck
    return f"; now {now} takes the most time" if now else ""


def _linked(workload: RegressionWorkload, links: Mapping[str, str]) -> str:
    page = links.get(workload.study_id or "")
    name = _short(workload.study or workload.workload_id)
    return f"[{name}](<{page}>)" if page else name


def _line(text: str) -> str:
    return clipped(plain(text), _CHARS)


def _short(text: str) -> str:
    return markdown(clipped(plain(text), _CHARS))
