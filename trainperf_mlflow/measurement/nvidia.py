"""Clock, temperature, power and throttling of an NVIDIA device, by the maker's own library."""

from __future__ import annotations

from contextlib import suppress
from functools import cache
from typing import Any

import torch

from trainperf_mlflow.results.repeats import DeviceState

# Bits of NVML's clock event reasons. Idle and limits set by the user are no disturbance.
_REASONS = {
    0x04: "power cap",
    0x08: "hardware slowdown",
    0x20: "heat",
    0x40: "heat",
    0x80: "power brake",
}


def device_state(device: torch.device) -> DeviceState | None:
    """The device now, or None where nobody tells: no NVIDIA device, or no ``pynvml``."""
    found = _library(device) if device.type == "cuda" else None
    if found is None:
        return None
    nvml, handle = found
    tell = next(
        (
            ask
            for name in ("Event", "Throttle")  # the older name goes with older drivers
            if (ask := getattr(nvml, f"nvmlDeviceGetCurrentClocks{name}Reasons", None)) is not None
        ),
        None,
    )
    bits = int(_asked(tell, handle) or 0)
    milliwatts = _asked(nvml.nvmlDeviceGetPowerUsage, handle)
    return DeviceState(
        clock_mhz=_asked(nvml.nvmlDeviceGetClockInfo, handle, nvml.NVML_CLOCK_SM),
        temperature_c=_asked(nvml.nvmlDeviceGetTemperature, handle, nvml.NVML_TEMPERATURE_GPU),
        power_w=None if milliwatts is None else milliwatts / 1000,
        throttled=throttle_reasons(bits),
    )


def throttle_reasons(bits: int) -> tuple[str, ...]:
    """What holds the clock down, of NVML's bit mask.

    >>> throttle_reasons(0x1), throttle_reasons(0x64)
    ((), ('power cap', 'heat'))
    """
    return tuple(dict.fromkeys(name for bit, name in _REASONS.items() if bits & bit))


def _asked(function: Any, *arguments: Any) -> float | None:
    # Each value may be unknown to a device or a driver, with an error of its own.
    with suppress(Exception):
        return float(function(*arguments))
    return None


@cache
def _library(device: torch.device) -> tuple[Any, Any] | None:
    """NVML and its handle of the device, which counts devices in another order than CUDA."""
    with suppress(Exception):
        import pynvml  # type: ignore[import-not-found, unused-ignore]

        pynvml.nvmlInit()
        uuid = torch.cuda.get_device_properties(device).uuid
        return pynvml, pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}".encode())
    return None
