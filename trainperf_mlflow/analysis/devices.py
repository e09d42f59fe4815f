"""What common accelerators can do at most, as their makers state it.

Dense numbers: a data sheet's figure "with sparsity" is halved. Half precision of
GeForce cards is that with FP32 accumulation, which training uses. Each of the two
dies of an MI250X is a device of its own to torch, so it has half of the sheet's.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from trainperf_mlflow.attribution import Peaks
from trainperf_mlflow.errors import PlanError


class _Sheet(NamedTuple):
    """TFLOPS by precision (None: no such path) and GB/s."""

    names: tuple[str, ...]  # what torch calls it, without the maker's words before it
    fp32: float
    tf32: float | None
    bf16: float | None
    fp16: float
    memory_gb_s: float
    source: str


_A100 = "NVIDIA A100 data sheet"
_H100 = "NVIDIA H100 data sheet"
_H200 = "NVIDIA H200 data sheet"
_V100 = "NVIDIA V100 data sheet"
_GA102 = "NVIDIA Ampere GA102 whitepaper"
_ADA = "NVIDIA Ada whitepaper"

_SHEETS = (
    _Sheet(("A100-SXM4-40GB", "A100-PCIE-40GB"), 19.5, 156, 312, 312, 1555, _A100),
    _Sheet(("A100-SXM4-80GB",), 19.5, 156, 312, 312, 2039, _A100),
    _Sheet(("A100 80GB PCIe",), 19.5, 156, 312, 312, 1935, _A100),
    _Sheet(("H100 80GB HBM3",), 67, 494.5, 989.5, 989.5, 3350, _H100),
    _Sheet(("H100 PCIe",), 51, 378, 756.5, 756.5, 2000, _H100),
    _Sheet(("H100 NVL",), 60, 417.5, 835.5, 835.5, 3900, _H100),
    _Sheet(("H200",), 67, 494.5, 989.5, 989.5, 4800, _H200),
    _Sheet(("H200 NVL",), 60, 417.5, 835.5, 835.5, 4800, _H200),
    _Sheet(("V100-SXM2-16GB", "V100-SXM2-32GB"), 15.7, None, None, 125, 900, _V100),
    _Sheet(("V100-PCIE-16GB", "V100-PCIE-32GB"), 14, None, None, 112, 900, _V100),
    _Sheet(("V100S-PCIE-32GB",), 16.4, None, None, 130, 1134, _V100),
    _Sheet(("T4",), 8.1, None, None, 65, 320, "NVIDIA Turing whitepaper"),
    _Sheet(("A10",), 31.2, 62.5, 125, 125, 600, "NVIDIA A10 data sheet"),
    _Sheet(("A30",), 10.3, 82, 165, 165, 933, "NVIDIA A30 data sheet"),
    _Sheet(("A40",), 37.4, 74.8, 149.7, 149.7, 696, "NVIDIA A40 data sheet"),
    _Sheet(("L4",), 30.3, 60, 121, 121, 300, "NVIDIA L4 data sheet"),
    _Sheet(("L40",), 90.5, 90.5, 181.05, 181.05, 864, "NVIDIA L40 data sheet"),
    _Sheet(("L40S",), 91.6, 183, 362.05, 362.05, 864, "NVIDIA L40S data sheet"),
    _Sheet(("RTX 3090",), 35.6, 35.6, 71, 71, 936, _GA102),
    _Sheet(("RTX 4080",), 48.7, 48.7, 97.5, 97.5, 716.8, _ADA),
    _Sheet(("RTX 4090",), 82.6, 82.6, 165.2, 165.2, 1008, _ADA),
    _Sheet(("RTX 5090",), 104.8, 104.8, 209.5, 209.5, 1792, "NVIDIA RTX Blackwell GPU whitepaper"),
    _Sheet(("MI210",), 45.3, None, 181, 181, 1638.4, "AMD Instinct MI210 data sheet"),
    _Sheet(
        ("MI250X",), 47.85, None, 191.5, 191.5, 1638.4, "AMD Instinct MI250X data sheet, one die"
    ),
    _Sheet(("MI300X",), 163.4, 653.7, 1307.4, 1307.4, 5300, "AMD Instinct MI300X data sheet"),
)
_BY_NAME = {name.casefold(): sheet for sheet in _SHEETS for name in sheet.names}
_MAKERS = re.compile(r"((NVIDIA|Tesla|GeForce|AMD|Instinct)\s+)*", re.IGNORECASE)


def data_sheet_peaks(device: str) -> Peaks | None:
    """The peaks of a device that torch calls so; None where they are not known for sure.

    The whole name must fit: a laptop's chip, a slice of a card or a virtual one is
    another device than the card whose name it bears.

    >>> data_sheet_peaks("NVIDIA A100-SXM4-80GB").tflops["bf16"]
    312.0
    >>> data_sheet_peaks("NVIDIA A100-SXM4-80GB MIG 1g.10gb") is None
    True
    """
    sheet = _BY_NAME.get(_plain_name(device))
    if sheet is None:
        return None
    tflops = {"fp32": sheet.fp32, "tf32": sheet.tf32, "bf16": sheet.bf16, "fp16": sheet.fp16}
    return Peaks(
        device=device.strip(),
        tflops={name: float(value) for name, value in tflops.items() if value is not None},
        memory_gb_s=sheet.memory_gb_s,
        source=sheet.source,
        evidence_level="theoretical",
    )


def known_peaks(device: str) -> Peaks:
    """The same of a device that somebody names.

    Raises:
        PlanError: it is not in the table.
    """
    found = data_sheet_peaks(device)
    if found is None:
        shown = device if len(device) <= 60 else device[:57] + "..."
        raise PlanError(
            f"the peaks of device {shown!r} are not known; give one of "
            f"{', '.join(name for sheet in _SHEETS for name in sheet.names)}"
        )
    return found


def _plain_name(device: str) -> str:
    return _MAKERS.sub("", device.strip(), count=1).casefold()


def rates(peaks: Peaks) -> str:
    """Peaks as words.

    >>> rates(data_sheet_peaks("Tesla T4"))
    'fp32 8.1, fp16 65 TFLOPS, memory 320 GB/s (NVIDIA Turing whitepaper)'
    """
    tflops = ", ".join(f"{name} {value:.3g}" for name, value in peaks.tflops.items())
    return f"{tflops} TFLOPS, memory {peaks.memory_gb_s:.4g} GB/s ({peaks.source})"
