"""Which operators take the time of a torch.profiler trace: own time on the host and the device."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from trainperf_mlflow.attribution import PHASES, Operator

# Events on the host that contain one another; what only waits for the device counts, too.
_HOST = frozenset({"cpu_op", "user_annotation", "cuda_runtime", "cuda_driver", "xpu_runtime"})
_DEVICE = frozenset({"kernel", "gpu_memcpy", "gpu_memset"})
MARK = "phase."
_STEP = "ProfilerStep#"
US_PER_MS = 1000.0

Event = Mapping[str, Any]


def top_operators(events: Iterable[Event], count: int) -> tuple[Operator, ...]:
    """The operators with the most own time, on host and device together, the most first.

    An operator's own time on the host is its time without that of what it calls; on the
    device, that of the kernels and copies that it launched itself (linked by the id that
    both bear). Where a trace has no device events, the device's time is None.
    """
    events = list(events)
    host = [event for event in events if event.get("cat") in _HOST and event.get("ph") == "X"]
    own_us = _own_times(host)
    calls: dict[str, int] = defaultdict(int)
    cpu_us: dict[str, float] = defaultdict(float)
    by_id: dict[Any, str] = {}
    for event, own in zip(host, own_us, strict=True):
        if event["cat"] == "cpu_op":
            calls[event["name"]] += 1
            cpu_us[event["name"]] += own
            by_id[event.get("args", {}).get("External id")] = event["name"]
    device_us: dict[str, float] | None = None
    for event in events:
        if event.get("cat") in _DEVICE:
            device_us = defaultdict(float) if device_us is None else device_us
            name = by_id.get(event.get("args", {}).get("External id"))
            if name is not None:
                device_us[name] += float(event.get("dur", 0.0))
    operators = [
        Operator(
            name=name,
            calls=calls[name],
            self_cpu_ms=cpu_us[name] / US_PER_MS,
            self_device_ms=None if device_us is None else device_us.get(name, 0.0) / US_PER_MS,
        )
        for name in calls
    ]
    # On a device the host's time is mostly waiting or launching: kernels come first.
    operators.sort(key=lambda o: (-(o.self_device_ms or 0.0), -o.self_cpu_ms, o.name))
    if device_us is None:
        return tuple(operators[:count])
    on_host = sorted(operators, key=lambda o: (-o.self_cpu_ms, o.name))[:count]
    on_device = [o for o in operators[:count] if o.self_device_ms]
    return tuple(dict.fromkeys([*on_device, *on_host]))


def phase_times(events: Iterable[Event]) -> dict[str, float]:
    """Mean time of each phase's marks on the host, and of the rest, per step of the trace; ms."""
    steps, total_us = 0, 0.0
    phases_us: dict[str, float] = defaultdict(float)
    for event in events:
        if event.get("cat") != "user_annotation":
            continue
        name = str(event.get("name"))
        if name.startswith(_STEP):
            steps += 1
            total_us += float(event["dur"])
        elif name.startswith(MARK):
            phases_us[name.removeprefix(MARK)] += float(event["dur"])
    if not steps or not phases_us:
        return {}
    phases_us["other"] = total_us - sum(phases_us.values())
    return {p: phases_us[p] / steps / US_PER_MS for p in PHASES if p in phases_us}


def _own_times(events: list[Event]) -> list[float]:
    """Each event's duration without that of the events directly inside it, in us."""
    begins = [float(event["ts"]) for event in events]
    durations = [float(event["dur"]) for event in events]
    own = list(durations)
    open_by_thread: dict[Any, list[tuple[float, int]]] = defaultdict(list)
    for i in sorted(range(len(events)), key=lambda i: (begins[i], -durations[i])):
        stack = open_by_thread[events[i].get("pid"), events[i].get("tid")]
        while stack and stack[-1][0] <= begins[i]:
            stack.pop()
        if stack:
            own[stack[-1][1]] -= durations[i]
        stack.append((begins[i] + durations[i], i))
    return own
