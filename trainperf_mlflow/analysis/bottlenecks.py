"""Rules, one function each: what a variant's evidence shows to hold it back.

A rule returns a statement, or None where its threshold is not crossed or nothing
of the kind was measured.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

from trainperf_mlflow.analysis.explained import Explained, mib, percent
from trainperf_mlflow.analysis.explanation import PHASES_FILE, PROFILE_FILE
from trainperf_mlflow.analysis.hypothesis import another_peak, time_changes
from trainperf_mlflow.results.assessment import Statement, Suggestion

KINETO = "the advice of Kineto's TensorBoard plugin"
OURS = "our own choice"
PALM = "the lowest utilisation among the large trainings that the PaLM report lists (21 %)"

DATA_WAIT = 0.05  # of a step; KINETO
EXPOSED_COMMUNICATION = 0.10  # of a step; KINETO
DEVICE_BUSY = 0.50  # of a step; KINETO
RESERVED_OF_DEVICE = 0.90  # of the device's memory; KINETO
LOW_ROOFLINE = 0.20  # achieved of attainable; PALM
FASTER_PATH = 1.5  # the fastest precision's peak over that of fp32; OURS
RECOMPUTE = 0.10  # FLOPs repeated, of the baseline's; OURS: a full forward pass is a third
EXPOSED_COPY = 0.10  # of a step; OURS, as for communication
NOISE = 0.15  # slowest over fastest repeat, less 1; OURS, as the comparison's warning

# Where numbers of the repeats themselves are, which a comparison is made of.
REPEATS = "comparison.json"

Rule = Callable[[Explained], Statement | None]
PairRule = Callable[[Explained, Explained], Statement | None]


# --- time --------------------------------------------------------------------------------------


def data_wait(found: Explained) -> Statement | None:
    """How long a step waits for data: on a device what no work hides, else the phase's time."""
    if found.on_device or not found.has_phases:
        share, evidence = found.part_share("data_wait"), PROFILE_FILE
    else:
        share, evidence = found.phase_ms.get("data", 0.0) / found.step_ms, PHASES_FILE
    if share is None or share <= DATA_WAIT:
        return None
    return _statement(
        found,
        "data_wait",
        f"{percent(share)} of a step waits for data",
        evidence,
        {"share": share},
        DATA_WAIT,
        KINETO,
        suggest=("prepare batches in other processes, or beforehand", share, "time", "num_workers"),
    )


def exposed_communication(found: Explained) -> Statement | None:
    """Communication that no computation hides."""
    return _part(
        found,
        "exposed_communication",
        EXPOSED_COMMUNICATION,
        KINETO,
        "communicates while nothing computes",
        "overlap communication with backward, in larger buckets",
    )


def exposed_copy(found: Explained) -> Statement | None:
    """Copies that no computation hides, as of offloading."""
    return _part(
        found,
        "exposed_copy",
        EXPOSED_COPY,
        OURS,
        "copies while nothing computes",
        "copy less, or from pinned memory and without blocking",
    )


def _part(
    found: Explained, part: str, limit: float, source: str, text: str, advice: str
) -> Statement | None:
    share = found.part_share(part)
    if share is None or share <= limit:
        return None
    return _statement(
        found,
        part,
        f"{percent(share)} of a profiled step {text}",
        PROFILE_FILE,
        {"share": share},
        limit,
        source,
        suggest=(advice, share, "time", None),
    )


_IDLE_ADVICE: Mapping[str, tuple[str, str | None]] = {
    "launch_bound": ("give each launch more work: a larger batch, or compile", "compile"),
    "synchronisation": ("do not wait for the device inside a step (.item(), prints, copies)", None),
    "outside_operators": ("give each operator more work: a larger batch, or compile", "compile"),
    "data_wait": ("prepare batches in other processes, or beforehand", "num_workers"),
    "other_idle": ("look into the trace: trainperf trace shows when the device idles", None),
}


def device_idle(found: Explained) -> Statement | None:
    """The device works for less than half of a profiled step; the largest idle part says why."""
    busy = found.busy_share
    if busy is None or busy >= DEVICE_BUSY:
        return None
    idle = {part: ms for part, ms in found.parts_ms.items() if part in _IDLE_ADVICE}
    cause = max(idle, key=idle.__getitem__)
    share = idle[cause] / sum(found.parts_ms.values())
    advice, setting = _IDLE_ADVICE[cause]
    who = "the device works" if found.on_device else "operators run"
    return _statement(
        found,
        "device_idle",
        f"{who} in {percent(busy)} of a profiled step; most of the rest ({percent(share)}) is "
        f"{cause.replace('_', ' ')}",
        PROFILE_FILE,
        {"busy_share": busy, f"{cause}_share": share},
        DEVICE_BUSY,
        KINETO if found.on_device else OURS,
        suggest=(advice, share, "time", setting),
    )


def fp32_products(found: Explained) -> Statement | None:
    """Matrix products in fp32 on a device that has a faster path."""
    peaks = found.peaks
    if peaks is None or "fp32" not in peaks.tflops:
        return None
    fast = {name: peak for name, peak in peaks.tflops.items() if name in ("tf32", "bf16", "fp16")}
    best = max(fast, key=fast.__getitem__, default=None)
    if best is None or fast[best] < FASTER_PATH * peaks.tflops["fp32"]:
        return None
    share, evidence = _fp32_share(found, peaks.tflops["fp32"])
    if not share:
        return None
    factor = fast[best] / peaks.tflops["fp32"]
    return _statement(
        found,
        "fp32_products",
        f"matrix products take at least {percent(share)} of a step in fp32, and {best} is up to "
        f"{factor:.1f} times as fast on {peaks.device}",
        evidence,
        {"factor": factor, "share": share},
        FASTER_PATH,
        OURS,
        suggest=(f"compute matrix products in {best}", share * (1 - 1 / factor), "time",
                 "matmul_precision" if best == "tf32" else "precision"),
    )  # fmt: skip


def _fp32_share(found: Explained, peak_tflops: float) -> tuple[float, str]:
    """The step's share of fp32 products: as traced, else what they must take at the peak."""
    traced = found.profile.get("matmul_precision_ms") or {}
    if traced:
        return traced.get("fp32", 0.0) / sum(found.parts_ms.values()), PROFILE_FILE
    step = found.roofline.get("step")
    if step is None or step.precision != "fp32":
        return 0.0, PHASES_FILE
    return min(1.0, step.flops / (peak_tflops * 1e9) / step.time_ms), PHASES_FILE


def low_roofline(found: Explained) -> Statement | None:
    """The step achieves little of what the device could with its FLOPs and bytes."""
    point = found.roofline.get("step")
    if point is None or point.fraction >= LOW_ROOFLINE:
        return None
    return _statement(
        found,
        "low_roofline",
        f"a step achieves {percent(point.fraction)} of what its {point.bound} bound allows "
        f"({point.achieved_tflops:.3g} of {point.attainable_tflops:.3g} TFLOP/s)",
        PHASES_FILE,
        {
            "fraction": point.fraction,
            "achieved_tflops": point.achieved_tflops,
            "attainable_tflops": point.attainable_tflops,
        },
        LOW_ROOFLINE,
        PALM,
    )


def noisy_repeats(found: Explained) -> Statement | None:
    """Repeats of the same code differ so much that times of it show little."""
    for times, evidence in (
        (found.measured("step_time_ms"), REPEATS),
        (found.repeats_ms(), PHASES_FILE),
    ):
        if len(times) > 1 and max(times) / min(times) - 1 > NOISE:
            return _statement(
                found,
                "noisy_repeats",
                f"repeats of the same code took {min(times):.3g} to {max(times):.3g} ms a step",
                evidence,
                {"spread": max(times) / min(times) - 1, "min_ms": min(times), "max_ms": max(times)},
                NOISE,
                OURS,
            )
    return None


# --- memory ------------------------------------------------------------------------------------


def optimizer_holds_peak(found: Explained) -> Statement | None:
    """Techniques for activations cannot lower a peak that the optimizer's phase holds."""
    peaks = found.peak_mb
    if found.peak_phase != "optimizer":
        return None
    top = peaks["optimizer"]
    second = max((mb for phase, mb in peaks.items() if phase != "optimizer"), default=0.0)
    return _statement(
        found,
        "optimizer_holds_peak",
        f"the optimizer phase holds the memory's peak ({mib(top)} MiB, the next phase "
        f"{mib(second)}): fewer activations cannot lower it",
        PHASES_FILE,
        {f"{phase}_peak_mb": mb for phase, mb in peaks.items()},
        None,
        "a peak is that of the highest phase",
        suggest=("take the optimizer's fused kernel, or one with a smaller state",
                 (top - second) / top, "memory", "fused"),
    )  # fmt: skip


def activations_hold_peak(found: Explained) -> Statement | None:
    """Activations are the largest part of a peak in forward or backward."""
    parts, phase = found.memory_at_peak_mb, found.peak_phase
    if phase not in ("forward", "backward") or not parts:
        return None
    if max(parts, key=parts.__getitem__) != "activations":
        return None
    top = found.peak_mb[phase]
    # No technique for activations lowers the peaks of the other phases.
    floor = max((found.peak_mb.get(p, 0.0) for p in ("data", "optimizer", "other")), default=0.0)
    win = max(0.0, min(parts["activations"], top - floor)) / top
    return _statement(
        found,
        "activations_hold_peak",
        f"activations are {mib(parts['activations'])} of the {mib(top)} MiB at the peak, "
        f"in {phase}",
        PHASES_FILE,
        {"activations_mb": parts["activations"], "peak_mb": top, "floor_mb": floor},
        None,
        "the largest category at the peak",
        suggest=("recompute activations (checkpoint), or keep them in bf16", win, "memory",
                 "checkpoint"),
    )  # fmt: skip


def reserved_near_capacity(found: Explained) -> Statement | None:
    """The allocator holds nearly all of the device's memory."""
    capacity, reserved = found.device_memory_mb, found.values.metrics.get("peak_reserved_mb")
    if capacity is None or reserved is None or reserved <= RESERVED_OF_DEVICE * capacity:
        return None
    unused = max(0.0, reserved - found.values.metrics.get("peak_mem_mb", reserved)) / reserved
    return _statement(
        found,
        "reserved_near_capacity",
        f"{mib(reserved)} of the device's {mib(capacity)} MiB are reserved: a little more fails",
        REPEATS,
        {"share": reserved / capacity, "reserved_mb": reserved, "capacity_mb": capacity},
        RESERVED_OF_DEVICE,
        KINETO,
        suggest=("reserve less: PYTORCH_ALLOC_CONF=expandable_segments:True, or a smaller batch",
                 unused, "memory", None),
    )  # fmt: skip


# --- against the baseline ----------------------------------------------------------------------


def recompute(baseline: Explained, found: Explained) -> Statement | None:
    """Backward repeats a part of the forward pass."""
    before, after = baseline.matmul_flops, found.matmul_flops
    if not before.get("backward") or not found.phases.get("recomputed_modules"):
        return None
    repeated = after.get("backward", 0.0) - before["backward"]
    share = repeated / sum(before.values())
    if share <= RECOMPUTE:
        return None
    time, evidence = _recompute_time(baseline, found)
    cost = f", {percent(time)} of a step" if time else ""
    return _statement(
        found,
        "recompute",
        f"backward repeats {percent(share)} of the baseline's products{cost}",
        evidence,
        {
            "share": share,
            "recomputed_flops": repeated,
            "recomputed_modules": float(found.phases["recomputed_modules"]),
            "time_share": time,
        },
        RECOMPUTE,
        OURS,
        suggest=("recompute fewer layers, those with the most activations",
                 time, "time", None),
    )  # fmt: skip


def _recompute_time(baseline: Explained, found: Explained) -> tuple[float, str]:
    """The step's share of recomputation: as traced, else by how much longer backward takes."""
    traced = found.profile.get("recompute_ms")
    if traced:
        return float(traced) / sum(found.parts_ms.values()), PROFILE_FILE
    change = time_changes(baseline, found).get("backward")
    if change is None or change.trend != "grew":
        return 0.0, PHASES_FILE
    step = sum(each.after for each in time_changes(baseline, found).values())
    return -change.saved / step, PHASES_FILE


def peak_moved(baseline: Explained, found: Explained) -> Statement | None:
    """Another phase holds the peak than the baseline's."""
    before, after = baseline.peak_phase, found.peak_phase
    if before is None or after is None or not another_peak(baseline, found):
        return None
    old, new = baseline.peak_mb[before], found.peak_mb[after]
    return _statement(
        found,
        "peak_moved",
        f"the memory's peak moved from {before} ({mib(old)} MiB) to {after} ({mib(new)} MiB): "
        f"what {before} needs is no longer the limit",
        PHASES_FILE,
        {"before_mb": old, "after_mb": new},
        None,
        "a peak is that of the highest phase",
    )


RULES: tuple[Rule, ...] = (
    data_wait,
    exposed_communication,
    exposed_copy,
    device_idle,
    fp32_products,
    low_roofline,
    optimizer_holds_peak,
    activations_hold_peak,
    reserved_near_capacity,
    noisy_repeats,
)
PAIR_RULES: tuple[PairRule, ...] = (recompute, peak_moved)

Suggested = tuple[str, float, Literal["time", "memory"], str | None]


def _statement(
    found: Explained,
    code: str,
    text: str,
    evidence: str,
    numbers: dict[str, float],
    threshold: float | None,
    source: str,
    suggest: Suggested | None = None,
) -> Statement:
    suggestion = None
    if suggest is not None:
        advice, win, win_in, setting = suggest
        suggestion = Suggestion(
            code=code, variant=found.name, text=advice, win=win, win_in=win_in, setting=setting
        )
    return Statement(
        code=code,
        variant=found.name,
        text=text,
        evidence=evidence,
        numbers=numbers,
        threshold=threshold,
        source=source,
        suggestion=suggestion,
    )
