"""Our analysis of a trace of 100 MB against what loading it takes otherwise.

Usage: .venv/bin/python scripts/bench_traces.py [--short]

The trace is a real one, recorded here with torch.profiler and repeated until it
has the size, its times shifted. Each reader runs in a process of its own, its
imports done before the clock starts; the readers take turns, and the median
counts. HolisticTraceAnalysis is measured where it is installed. ``--short``
only shows that the script works: its numbers mean nothing.
"""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

TARGET_BYTES, SHORT_BYTES = 100_000_000, 2_000_000
ROUNDS, SHORT_ROUNDS = 3, 1
STEPS = 2
# The limits, as the project promises them.
HTA_RATIO = 15.0
MEMORY_RATIO = 3.0

# Each prints seconds, and the growth and the peak of its resident memory in KiB. The
# kernel's count per address space: ru_maxrss would begin with that of this process.
READER = """
import json, re, sys, time
def peak_kib():
    with open("/proc/self/status") as status:
        return int(re.search(r"VmHWM:\\s*(\\d+)", status.read())[1])
{imports}
path = sys.argv[1]
before = peak_kib()
begin = time.perf_counter()
{read}
seconds = time.perf_counter() - begin
peak = peak_kib()
print(json.dumps([seconds, peak - before, peak]))
"""
READERS = {
    "trainperf trace": (
        "from trainperf_mlflow.analysis.traces import analyse",
        "found = analyse(path)",
    ),
    "json.load": ("", "found = json.load(open(path, 'rb'))"),
    "HolisticTraceAnalysis, load": (
        "from hta.trace_analysis import TraceAnalysis",
        "found = TraceAnalysis(trace_files={0: path}, trace_dir='')",
    ),
}
OURS, PLAIN, HTA = READERS


class Cost(NamedTuple):
    """Medians over the rounds. ``grown_mb``: beyond what the imports hold."""

    seconds: float
    grown_mb: float
    peak_mb: float


def recorded_steps(folder: Path) -> dict[str, Any]:
    """A trace of a small transformer's training, as its users record it."""
    import torch
    from torch.profiler import ProfilerActivity, profile, record_function, schedule

    torch.set_num_threads(1)
    layer = torch.nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)
    model = torch.nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
    optimizer = torch.optim.AdamW(model.parameters())
    batch = torch.randn(2, 16, 64)
    path = folder / "recorded.json"
    with profile(
        activities=[ProfilerActivity.CPU],
        schedule=schedule(wait=0, warmup=1, active=STEPS, repeat=1),
        on_trace_ready=lambda done: done.export_chrome_trace(str(path)),
        record_shapes=True,
        profile_memory=True,
    ) as profiler:
        for _ in range(STEPS + 1):
            with record_function("phase.forward"):
                loss = model(batch).square().mean()
            with record_function("phase.backward"):
                loss.backward()
            with record_function("phase.optimizer"):
                optimizer.step()
                optimizer.zero_grad()
            profiler.step()
    found: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return found


def write_tiled(trace: dict[str, Any], path: Path, size: int) -> int:
    """Writes the trace's steps over and over until the file has a size; returns how often."""
    events = [event for event in trace.pop("traceEvents") if "ts" in event]
    first = min(float(event["ts"]) for event in events)
    last = max(float(event["ts"]) + float(event.get("dur", 0)) for event in events)
    times = 0
    with path.open("w", encoding="utf-8") as file:
        file.write(json.dumps(trace)[:-1] + ', "traceEvents": [\n')
        while file.tell() < size:
            shift = times * (last - first)
            for event in events:
                moved = dict(event, ts=event["ts"] + shift)
                if moved["name"].startswith("ProfilerStep#"):
                    step = int(moved["name"].split("#")[1]) + times * STEPS
                    moved["name"] = f"ProfilerStep#{step}"
                file.write("  " + json.dumps(moved) + ",\n")
            times += 1
        file.write(json.dumps(events[0]) + "\n]}\n")
    return times


def cost(reader: str, path: Path) -> tuple[float, float, float]:
    imports, read = READERS[reader]
    root = str(Path(__file__).resolve().parent.parent)
    done = subprocess.run(
        [sys.executable, "-c", READER.format(imports=imports, read=read), path],
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([root, *sys.path]),
            "OMP_NUM_THREADS": "1",
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        check=True,
    )
    seconds, grown, peak = json.loads(done.stdout.splitlines()[-1])
    return seconds, grown * 1024 / 1e6, peak * 1024 / 1e6


def costs(files: dict[str, Path], readers: list[str], rounds: int) -> dict[str, Cost]:
    """By reader and file; the readers take turns, so that what slows the machine slows all."""
    found: dict[str, list[tuple[float, float, float]]] = {}
    for _ in range(rounds):
        for reader in readers:
            for kind, path in files.items():
                if kind == ".json" or reader == OURS:
                    found.setdefault(f"{reader} {kind}", []).append(cost(reader, path))
    return {name: Cost(*map(median, zip(*each, strict=True))) for name, each in found.items()}


def report(found: dict[str, Cost], size: float) -> Iterator[str]:
    yield f"{'':34}{'seconds':>9}{'MB more':>10}{'MB in all':>11}{'MB more / MB of text':>22}"
    for name, each in found.items():
        yield (
            f"{name:34}{each.seconds:9.2f}{each.grown_mb:10.0f}{each.peak_mb:11.0f}"
            f"{each.grown_mb * 1e6 / size:22.2f}"
        )
    yield ""
    ours = found[f"{OURS} .json"]
    plain = found[f"{PLAIN} .json"]
    yield (
        f"json.load alone takes {plain.seconds / ours.seconds:.1f} times the time of our whole "
        f"analysis and {plain.grown_mb / ours.grown_mb:.1f} times its memory."
    )
    ratio = ours.peak_mb * 1e6 / size
    yield (
        f"Our memory in all is {ratio:.2f} times the text (limit {MEMORY_RATIO:g}): "
        f"{_word(ratio <= MEMORY_RATIO)}"
    )
    hta = found.get(f"{HTA} .json")
    if hta is None:
        yield (
            "HolisticTraceAnalysis is not installed here: not compared "
            f"(limit: its load takes {HTA_RATIO:g} times as long)."
        )
    else:
        ratio = hta.seconds / ours.seconds
        yield (
            f"HolisticTraceAnalysis takes {ratio:.1f} times as long to load "
            f"(limit {HTA_RATIO:g}): {_word(ratio >= HTA_RATIO)}"
        )


def _word(kept: bool) -> str:
    return "kept" if kept else "MISSED"


def main(short: bool) -> None:
    readers = [OURS, PLAIN, *([HTA] if find_spec("hta") else [])]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        plain, packed = folder / "trace.json", folder / "trace.json.gz"
        times = write_tiled(recorded_steps(folder), plain, SHORT_BYTES if short else TARGET_BYTES)
        packed.write_bytes(gzip.compress(plain.read_bytes(), 6))
        size = plain.stat().st_size
        print(
            f"{size / 1e6:.1f} MB of text, {packed.stat().st_size / 1e6:.1f} MB packed: "
            f"{STEPS} recorded steps, {times} times\n"
        )
        files = {".json": plain, ".json.gz": packed}
        found = costs(files, readers, SHORT_ROUNDS if short else ROUNDS)
        print(*report(found, size), sep="\n")


if __name__ == "__main__":
    main("--short" in sys.argv[1:])
