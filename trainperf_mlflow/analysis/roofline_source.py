"""The source's own roofline formula, for code that calls it directly."""

from __future__ import annotations

from typing import Any


def estimate_roofline(
    flops: float, memory_bytes: float, peak_flops: float, bandwidth: float
) -> dict[str, Any]:
    """The bound that four given numbers imply, as course project 74 defines it.

    A study's rooflines hold counted work against measured time; this is the plain
    formula. It reads no hardware counter, and nothing is rounded.

    Args:
        flops: floating-point operations of the work.
        memory_bytes: bytes that it moves.
        peak_flops: operations per second, in any unit that ``bandwidth`` shares.
        bandwidth: bytes per second in that unit.

    Returns:
        ``arithmetic_intensity`` (FLOP per byte), ``compute_roof``, ``bandwidth_roof``,
        ``attainable_roof`` (the lower of them), ``bound`` (``compute`` also where both
        are equal, else ``memory``) and ``evidence_level``.

    Raises:
        ValueError: a number is not positive.

    >>> roofline = estimate_roofline(2_000.0, 1_000.0, peak_flops=10.0, bandwidth=1.0)
    >>> roofline["arithmetic_intensity"], roofline["bound"]
    (2.0, 'memory')
    """
    given = {
        "flops": flops,
        "memory_bytes": memory_bytes,
        "peak_flops": peak_flops,
        "bandwidth": bandwidth,
    }
    wrong = ", ".join(f"{name} = {value}" for name, value in given.items() if not value > 0)
    if wrong:
        raise ValueError(f"{wrong}; flops/memory_bytes/peak_flops/bandwidth must be positive")
    intensity = flops / memory_bytes
    bandwidth_roof = bandwidth * intensity
    return {
        "arithmetic_intensity": intensity,
        "compute_roof": peak_flops,
        "bandwidth_roof": bandwidth_roof,
        "attainable_roof": min(peak_flops, bandwidth_roof),
        "bound": "compute" if peak_flops <= bandwidth_roof else "memory",
        "evidence_level": "theoretical_formula_only",
    }
