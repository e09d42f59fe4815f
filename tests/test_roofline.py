"""Rooflines, MFU and what they stand on: device tables, timed peaks, counted work."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import trainperf_mlflow as tp
from trainperf_mlflow.analysis import roofline
from trainperf_mlflow.analysis.devices import data_sheet_peaks
from trainperf_mlflow.attribution import Attempt, Peaks, PhaseMeasurement
from trainperf_mlflow.measurement.counting import counted_flops, moved_bytes
from trainperf_mlflow.measurement.peaks import device_peaks, measured_peaks
from trainperf_mlflow.reporting.estimate import estimate_text
from trainperf_mlflow.reporting.roofline import mfu_text, peaks_text, roofline_rows
from trainperf_mlflow.results.record import Status

# 2 TFLOPS over 100 GB/s: the ridge is at 20 FLOP per byte.
ROOF = Peaks(
    device="a device",
    tflops={"fp32": 2.0, "bf16": 8.0},
    memory_gb_s=100.0,
    source="a data sheet",
    evidence_level="theoretical",
)
CPU = torch.device("cpu")

# --- the source's formula ------------------------------------------------------------------------


def test_the_sources_formula_gives_its_fields_unrounded() -> None:
    assert tp.estimate_roofline(1.0, 3.0, peak_flops=10.0, bandwidth=1.0) == {
        "arithmetic_intensity": 1 / 3,
        "compute_roof": 10.0,
        "bandwidth_roof": 1 / 3,
        "attainable_roof": 1 / 3,
        "bound": "memory",
        "evidence_level": "theoretical_formula_only",
    }


def test_at_the_ridge_the_source_calls_it_compute_bound() -> None:
    at = tp.estimate_roofline(flops=10.0, memory_bytes=1.0, peak_flops=10.0, bandwidth=1.0)
    below = tp.estimate_roofline(flops=9.99, memory_bytes=1.0, peak_flops=10.0, bandwidth=1.0)
    assert (at["bound"], at["attainable_roof"]) == ("compute", 10.0)
    assert (below["bound"], below["attainable_roof"]) == ("memory", 9.99)


@pytest.mark.parametrize("name", ["flops", "memory_bytes", "peak_flops", "bandwidth"])
@pytest.mark.parametrize("value", [0, -1.0, math.nan])
def test_the_sources_formula_refuses_what_is_not_positive(name: str, value: float) -> None:
    given = {"flops": 1.0, "memory_bytes": 1.0, "peak_flops": 1.0, "bandwidth": 1.0, name: value}
    with pytest.raises(ValueError, match=rf"{name} = .*must be positive"):
        tp.estimate_roofline(**given)


# --- points under a roof -------------------------------------------------------------------------


def test_a_memory_bound_point_is_held_against_the_bandwidth() -> None:
    # 1 TFLOP over 100 GB: 10 FLOP per byte reach 1 TFLOPS at most; in 4 s, 0.25 were achieved.
    point = roofline.roofline_point("step", 4000.0, 1e12, 1e11, ROOF, "fp32")
    assert point is not None
    assert (point.intensity, point.attainable_tflops, point.achieved_tflops) == (10.0, 1.0, 0.25)
    assert (point.fraction, point.bound) == (0.25, "memory")


def test_a_compute_bound_point_is_held_against_the_peak_of_its_precision() -> None:
    points = {
        precision: roofline.roofline_point("forward", 1000.0, 1e12, 1e9, ROOF, precision)
        for precision in ("fp32", "bf16", "fp16")
    }
    assert points["fp16"] is None  # no such peak is known
    fp32, bf16 = points["fp32"], points["bf16"]
    assert fp32 is not None
    assert bf16 is not None
    assert (fp32.attainable_tflops, fp32.fraction, fp32.bound) == (2.0, 0.5, "compute")
    assert (bf16.attainable_tflops, bf16.fraction, bf16.bound) == (8.0, 0.125, "compute")


def test_the_ridge_itself_counts_as_compute_bound() -> None:
    assert roofline.ridge(ROOF, "fp32") == 20.0
    at = roofline.roofline_point("step", 1000.0, 20e9, 1e9, ROOF, "fp32")
    below = roofline.roofline_point("step", 1000.0, 19.99e9, 1e9, ROOF, "fp32")
    assert at is not None
    assert below is not None
    assert (at.bound, below.bound) == ("compute", "memory")
    assert at.attainable_tflops == 2.0


def test_a_phase_that_only_moves_bytes_shows_its_share_of_the_bandwidth() -> None:
    point = roofline.roofline_point("optimizer", 2000.0, 0.0, 1e11, ROOF, "fp32")
    assert point is not None
    assert (point.achieved_tflops, point.attainable_tflops) == (0.0, 0.0)
    assert (point.fraction, point.bound) == (0.5, "memory")


@pytest.mark.parametrize(("time_ms", "moved"), [(0.0, 1.0), (1.0, 0.0)])
def test_without_time_or_traffic_there_is_no_point(time_ms: float, moved: float) -> None:
    assert roofline.roofline_point("data", time_ms, 0.0, moved, ROOF, "fp32") is None


# --- a variant's summary -------------------------------------------------------------------------


def attempt(
    step_ms: float,
    flops: float,
    *,
    samples: float = 2.0,
    peaks: Peaks | None = ROOF,
    precision: str = "fp32",
    variant: str = "baseline",
) -> Attempt:
    """Half of the time each in forward and optimizer; 10 GB a phase; FLOPs in forward only."""
    half = step_ms / 2
    phases = PhaseMeasurement(
        step_ms=(step_ms,),
        phase_ms={"forward": (half,), "optimizer": (half,)},
        matmul_flops={"forward": flops} if flops else {},
        matmul_precision={"forward": precision} if flops else {},
        moved_bytes={"forward": 1e10, "optimizer": 1e10} if flops else {},
        peaks=peaks,
    )
    return Attempt(
        variant=variant, index=0, status=Status.OK, samples_per_step=samples, phases=phases
    )


def summary(own: list[Attempt], base: list[Attempt], **config: object) -> dict[str, Any]:
    return roofline.roofline_summary(own, base, roofline.best_peaks([*own, *base]), config)


def test_a_summary_has_the_steps_point_and_its_phases() -> None:
    own = [attempt(1000.0, 1e12), attempt(3000.0, 1e12)]
    found = summary(own, own)
    points = {point["name"]: point for point in found["roofline"]}
    assert list(points) == ["step", "forward", "optimizer"]
    assert points["step"]["time_ms"] == 2000.0
    assert points["step"]["moved_bytes"] == 2e10
    assert points["forward"]["fraction"] == 0.5  # 0.5 s at least, 1 s taken
    assert points["optimizer"]["fraction"] == pytest.approx(0.1)
    assert found["flops_per_step"] == 1e12
    assert found["mfu"] == 0.25  # 1 TFLOP in 2 s, of 2 TFLOPS
    assert (found["roofline_evidence"], found["counters"]) == ("counted", "not_collected")
    assert roofline.roofline_metrics(found) == {
        "mfu": 0.25,
        "flops_per_step": 1e12,
        "roofline/step_fraction": pytest.approx(0.25),
        "roofline/forward_fraction": 0.5,
        "roofline/optimizer_fraction": pytest.approx(0.1),
    }


def test_recomputed_flops_raise_the_fraction_but_not_the_mfu() -> None:
    base, again = attempt(1000.0, 1e12), attempt(1250.0, 1.25e12)
    found = summary([again], [base])
    assert found["flops_per_step"] == 1.25e12
    assert found["mfu"] == pytest.approx(0.4)  # the baseline's TFLOP in 1.25 s, of 2 TFLOPS
    assert found["roofline"][0]["fraction"] == pytest.approx(0.5)


def test_useful_work_is_counted_per_sample_where_the_batch_differs() -> None:
    base, doubled = attempt(1000.0, 1e12), attempt(1000.0, 2e12, samples=4.0)
    assert summary([base], [base])["mfu"] == 0.5
    assert summary([doubled], [base])["mfu"] == 1.0


def test_without_the_baselines_flops_there_is_no_mfu() -> None:
    found = summary([attempt(1000.0, 1e12)], [attempt(1000.0, 0.0)])
    assert found["mfu"] is None
    assert found["roofline"]
    assert "mfu" not in roofline.roofline_metrics(found)


def test_compiled_code_has_an_mfu_in_its_configured_precision_but_no_points() -> None:
    base, compiled = [attempt(1000.0, 1e12)], [attempt(500.0, 0.0)]
    assert summary(compiled, base, precision="bf16")["mfu"] == 0.25
    found = summary(compiled, base, precision="amp")  # which one it becomes is not known
    assert (found["mfu"], found["roofline"], found["roofline_evidence"]) == (None, [], None)


def test_failed_attempts_and_unknown_peaks_give_absent_numbers_and_no_error() -> None:
    failed = [Attempt(variant="x", index=0, status=Status.OOM, error="no room")]
    base = [attempt(1000.0, 1e12)]
    assert summary(failed, base)["mfu"] is None
    bare = [attempt(1000.0, 1e12, peaks=None)]
    found = summary(bare, bare)
    assert (found["peaks"], found["roofline"], found["mfu"]) == (None, [], None)
    assert roofline.roofline_metrics(found) == {"flops_per_step": 1e12}


def test_all_variants_share_the_highest_peaks_that_a_process_saw() -> None:
    slow = ROOF.model_copy(update={"tflops": {"fp32": 1.0}, "evidence_level": "measured"})
    fast = ROOF.model_copy(
        update={"tflops": {"fp32": 4.0}, "memory_gb_s": 90.0, "evidence_level": "measured"}
    )
    own = [attempt(1000.0, 1e12, peaks=peaks) for peaks in (slow, None, fast)]
    best = roofline.best_peaks(own)
    assert best is not None
    assert (best.tflops, best.memory_gb_s) == ({"fp32": 4.0}, 100.0)
    assert summary(own, own)["roofline_evidence"] == "measured"


def test_allowing_tf32_on_a_device_without_it_leaves_fp32() -> None:
    own = [attempt(1000.0, 1e12, precision="tf32")]
    assert {point["precision"] for point in summary(own, own)["roofline"]} == {"fp32"}
    with_it = ROOF.model_copy(update={"tflops": {"fp32": 2.0, "tf32": 4.0}})
    own = [attempt(1000.0, 1e12, precision="tf32", peaks=with_it)]
    found = summary(own, own)
    assert {point["precision"] for point in found["roofline"]} == {"tf32"}
    assert found["mfu"] == 0.25


def test_the_terminal_shows_parts_that_matter_and_escapes_names() -> None:
    own = [attempt(1000.0, 1e12)]
    item = {"name": "a\x1b[31m", **summary(own, own)}
    tiny = {**item["roofline"][1], "name": "data", "time_ms": 1.0}
    rows = roofline_rows([{**item, "roofline": [*item["roofline"], tiny]}, {"name": "failed"}])
    assert [row[1] for row in rows] == ["part", "step", "forward", "optimizer"]
    assert "\x1b" not in str(rows)
    assert roofline_rows([{"name": "failed"}]) == []
    assert [row[5].split()[-1] for row in rows[1:]] == ["TFLOPS", "TFLOPS", "GB/s"]
    assert mfu_text([{"name": "failed", "mfu": None}]) is None
    assert "\n" not in peaks_text(ROOF.model_copy(update={"device": "two\nlines"}))


def test_a_part_without_flops_shows_the_bandwidth_that_it_reached() -> None:
    point = roofline.roofline_point("optimizer", 1000.0, 0.0, 5e9, ROOF, "fp32")
    assert point is not None
    row = roofline_rows([{"name": "plain", "roofline": [point.model_dump()]}])[1]
    assert row[4:7] == ["5.0 GB/s", f"{ROOF.memory_gb_s:.1f} GB/s", f"{100 * point.fraction:.0f} %"]


def test_copies_that_differ_between_processes_are_told_with_the_peaks() -> None:
    def seen(gb_s: float) -> Attempt:
        found = attempt(1000.0, 1e12)
        assert found.phases is not None
        peaks = ROOF.model_copy(update={"memory_gb_s": gb_s})
        return found.model_copy(update={"phases": found.phases.model_copy(update={"peaks": peaks})})

    noisy, quiet = (roofline.best_peaks([seen(low), seen(22.1)]) for low in (6.6, 20.0))
    assert noisy is not None
    assert noisy.memory_gb_s == 22.1
    assert "6.6 to 22.1 GB/s by process: a noisy machine" in noisy.source
    assert quiet is not None
    assert quiet.source == ROOF.source


# --- devices -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "precision", "tflops", "gb_s"),
    [
        ("NVIDIA A100-SXM4-40GB", "bf16", 312, 1555),
        ("A100-SXM4-80GB", "tf32", 156, 2039),
        ("NVIDIA A100 80GB PCIe", "fp32", 19.5, 1935),
        ("NVIDIA H100 80GB HBM3", "bf16", 989.5, 3350),
        ("NVIDIA H100 PCIe", "bf16", 756.5, 2000),
        ("NVIDIA H200", "tf32", 494.5, 4800),
        ("Tesla V100-SXM2-32GB", "fp16", 125, 900),
        ("Tesla T4", "fp16", 65, 320),
        ("NVIDIA L4", "bf16", 121, 300),
        ("NVIDIA GeForce RTX 4090", "bf16", 165.2, 1008),
        ("AMD Instinct MI300X", "bf16", 1307.4, 5300),
        ("AMD Instinct MI250X", "fp16", 191.5, 1638.4),
    ],
)
def test_torchs_name_of_a_device_finds_its_data_sheet(
    name: str, precision: str, tflops: float, gb_s: float
) -> None:
    found = data_sheet_peaks(name)
    assert found is not None
    assert (found.tflops[precision], found.memory_gb_s) == (tflops, gb_s)
    assert (found.device, found.evidence_level) == (name, "theoretical")


@pytest.mark.parametrize(
    "name",
    [
        *("", " ", "NVIDIA", "NVIDIA ", "GeForce", "AMD EPYC", "a" * 100_000, "NVIDIA " * 10_000),
        *("NVIDIA A10G", "NVIDIA L40G", "NVIDIA GeForce RTX 4090 D", "RTX 40900"),
        *("NVIDIA GeForce RTX 4090 Laptop GPU", "NVIDIA GeForce RTX 5070 Ti Laptop GPU"),
        *("NVIDIA A100-SXM4-40GB MIG 1g.5gb", "NVIDIA H100", "AMD Instinct MI300X VF"),
        *("NVIDIA H200\x00", "NVIDIA H200; rm -rf", "H２００", ".*", "[", "T4\nT4"),
    ],
)
def test_a_name_that_does_not_fit_whole_is_unknown(name: str) -> None:
    assert data_sheet_peaks(name) is None


def test_half_precision_is_never_slower_than_tf32_and_that_never_than_fp32() -> None:
    from trainperf_mlflow.analysis.devices import _SHEETS

    for sheet in _SHEETS:
        tf32 = sheet.tf32 or sheet.fp32
        assert sheet.fp32 <= tf32 <= sheet.fp16, sheet.names
        assert sheet.bf16 in (None, sheet.fp16), sheet.names
        assert sheet.source
        assert 100 < sheet.memory_gb_s < 10_000, sheet.names


# --- timed peaks ---------------------------------------------------------------------------------


def test_a_cpus_peaks_are_timed_and_leave_settings_and_numbers_as_they_were() -> None:
    torch.manual_seed(7)
    state, before = torch.get_rng_state(), torch.get_float32_matmul_precision()
    found = measured_peaks(CPU, largest=32, copy_bytes=4096)
    assert found is not None
    assert {"fp32", "bf16"} <= set(found.tflops) <= {"fp32", "bf16", "fp16"}
    assert all(rate > 0 for rate in (*found.tflops.values(), found.memory_gb_s))
    assert found.evidence_level == "measured"
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.get_float32_matmul_precision() == before


def test_what_a_device_cannot_do_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    product = torch.mm

    def only_fp32(left: torch.Tensor, right: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        if left.dtype != torch.float32:
            raise RuntimeError("not implemented for 'Half'")
        return product(left, right, out=out)

    monkeypatch.setattr(torch, "mm", only_fp32)
    found = measured_peaks(CPU, largest=16, copy_bytes=4096)
    assert found is not None
    assert set(found.tflops) == {"fp32"}

    def nothing(*arguments: Any, **more: Any) -> Any:
        raise torch.OutOfMemoryError("full")

    monkeypatch.setattr(torch, "mm", nothing)
    assert measured_peaks(CPU, largest=16, copy_bytes=4096) is None


def test_a_known_accelerator_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "trainperf_mlflow.measurement.peaks."
    monkeypatch.setattr(f"{name}device_name", lambda device: "NVIDIA H200")
    monkeypatch.setattr(f"{name}measured_peaks", lambda device: None)
    found = device_peaks(torch.device("cuda", 0))
    assert found is not None
    assert found.source == "NVIDIA H200 data sheet"
    assert device_peaks(CPU) is None  # a CPU's name says nothing, so it would be timed


# --- counting ------------------------------------------------------------------------------------


class Counted(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.bytes = 0
        self.flops = 0.0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        self.bytes += moved_bytes(func, args, kwargs or {}, out, "cpu")
        self.flops += counted_flops(func, args, kwargs or {}, out)
        return out


def counted(run: Callable[[], Any]) -> tuple[int, float]:
    with torch.no_grad(), Counted() as found:
        run()
    return found.bytes, found.flops


A, B = torch.ones(8, 16), torch.ones(16, 4)  # 512 and 256 bytes
ROWS = torch.tensor([0, 3, 3])  # 24 bytes
TABLE = torch.ones(1000, 16)


@pytest.mark.parametrize(
    ("run", "moved", "flops"),
    [
        (lambda: A @ B, 512 + 256 + 128, 2 * 8 * 16 * 4),
        (lambda: torch.addmm(torch.ones(4), A, B), 16 + 16 + 512 + 256 + 128, 2 * 8 * 16 * 4),
        (lambda: A.bfloat16() @ B.bfloat16(), 768 + 384 + 256 + 128 + 64, 2 * 8 * 16 * 4),
        (lambda: A + A, 3 * 512, 0),
        (lambda: A.relu(), 2 * 512, 0),
        (lambda: A + 1.0, 2 * 512, 0),
        (lambda: A.clone().add_(A), 2 * 512 + 3 * 512, 0),
        (lambda: torch.empty(8, 16).copy_(A), 2 * 512, 0),
        (lambda: torch.empty(8, 16).zero_(), 512, 0),
        (lambda: torch.add(A, A, out=torch.empty(8, 16)), 3 * 512, 0),
        (lambda: torch._foreach_add_([A.clone(), A.clone()], 1.0), 4 * 512 + 4 * 512, 0),
        (lambda: A.sum(), 512 + 4, 0),
        # An expanded tensor's elements are there once.
        (lambda: torch.ones(1, 16).expand(8, 16) * A, 64 + 64 + 512 + 512, 0),
        # Of a table only the rows that are returned are read.
        (lambda: torch.nn.functional.embedding(ROWS, TABLE), 24 + 2 * 3 * 64, 0),
        (lambda: TABLE[ROWS], 24 + 2 * 3 * 64, 0),
    ],
)
def test_an_operation_moves_its_inputs_and_its_results(
    run: Callable[[], Any], moved: int, flops: float
) -> None:
    assert counted(run) == (moved, flops)


@pytest.mark.parametrize(
    "run",
    [
        lambda: A.view(-1),
        lambda: A.t(),
        lambda: A[1:3, ::2],
        lambda: A.split(4),
        lambda: A.unbind(0),
        lambda: A.detach(),
        lambda: A.expand(3, 8, 16),
        lambda: torch.ops.aten._unsafe_view(A, [16, 8]),
        lambda: torch.empty(10),
        lambda: torch.empty_like(A),
        lambda: A.new_empty(3),
        lambda: torch.empty(4, 2).t_(),
        lambda: A.shape,
    ],
)
def test_views_and_what_only_describes_a_tensor_move_nothing(run: Callable[[], Any]) -> None:
    assert counted(run) == (0, 0)


def test_only_the_asked_kind_of_device_counts() -> None:
    func, out = torch.ops.aten.add.Tensor, torch.ones(8, 16)
    assert moved_bytes(func, (A, A), {}, out, "cpu") == 3 * 512
    assert moved_bytes(func, (A, A), {}, out, "cuda") == 0


def test_the_cpus_attention_is_counted_as_any_attention_is() -> None:
    query, key, value = (torch.ones(1, 2, 8, 4, requires_grad=True) for _ in range(3))
    attention = torch.nn.functional.scaled_dot_product_attention
    with Counted() as forward:
        out = attention(query, key, value).sum()
    with Counted() as backward:
        out.backward()
    product = 2 * 2 * 8 * 8 * 4  # two heads, eight by eight scores, four wide
    assert forward.flops == 2 * product
    assert backward.flops == 5 * product


def test_fewer_heads_of_keys_than_of_queries_count_by_the_queries() -> None:
    attention = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
    query, key, value = torch.ones(2, 4, 8, 4), torch.ones(2, 2, 6, 4), torch.ones(2, 2, 6, 3)
    assert counted_flops(attention, (query, key, value), {}, None) == 2 * 8 * 8 * 6 * (4 + 3)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_sparse_and_nested_tensors_are_counted_without_an_error() -> None:
    sparse = A.to_sparse()
    nested = torch.nested.nested_tensor([torch.ones(2, 4), torch.ones(3, 4)])
    for run in (lambda: sparse @ B, lambda: sparse + sparse, lambda: nested + nested):
        assert counted(run)[0] > 0


# --- a prediction --------------------------------------------------------------------------------


def test_a_named_device_bounds_a_predicted_step_phase_by_phase() -> None:
    plan = {"candidates": ["checkpoint"], "set": {"seq_len": 16}}
    found = tp.estimate(plan, device_name="NVIDIA A100-SXM4-80GB")
    plain, checkpointed = found.variants
    assert found.roofline_evidence == "theoretical"
    parts = [phase for name, phase in plain.phases.items() if name != "evaluation"]
    assert all(part.moved_bytes > 0 for part in parts)
    # fp32 without TF32: 19.5 TFLOPS; 2039 GB/s.
    seconds = sum(max(part.flops / 19.5e12, part.moved_bytes / 2039e9) for part in parts)
    assert plain.roofline_ms == pytest.approx(1000 * seconds)
    assert checkpointed.roofline_ms is not None
    assert checkpointed.roofline_ms > plain.roofline_ms  # recomputing takes its time
    assert "ms at best" in estimate_text(found)
    assert "ms at best" not in estimate_text(tp.estimate(plan))


def test_a_device_that_no_table_knows_is_refused_with_those_that_it_does() -> None:
    with pytest.raises(tp.PlanError, match=r"'RTX 9999' are not known; give one of .*RTX 4090"):
        tp.estimate({}, device_name="RTX 9999")
