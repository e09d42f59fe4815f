"""A prediction on the terminal."""

from __future__ import annotations

from collections.abc import Iterator

from rich import box
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from trainperf_mlflow.analysis.estimate import Estimate, VariantEstimate
from trainperf_mlflow.analysis.explained import mib
from trainperf_mlflow.reporting.console import rendered
from trainperf_mlflow.reporting.roofline import peaks_text
from trainperf_mlflow.reporting.text import clipped, number, plain

_NAME_CHARS, _LINE_CHARS = 60, 600
_TERA = 1e12
AT_BEST = "each operation reading and writing memory anew; theoretical, nothing ran"


def estimate_text(estimate: Estimate, *, width: int | None = None) -> str:
    """Table, one sentence a variant that says why, and what is not modelled."""
    return rendered(Group(*_parts(estimate)), width=width)


def _parts(estimate: Estimate) -> Iterator[RenderableType]:
    yield Text(f"{clipped(plain(estimate.workload), _NAME_CHARS)} on {estimate.device}, predicted")
    yield Text("")
    yield _table(estimate)
    yield Text("")
    yield _made_of(estimate)
    yield Text("")
    for variant in estimate.variants:
        text = (
            f"{_name(variant)}: {clipped(plain(variant.why or variant.reason or ''), _LINE_CHARS)}"
        )
        yield Padding(Text(text), (0, 0, 0, 2))
    yield Text("")
    if estimate.device_memory_mb is not None:
        yield Text(
            f"fits: every phase and {estimate.margin_mb:.0f} MiB for context and fragments within "
            f"{estimate.device_memory_mb:.0f} MiB"
        )
    if estimate.peaks is not None:
        yield Text(f"at best: {peaks_text(estimate.peaks)}, {AT_BEST}")
    missing = dict.fromkeys(item for v in estimate.variants for item in v.not_modelled)
    if missing:
        yield Text(f"not modelled: {'; '.join(missing)}")


def _table(estimate: Estimate) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True, show_edge=False)
    table.add_column("peak in MiB", overflow="fold", min_width=6)
    phases = list(dict.fromkeys(name for v in estimate.variants for name in v.phases))
    for title in ("training", *phases, "TFLOP/step"):
        table.add_column(title, justify="right", no_wrap=True)
    asked = estimate.device_memory_mb is not None
    if estimate.peaks is not None:
        table.add_column("ms at best", justify="right", no_wrap=True)
    if asked:
        table.add_column("fits")
    for variant in estimate.variants:
        if variant.status != "ok":
            table.add_row(_name(variant), variant.status)
            continue
        peaks = {name: mib(phase.peak_mem_mb) for name, phase in variant.phases.items()}
        flops = None if variant.flops_per_step is None else variant.flops_per_step / _TERA
        table.add_row(
            _name(variant),
            "-" if variant.peak_mem_mb is None else mib(variant.peak_mem_mb),
            *(peaks.get(name, "-") for name in phases),
            number(flops, 3),
            *([] if estimate.peaks is None else [number(variant.roofline_ms, 2)]),
            *(["yes" if variant.fits else "no"] if asked else []),
        )
    return table


def _made_of(estimate: Estimate) -> Table:
    """What made up each variant's training peak; that of the other phases is in the JSON."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True, show_edge=False)
    table.add_column("at the peak", overflow="fold", min_width=6)
    table.add_column("in")
    at_peak = [
        (variant, variant.peak_phase, variant.phases[variant.peak_phase].categories)
        for variant in estimate.variants
        if variant.peak_phase is not None
    ]
    shown = list(dict.fromkeys(category for _, _, found in at_peak for category in found))
    for category in shown:
        table.add_column(category.replace("_", " "), justify="right")
    for variant, phase, found in at_peak:
        table.add_row(_name(variant), phase, *(mib(found.get(c, 0.0)) for c in shown))
    return table


def _name(variant: VariantEstimate) -> str:
    return clipped(plain(variant.variant), _NAME_CHARS)
