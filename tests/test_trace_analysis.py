"""Where the time went: worked out by hand, by torch itself, and on traces of real devices."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from made_traces import (
    ADD,
    BACKWARD,
    COPY,
    GEMM,
    HOST,
    NCCL,
    ONE_STEP_US,
    SIDE_STREAM,
    Event,
    call,
    event,
    kernel,
    mark,
    one_step,
    operator,
    write_trace,
)
from torch.profiler import ProfilerActivity, profile, record_function, schedule
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

from trainperf_mlflow.analysis.traces import analyse
from trainperf_mlflow.analysis.traces_comparing import compare_traces
from trainperf_mlflow.analysis.traces_kinds import (
    KINDS,
    kind_of_kernel,
    kind_of_operator,
    precision_of_kernel,
)
from trainperf_mlflow.analysis.traces_results import Breakdown, TraceAnalysis, verdict

HERE = Path(__file__).resolve().parent
EXCERPT = HERE / "data" / "v100_step.json.gz"
SHARED = HERE.parent.parent / "shared" / "gpu-traces"
REAL = [EXCERPT, *sorted(SHARED.glob("*.json.gz"))]


def analysed(folder: Path, events: list[Event], **more: Any) -> TraceAnalysis:
    return analyse(write_trace(folder / "trace.json.gz", events, **more))


def assert_closes(found: Breakdown | TraceAnalysis) -> None:
    assert sum(found.parts_us.values()) == pytest.approx(found.total_us, rel=1e-9, abs=0.01)
    assert all(us >= -0.001 for us in found.parts_us.values())


def assert_all_close(found: TraceAnalysis) -> None:
    assert_closes(found)
    for each in [*found.per_step, *found.phases.values(), *found.ranks]:
        assert_closes(each)
    assert found.busy_us + found.idle_us == pytest.approx(found.total_us)
    for parts in (found.per_step, list(found.phases.values())):
        if parts:
            assert sum(part.total_us for part in parts) == pytest.approx(found.total_us, abs=0.01)


# --- by hand -----------------------------------------------------------------------------------


def test_the_parts_of_a_step_are_those_worked_out_by_hand(tmp_path: Path) -> None:
    found = analysed(tmp_path, one_step())
    assert (found.steps, found.total_us, found.device) == (1, 1000.0, "NVIDIA A100")
    assert found.parts_us == ONE_STEP_US
    assert found.missing == []
    assert_all_close(found)


def test_the_phases_of_a_step_have_the_hosts_time_and_what_they_launched(tmp_path: Path) -> None:
    found = analysed(tmp_path, one_step())
    assert found.phases_from == "marks"
    assert {name: phase.total_us for name, phase in found.phases.items()} == {
        "data": 100.0,
        "forward": 200.0,
        "backward": 400.0,
        "optimizer": 290.0,
        "other": 10.0,
    }
    assert {name: phase.device_us for name, phase in found.phases.items()} == {
        "data": 0.0,
        "forward": 50.0 + 120.0,
        "backward": 605.0 - 405.0,
        "optimizer": 200.0,
        "other": 0.0,
    }
    assert found.phases["data"].parts_us["data_wait"] == 100.0
    assert found.data_wait
    assert (found.data_wait.host_us, found.data_wait.exposed_us) == (100.0, 100.0)


def test_kernels_are_by_kind_and_those_of_the_optimizers_step_are_its_own(tmp_path: Path) -> None:
    found = analysed(tmp_path, one_step())
    assert {kind: time.total_us for kind, time in found.kernels.items()} == {
        "matmul": 120.0,
        "elementwise": 100.0,
        "optimizer": 200.0,
        "copy": 50.0,
        "communication": 150.0,
    }
    assert found.kernels["matmul"].precision_us == {"fp32": 120.0}
    by_name = {row.name: row for row in found.top_operators}
    assert by_name["aten::addmm"].device_us == 120.0
    assert (by_name["aten::linear"].self_us, by_name["aten::linear"].device_us) == (20.0, 0.0)
    assert by_name["aten::_fused_adamw_"].device_us == 100.0


def test_steps_add_up_and_what_runs_after_the_last_one_is_told(tmp_path: Path) -> None:
    late = kernel(ADD, 2005.0, 2105.0, 999)
    launch = call("cudaLaunchKernel", 1990.0, 1995.0, 999)
    found = analysed(tmp_path, [*one_step(0.0, 1), *one_step(1000.0, 2), late, launch])
    assert [step.name for step in found.per_step] == ["step 1", "step 2"]
    assert [step.parts_us["compute"] for step in found.per_step] == [420.0, 420.0]
    assert any("100 us of device work of the last step" in text for text in found.missing)
    assert sum(row.total_us for row in found.top_kernels) == 2 * 620.0 + 100.0
    assert_all_close(found)


def test_work_on_several_streams_hides_what_it_overlaps(tmp_path: Path) -> None:
    events = [
        mark("ProfilerStep#1", 0, 100),
        kernel(GEMM, 10, 60, 1),
        kernel(COPY, 30, 80, 2, category="gpu_memcpy", tid=SIDE_STREAM),
        kernel(NCCL, 50, 70, 3, tid=21),
    ]
    found = analysed(tmp_path, events)
    assert found.parts_us["compute"] == 50.0
    assert found.parts_us["exposed_communication"] == 10.0
    assert found.parts_us["exposed_copy"] == 10.0
    assert found.idle_us == 30.0


def test_a_copy_that_blocks_its_caller_is_a_synchronisation(tmp_path: Path) -> None:
    events = [
        mark("ProfilerStep#1", 0, 200),
        call("cudaLaunchKernel", 0, 5, 1),
        kernel(GEMM, 5, 50, 1),
        call("cudaMemcpyAsync", 10, 70, 2),
        kernel("Memcpy DtoH (Device -> Pageable)", 50, 60, 2, category="gpu_memcpy"),
        call("cudaLaunchKernel", 100, 110, 3),
        kernel(GEMM, 110, 200, 3),
    ]
    assert analysed(tmp_path, events).parts_us["synchronisation"] == 50.0


# --- what may be absent ------------------------------------------------------------------------


def test_a_trace_without_step_marks_is_one_stretch_and_says_so(tmp_path: Path) -> None:
    found = analysed(tmp_path, [e for e in one_step() if not e["name"].startswith("ProfilerStep")])
    assert (found.steps, found.per_step) == (0, [])
    assert found.total_us == 990.0
    assert any("no step marks" in text for text in found.missing)
    assert_all_close(found)


def test_without_phase_marks_the_profilers_own_tell_what_they_can(tmp_path: Path) -> None:
    events = [e for e in one_step() if not e["name"].startswith("phase.")]
    name = "autograd::engine::evaluate_function: MulBackward0"
    found = analysed(tmp_path, [*events, operator(name, 400, 500, tid=BACKWARD)])
    assert found.phases_from == "inferred"
    totals = {phase: times.total_us for phase, times in found.phases.items()}
    assert totals == {"data": 90.0, "backward": 100.0, "optimizer": 275.0, "other": 535.0}
    assert any("phase.forward" in text for text in found.missing)
    assert_all_close(found)


def test_a_trace_of_the_host_alone_tells_what_runs_there(tmp_path: Path) -> None:
    found = analysed(tmp_path, [e for e in one_step() if e["pid"] == HOST])
    assert found.device == "cpu"
    assert found.kernels == {}
    assert found.parts_us == {
        "data_wait": 100.0,
        "compute": 20.0 + 70.0 + 30.0 + 30.0,
        "exposed_communication": 0.0,
        "outside_operators": 750.0,
    }
    assert any("no device" in text for text in found.missing)
    assert_all_close(found)


def test_kernels_without_launches_are_counted_and_the_gap_is_told(tmp_path: Path) -> None:
    found = analysed(tmp_path, [e for e in one_step() if e["cat"] != "cuda_runtime"])
    assert found.parts_us["launch_bound"] == 0.0
    assert found.parts_us["compute"] == ONE_STEP_US["compute"]
    assert any("no calls that launched" in text for text in found.missing)
    only_device = analysed(tmp_path, [e for e in one_step() if e["pid"] != HOST])
    assert only_device.busy_us == 570.0
    assert any("no operators of the host" in text for text in only_device.missing)
    assert_all_close(only_device)


def test_copies_without_kernels_are_told(tmp_path: Path) -> None:
    found = analysed(tmp_path, [e for e in one_step() if e["cat"] != "kernel"])
    assert found.parts_us["exposed_copy"] == 50.0
    assert any("no kernels" in text for text in found.missing)


def test_of_several_ranks_the_slowest_is_shown_and_all_are_listed(tmp_path: Path) -> None:
    # Correlations repeat in each process, as in traces that were merged.
    other = [{**e, "ts": e["ts"] * 1.5, "dur": e["dur"] * 1.5} for e in one_step(pid=200, device=1)]
    found = analysed(tmp_path, [*one_step(), *other])
    assert [(rank.process, rank.total_us) for rank in found.ranks] == [
        ("100", 1000.0),
        ("200", 1500.0),
    ]
    assert found.ranks[0].parts_us == ONE_STEP_US
    assert found.total_us == 1500.0
    assert any("2 ranks" in text and "200" in text for text in found.missing)
    assert_all_close(found)


def test_the_rank_of_a_distributed_job_is_told(tmp_path: Path) -> None:
    found = analysed(tmp_path, one_step(), distributedInfo={"rank": 1, "world_size": 4})
    assert (found.rank, found.world_size) == (1, 4)
    assert any("other 3 of 4 ranks" in text for text in found.missing)


# --- kinds -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "kind", "precision"),
    [
        ("ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_64x4_tn", "matmul", "bf16"),
        (
            "void cutlass::Kernel2<cutlass_80_tensorop_f16_s16816gemm_relu_f16_64x64>(p)",
            "matmul",
            "fp16",
        ),
        ("cutlass_80_tensorop_s1688gemm_64x64_16x6_nn_align4", "matmul", "tf32"),
        ("volta_sgemm_128x64_nn", "matmul", "fp32"),
        ("nvjet_tst_192x192_64x4_1x2_h_bz_coopB_TNT", "matmul", "bf16"),
        ("Cijk_Ailk_Bljk_HHS_BH_MT128x128x16_MI32x32x8x1_SE", "matmul", "fp16"),
        ("Cijk_Alik_Bljk_BBS_BH_MT64x64x32", "matmul", "bf16"),
        ("triton_tem_fused_mm_3", "matmul", "unknown"),
        (
            "void pytorch_flash::flash_fwd_kernel<Traits<cutlass::bfloat16_t>>(P)",
            "attention",
            "bf16",
        ),
        ("fmha_cutlassB_f32_aligned_64x64_k64_sm80(Params)", "attention", "fp32"),
        ("attn_fwd.kd", "attention", "unknown"),
        ("sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nchw", "convolution", "tf32"),
        ("miopenSp3AsmConv_v30_3_1_gfx90a_fp32_f2x3_stride1", "convolution", "fp32"),
        (
            "void (anonymous namespace)::vectorized_layer_norm_kernel<float, float>(int)",
            "normalisation",
            "fp32",
        ),
        ("triton_red_fused_native_layer_norm_2", "normalisation", "unknown"),
        ("MIOpenBatchNormFwdTrainSpatial", "normalisation", "unknown"),
        ("triton_poi_fused_convolution_relu_0", "elementwise", "unknown"),
        ("triton_per_fused_sum_1", "reduction", "unknown"),
        (
            "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<c10::Half>>(at::T)",
            "reduction",
            "fp16",
        ),
        (
            "void (anonymous namespace)::softmax_warp_forward<float, float>(float*)",
            "reduction",
            "fp32",
        ),
        (
            "void at::native::multi_tensor_apply_kernel<FusedAdamMathFunctor<float>>(L)",
            "optimizer",
            "fp32",
        ),
        (
            "void unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(at::T&)>",
            "copy",
            "unknown",
        ),
        ("__amd_rocclr_copyBuffer.kd", "copy", "unknown"),
        (
            "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
            "communication",
            "bf16",
        ),
        ("void at::native::indexSelectLargeIndex<float, long>(float*)", "other", "fp32"),
        ("my_very_own_kernel", "other", "unknown"),
    ],
)
def test_the_kind_and_precision_of_a_kernel(name: str, kind: str, precision: str) -> None:
    assert (kind_of_kernel(name), precision_of_kernel(name)) == (kind, precision)
    assert kind in KINDS


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("aten::mm", "matmul"),
        ("aten::scaled_dot_product_attention", "attention"),
        ("aten::convolution_backward", "convolution"),
        ("aten::native_batch_norm", "normalisation"),
        ("aten::mul_", "elementwise"),
        ("aten::sum", "reduction"),
        ("aten::_fused_adamw_", "optimizer"),
        ("aten::copy_", "copy"),
        ("c10d::allreduce_", "communication"),
        ("aten::view", "other"),
        ("mine::op", "other"),
    ],
)
def test_the_kind_of_an_operator(name: str, kind: str) -> None:
    assert kind_of_operator(name) == kind


# --- by torch itself ---------------------------------------------------------------------------


class Recorded:
    """A trace of two steps with torch's own sums about the same events."""

    def __init__(self, folder: Path, *, checkpointed: bool) -> None:
        torch.manual_seed(0)
        block = torch.nn.Sequential(
            torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8)
        )
        optimizer = torch.optim.SGD(block.parameters(), lr=0.1)
        batches = iter(DataLoader(TensorDataset(torch.randn(64, 32)), batch_size=8))
        self.path = folder / f"checkpointed_{checkpointed}.json.gz"

        def keep(done: profile) -> None:
            done.export_chrome_trace(str(self.path))
            averages = done.key_averages()
            self.self_us = {row.key: row.self_cpu_time_total for row in averages}
            self.counts = {row.key: row.count for row in averages}

        with profile(
            activities=[ProfilerActivity.CPU],
            schedule=schedule(wait=0, warmup=1, active=2, repeat=1),
            on_trace_ready=keep,
        ) as profiler:
            for _ in range(3):
                with record_function("phase.data"):
                    (batch,) = next(batches)
                with record_function("phase.forward"):
                    out = (
                        checkpoint(block, batch, use_reentrant=False)
                        if checkpointed
                        else block(batch)
                    )
                    loss = out.square().mean()
                with record_function("phase.backward"):
                    loss.backward()
                with record_function("phase.optimizer"):
                    optimizer.step()
                    optimizer.zero_grad()
                profiler.step()


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    return Recorded(tmp_path_factory.mktemp("traced"), checkpointed=False)


def test_operators_have_the_times_and_counts_that_torch_gives_them(recorded: Recorded) -> None:
    found = analyse(recorded.path)
    assert {row.name for row in found.top_operators} >= {"aten::addmm", "aten::mm"}
    for row in found.top_operators:
        assert row.count == recorded.counts[row.name], row.name
        assert row.self_us == pytest.approx(recorded.self_us[row.name], abs=0.02 * row.count)


def test_steps_and_phases_have_the_times_that_torch_gives_them(recorded: Recorded) -> None:
    found = analyse(recorded.path)
    assert found.steps == 2
    assert list(found.phases) == ["data", "forward", "backward", "optimizer", "other"]
    assert found.data_wait
    assert found.data_wait.count == 2
    assert found.total_us == pytest.approx(
        sum(us for name, us in recorded.self_us.items() if recorded.counts[name]), rel=0.02
    )
    assert_all_close(found)


def test_recompute_is_seen_only_where_a_block_is_checkpointed(
    recorded: Recorded, tmp_path: Path
) -> None:
    plain = analyse(recorded.path)
    again = analyse(Recorded(tmp_path, checkpointed=True).path)
    assert plain.recompute
    assert plain.recompute.host_us == 0.0
    assert again.recompute
    assert 0.0 < again.recompute.host_us < again.phases["backward"].total_us
    counts = [{row.name: row.count for row in found.top_operators} for found in (plain, again)]
    assert counts[1]["aten::addmm"] == 2 * counts[0]["aten::addmm"]


# --- real devices ------------------------------------------------------------------------------


@pytest.mark.parametrize("path", REAL, ids=lambda path: path.name)
def test_the_sums_of_a_real_trace_close(path: Path) -> None:
    found = analyse(path)
    assert_all_close(found)
    assert found.total_us > 0
    kinds = sum(kind.total_us for kind in found.kernels.values())
    assert kinds == pytest.approx(sum(row.total_us for row in found.top_kernels))
    if found.device != "cpu":
        assert set(found.kernels) > {"matmul", "copy"}
        assert found.busy_us > 0


def test_a_real_step_has_the_parts_that_its_events_add_up_to() -> None:
    found = analyse(EXCERPT)
    assert (found.device, found.steps, found.rank) == ("Tesla V100-SXM2-16GB", 1, 1)
    assert found.total_us == 100298.0
    assert found.phases_from == "marks"
    assert {"forward", "backward", "optimizer", "other"} == set(found.phases)
    assert set(found.kernels["matmul"].precision_us) <= {"fp32", "unknown"}


# --- two traces --------------------------------------------------------------------------------


def test_two_traces_show_what_grew_shrank_is_new_and_vanished(tmp_path: Path) -> None:
    before = analysed(tmp_path, [*one_step(0.0, 1), *one_step(1000.0, 2)])
    changed = []
    for one in one_step():
        if one["name"] == GEMM:
            one = {**one, "dur": one["dur"] - 60}
        elif one["name"] == NCCL:
            one = {**one, "dur": one["dur"] + 20}
        elif one["name"] == COPY:
            one = {**one, "name": "Memcpy HtoD (Pageable -> Device)"}
        changed.append(one)
    found = compare_traces(before, analysed(tmp_path, changed))
    assert found.per == "step"
    assert found.total.delta_us == 0.0
    by_name = {change.name: change for change in found.kernels}
    assert by_name["sgemm_128x64_nn"].delta_us == -60.0  # without the device's generation
    assert verdict(by_name["sgemm_128x64_nn"]) == "shrank"
    assert verdict(by_name[NCCL]) == "grew"
    assert verdict(by_name[COPY]) == "vanished"
    assert verdict(by_name["Memcpy HtoD (Pageable -> Device)"]) == "new"
    kinds = {change.name: change.delta_us for change in found.kinds}
    assert kinds["communication"] == 20.0
    assert kinds["matmul"] == -60.0


def test_comparing_a_trace_with_itself_finds_nothing() -> None:
    found = compare_traces(analyse(EXCERPT), analyse(EXCERPT))
    rows = [*found.parts, *found.phases, *found.kinds, *found.kernels, *found.operators]
    assert {verdict(change) for change in rows} == {"same"}


def test_a_device_against_a_cpu_is_compared_on_the_host_and_told(tmp_path: Path) -> None:
    host = analysed(tmp_path, [e for e in one_step() if e["pid"] == HOST])
    found = compare_traces(analysed(tmp_path, one_step()), host)
    assert any("only one trace has a device" in text for text in found.missing)
    assert {verdict(change) for change in found.operators} == {"same"}


def test_an_operators_event_of_another_kind_is_ignored(tmp_path: Path) -> None:
    extra = event("python_function", "train.py(1): step", 0, 900, pid=HOST, tid=HOST)
    assert analysed(tmp_path, [*one_step(), extra]).parts_us == ONE_STEP_US
