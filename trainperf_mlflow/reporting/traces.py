"""Traces on the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rich import box
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from trainperf_mlflow.analysis.traces_results import (
    Change,
    KindTime,
    TraceAnalysis,
    TraceComparison,
    verdict,
)
from trainperf_mlflow.reporting.console import columns_of, rendered
from trainperf_mlflow.reporting.text import clipped, number, plain

_NAME_CHARS = 300
_US_PER_MS = 1000.0
# Changes below this share of the step are no news.
_NEWS = 0.001
_FACTOR_FROM = 1000  # percent
_COLOURS = {"grew": "red", "new": "red", "shrank": "green", "vanished": "green", "same": "dim"}


def trace_text(trace: TraceAnalysis, top: int, *, width: int | None = None) -> str:
    """One trace: heading, parts, phases, kinds, the largest kernels and operators, and limits."""
    views: list[RenderableType] = [_heading(trace), _parts(trace)]
    if len(trace.ranks) > 1:
        views.append(_ranks(trace))
    views.append(_facts(trace))
    if trace.kernels:
        views += [_kinds(trace, "kernels", trace.kernels), _kernels(trace, top)]
    elif trace.operators:
        views.append(_kinds(trace, "operators, own time on the host", trace.operators))
    if trace.operators:
        views.append(_operators(trace, top))
    return _rendered([*views, *_limits(trace.missing)], width)


def comparison_of_traces_text(
    compared: TraceComparison, top: int, *, width: int | None = None
) -> str:
    """Two traces: both headings, what changed in total, in parts, phases and kinds, and where."""
    views: list[RenderableType] = [
        Text.assemble(("first   ", "bold"), _heading(compared.before)),
        Text.assemble(("second  ", "bold"), _heading(compared.after)),
        _changes(f"ms per {compared.per}", [compared.total, *compared.parts], all_of_them=True),
    ]
    on_device = "cpu" not in (compared.before.device, compared.after.device)
    least = _NEWS * max(compared.total.before_us or 0.0, compared.total.after_us or 0.0)

    def news(changes: Iterable[Change]) -> list[Change]:
        return [change for change in changes if abs(change.delta_us) >= least][:top]

    where = "kernels" if on_device else "operators, own time on the host"
    for title, changes in (
        ("phases", compared.phases),
        (f"kinds of {where}", compared.kinds),
        (
            "operators, time of the kernels they launched"
            if on_device
            else "operators, own time on the host",
            news(compared.operators),
        ),
        ("kernels", news(compared.kernels)),
    ):
        if changes:
            views.append(_changes(title, changes))
    return _rendered([*views, *_limits(compared.missing)], width)


def _heading(trace: TraceAnalysis) -> Text:
    rank = (
        ""
        if trace.rank is None or not trace.world_size
        else (f", rank {trace.rank} of {trace.world_size}")
    )
    steps = (
        f"{trace.steps} step{'s' * (trace.steps > 1)}, "
        f"{_ms(trace.total_us / trace.steps)} ms{' each' * (trace.steps > 1)}"
        if trace.steps
        else f"no steps marked, {_ms(trace.total_us)} ms in all"
    )
    return Text.assemble(
        (clipped(plain(trace.file), 60), "bold"), f" on {plain(trace.device)}{rank}: {steps}"
    )


def _parts(trace: TraceAnalysis) -> Table:
    """Parts as rows, the whole and the phases as columns."""
    per = _per(trace)
    table = _table("where the time went", _unit(trace), "share", *trace.phases)
    columns = list(trace.phases.values())
    for name, us in [*trace.parts_us.items(), ("total", trace.total_us)]:
        cells = [
            phase.total_us if name == "total" else phase.parts_us.get(name, 0.0)
            for phase in columns
        ]
        table.add_row(
            name.replace("_", " "),
            _ms(us / per),
            _share(us, trace.total_us),
            *(_ms(cell / per) for cell in cells),
            style="bold" if name == "total" else None,
        )
    if trace.device != "cpu" and columns:
        launched = [_ms(phase.device_us / per) for phase in columns]
        table.add_row("launched by the phase", "", "", *launched, style="dim")
    return table


def _facts(trace: TraceAnalysis) -> Text:
    per = _per(trace)
    lines = [
        f"busy {_share(trace.busy_us, trace.total_us)}, idle "
        f"{_share(trace.idle_us, trace.total_us)}"
    ]
    if trace.data_wait:
        lines.append(
            f"waiting for data: {_ms(trace.data_wait.host_us / per)} ms on the host, "
            f"{_ms(trace.data_wait.exposed_us / per)} ms of it not hidden"
        )
    if trace.recompute and trace.recompute.host_us:
        lines.append(
            f"recomputed in backward: {_ms(trace.recompute.host_us / per)} ms on the host"
            + (
                f", {_ms(trace.recompute.device_us / per)} ms of kernels"
                if trace.device != "cpu"
                else ""
            )
        )
    return Text("\n".join(lines))


def _ranks(trace: TraceAnalysis) -> Table:
    names = list(trace.parts_us)
    table = _table("ranks, ms", "total", *(name.replace("_", " ") for name in names))
    for rank in trace.ranks:
        table.add_row(
            f"process {plain(rank.process)}",
            _ms(rank.total_us),
            *(_ms(rank.parts_us.get(name)) for name in names),
        )
    return table


def _kinds(trace: TraceAnalysis, title: str, kinds: Mapping[str, KindTime]) -> Table:
    total = sum(kind.total_us for kind in kinds.values())
    precise = any(kind.precision_us for kind in kinds.values())
    detail = ["precision"] if precise else []
    table = _table(f"{title} by kind", _unit(trace), "share", "count", *detail)
    for name, kind in sorted(kinds.items(), key=lambda item: -item[1].total_us):
        precisions = sorted(kind.precision_us.items(), key=lambda item: -item[1])
        shares = ", ".join(f"{key} {_share(us, kind.total_us)}" for key, us in precisions)
        table.add_row(
            name,
            _ms(kind.total_us / _per(trace)),
            _share(kind.total_us, total),
            _count(kind.count, trace),
            *([shares] if precise else []),
        )
    return table


def _kernels(trace: TraceAnalysis, top: int) -> Table:
    table = _table("kernels and copies", _unit(trace), "count", "kind", "precision")
    for row in trace.top_kernels[:top]:
        us = _ms(row.total_us / _per(trace))
        table.add_row(_name(row.name), us, _count(row.count, trace), row.kind, row.precision)
    return table


def _operators(trace: TraceAnalysis, top: int) -> Table:
    columns = ["host ms", *(["device ms"] if trace.device != "cpu" else []), "count", "kind"]
    per = " per step" if trace.steps else ""
    table = _table(f"operators, own time{per}", *columns)
    for row in trace.top_operators[:top]:
        us = [row.self_us, *([row.device_us] if trace.device != "cpu" else [])]
        cells = [_ms(each / _per(trace)) for each in us]
        table.add_row(_name(row.name), *cells, _count(row.count, trace), row.kind)
    return table


def _per(trace: TraceAnalysis) -> int:
    return trace.steps or 1


def _unit(trace: TraceAnalysis) -> str:
    return "ms per step" if trace.steps else "ms"


def _count(count: int, trace: TraceAnalysis) -> str:
    return f"{count / _per(trace):.4g}"


def _changes(title: str, changes: Iterable[Change], *, all_of_them: bool = False) -> Table:
    table = _table(title, "first", "second", "change", "%", "")
    for change in changes:
        word = verdict(change)
        if not all_of_them and not change.delta_us and not change.before_us:
            continue
        table.add_row(
            _name(change.name.replace("_", " ") if all_of_them else change.name),
            _ms(change.before_us),
            _ms(change.after_us),
            ("-" if change.delta_us < 0 else "+") + _ms(abs(change.delta_us)),
            _ratio(change),
            Text(word, style=_COLOURS[word]),
        )
    return table


def _ratio(change: Change) -> str:
    """In percent; as a factor where percents say nothing any more."""
    if not change.before_us or change.after_us is None:
        return "-"
    percent = 100 * change.delta_us / change.before_us
    if percent >= _FACTOR_FROM:
        return f"{change.after_us / change.before_us:.0f} x"
    return f"{percent:+.0f}"


def _limits(missing: Iterable[str]) -> list[RenderableType]:
    lines = [Padding(Text(f"- {clipped(plain(text), 400)}"), (0, 0, 0, 2)) for text in missing]
    return [Text("what this cannot tell:", style="yellow"), *lines] if lines else []


def _table(title: str, *columns: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    table.add_column(title, overflow="ellipsis", no_wrap=True)
    for column in columns:
        words = column in ("kind", "precision", "")
        table.add_column(column, justify="left" if words else "right", no_wrap=True)
    return table


def _fit(table: Table, width: int) -> None:
    """Gives the names what the numbers leave: a clipped name can still be told."""
    numbers = 0
    for column in table.columns[1:]:
        cells = [str(column.header), *(str(cell) for cell in column.cells)]
        numbers += max(len(cell) for cell in cells) + 3
    limit = max(width - numbers - 2, 20)
    table.columns[0].max_width = limit
    names = [cell for cell in table.columns[0].cells if isinstance(cell, Text)]
    shortened = _told_apart([name.plain for name in names], limit)
    for name, short in zip(names, shortened, strict=True):
        name.plain = short


def _told_apart(names: list[str], limit: int) -> list[str]:
    """Long names clipped at their end, or around their middle where others would look the same.

    >>> _told_apart(["gemm_128_relu_nn", "gemm_128_relu_tn", "sum"], 11)
    ['gemm...u_nn', 'gemm...u_tn', 'sum']
    """
    heads = [name[: limit - 3] for name in set(names)]
    head = (limit - 3) // 2
    return [
        clipped(name, limit)
        if len(name) <= limit or heads.count(name[: limit - 3]) < 2
        else f"{name[:head]}...{name[-(limit - 3 - head) :]}"
        for name in names
    ]


def _name(text: str) -> Text:
    """A kernel's name without what all of them have in common."""
    short = text.replace("(anonymous namespace)::", "").replace("at::native::", "")
    return Text(clipped(plain(short.removeprefix("void ")), _NAME_CHARS))


def _ms(us: float | None) -> str:
    return number(None if us is None else us / _US_PER_MS, 2)


def _share(us: float, of: float) -> str:
    return f"{100 * us / of:.1f}%" if of else "-"


def _rendered(views: list[RenderableType], width: int | None) -> str:
    for view in views:
        if isinstance(view, Table):
            _fit(view, columns_of(width))
    return rendered(Group(*views), width=width)
