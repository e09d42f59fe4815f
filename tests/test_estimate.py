"""Predictions without an accelerator: against real runs on the CPU, in parts, at their limits."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from torch._subclasses.fake_tensor import FakeTensorMode

import trainperf_mlflow as tp
from trainperf_mlflow.analysis.estimate import (
    PhaseEstimate,
    explain_peak,
    fits,
    training_peak,
)
from trainperf_mlflow.cli import cli
from trainperf_mlflow.errors import PlanError
from trainperf_mlflow.measurement.audit import audit
from trainperf_mlflow.measurement.estimate.attention import cuda_kernel
from trainperf_mlflow.measurement.estimate.ledger import Ledger
from trainperf_mlflow.measurement.estimate.predict import causal_lm_step
from trainperf_mlflow.measurement.estimate.target import target_for, workspace_bytes
from trainperf_mlflow.measurement.phases import measure_phases
from trainperf_mlflow.workloads.causal_lm import parse_config
from trainperf_mlflow.workloads.task import build_task, run_step

CPU = torch.device("cpu")
SIZES = {"model": "tiny", "batch_size": 2, "seq_len": 32}


@pytest.fixture
def tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(__file__).parent)


def variant(task: str, device: str = "cuda", **settings: Any) -> Any:
    plan = {"task": f"estimated_tasks:{task}", "probe": True, "set": settings, "device": device}
    return tp.estimate(plan).variants[0]


# --- against real runs -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"precision": "bf16"},
        {"checkpoint": True},
        {"optimizer": "sgd", "momentum": 0.9},
        {"fused": True},
        {"attention": "eager"},
        {"grad_accumulation": 3},
    ],
    ids=str,
)
def test_the_prediction_for_a_cpu_is_what_a_real_run_there_takes(settings: dict[str, Any]) -> None:
    config = {**SIZES, **settings}
    phases = causal_lm_step(parse_config("causal_lm", config), target_for("cpu")).phases
    predicted = max(phases[name].peak_mem_mb for name in ("forward", "backward", "optimizer"))
    task = build_task("causal_lm", config, 0, CPU, 0)
    run_step(task)
    measured = audit(task, CPU, compiled=False)
    assert measured.peak_mem_mb == pytest.approx(predicted, rel=1e-3)
    counted = sum(measured.observed.matmul_flops.values())
    assert phases["forward"].flops + phases["backward"].flops == pytest.approx(counted, rel=1e-9)


@pytest.mark.parametrize(
    "settings",
    [
        {"data": "random", "batch_size": 1, "seq_len": 16},
        {"data": "stdlib", "batch_size": 1, "seq_len": 32},
        {"data": "stdlib", "batch_size": 4, "seq_len": 64, "checkpoint": True},
        {"data": "stdlib", "batch_size": 1, "seq_len": 32, "grad_accumulation": 2},
    ],
    ids=str,
)
def test_a_prediction_for_a_cpu_and_phase_count_the_same_bytes(settings: dict[str, Any]) -> None:
    config = {"model": "tiny", **settings}
    predicted = causal_lm_step(parse_config("causal_lm", config), target_for("cpu")).phases
    task = build_task("causal_lm", config, 0, CPU, 0)
    measured = measure_phases(task, 1, CPU, compiled=False)
    for name in ("forward", "backward", "optimizer"):
        assert predicted[name].peak_mem_mb == pytest.approx(measured.peak_mem_mb[name], abs=1e-3)
        for category, size in measured.memory_mb[name].items():
            assert predicted[name].categories[category] == pytest.approx(size, abs=1e-3)


def test_a_text_is_no_part_of_an_accelerators_memory() -> None:
    text, random = (
        causal_lm_step(parse_config("causal_lm", {**SIZES, "data": data}), target_for("cuda"))
        for data in ("stdlib", "random")
    )
    at_peak = [step.phases["optimizer"].categories["other"] for step in (text, random)]
    assert at_peak[0] == pytest.approx(at_peak[1], abs=0.01)


@pytest.mark.usefixtures("tasks")
@pytest.mark.parametrize("task", ["convolutions", "lora", "converted"])
def test_a_task_of_ones_own_is_predicted_as_it_runs(task: str) -> None:
    predicted = variant(task, "cpu")
    live = build_task(f"estimated_tasks:{task}", {}, 0, CPU, 0)
    run_step(live)
    measured = audit(live, CPU, compiled=False).peak_mem_mb
    assert predicted.peak_mem_mb == pytest.approx(measured, rel=1e-3), predicted.reason
    assert list(predicted.phases) == ["forward", "backward", "optimizer"]


# --- parts -------------------------------------------------------------------------------------


def test_categories_add_up_to_each_phases_peak() -> None:
    phases = causal_lm_step(parse_config("causal_lm", SIZES), target_for("cuda")).phases
    assert list(phases) == ["forward", "backward", "optimizer", "evaluation"]
    for phase in phases.values():
        assert sum(phase.categories.values()) == pytest.approx(phase.peak_mem_mb)
    model = build_task("causal_lm", SIZES, 0, CPU, 0)
    weights = sum(p.nbytes for p in next(iter(model.modules())).parameters()) / 2**20
    at_update = phases["optimizer"].categories
    assert at_update["parameters"] == pytest.approx(weights, rel=0.02)
    assert at_update["gradients"] == pytest.approx(weights, rel=0.02)
    assert at_update["optimizer_state"] == pytest.approx(2 * weights, rel=0.02)
    assert phases["forward"].categories["gradients"] == 0


def test_offload_takes_activations_off_the_device() -> None:
    plain, offloaded = (
        causal_lm_step(
            parse_config("causal_lm", {**SIZES, "seq_len": 256, **more}), target_for("cuda")
        ).phases
        for more in ({}, {"offload": True})
    )
    activations = [p["forward"].categories["activations"] for p in (plain, offloaded)]
    assert activations[1] < 0.2 * activations[0]


def test_fp16_with_a_scaler_is_predicted() -> None:
    found = causal_lm_step(
        parse_config("causal_lm", {**SIZES, "precision": "fp16"}), target_for("cuda")
    )
    assert "autocast by the lists of cuda" in found.not_modelled[-1]
    assert found.phases["optimizer"].categories["optimizer_state"] > 0


@pytest.mark.parametrize(
    ("dtype", "key_heads", "head_dim", "masked", "kernel"),
    [
        (torch.bfloat16, 2, 64, False, "flash"),
        (torch.float16, 14, 64, False, "flash"),
        (torch.float32, 14, 64, False, "efficient"),
        (torch.float32, 2, 64, False, "math"),
        (torch.bfloat16, 14, 64, True, "efficient"),
        (torch.bfloat16, 2, 64, True, "math"),
        (torch.float64, 14, 64, False, "math"),
        (torch.bfloat16, 2, 512, False, "math"),
    ],
)
def test_attention_takes_the_kernel_that_cuda_would(
    dtype: torch.dtype, key_heads: int, head_dim: int, masked: bool, kernel: str
) -> None:
    query = torch.empty(1, 14, 8, head_dim, dtype=dtype, device="meta")
    key = torch.empty(1, key_heads, 8, head_dim, dtype=dtype, device="meta")
    assert cuda_kernel(query, key, masked=masked) == kernel


def test_workspaces_follow_the_setting_and_the_capability(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    assert target_for("cuda").workspace == 8.125 * 2**20
    assert target_for("auto", (9, 0)).workspace == 32 * 2**20
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":16:8")
    assert target_for("cuda:1").workspace == 16 * 8 * 1024
    with pytest.raises(PlanError, match="CUBLAS_WORKSPACE_CONFIG 'large'"):
        workspace_bytes("large")


@pytest.mark.parametrize("text", ["9", "nine", "9.0.1", "-9.0"])
def test_a_capability_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(PlanError, match=re.escape(repr(text))):
        tp.estimate({"probe": True}, capability=text)


def phases(**peaks: float) -> dict[str, PhaseEstimate]:
    parts = {"parameters": 10.0, "activations": 3.0, "temporaries": 10.0}
    return {
        name: PhaseEstimate(peak_mem_mb=peak, categories=parts, flops=0)
        for name, peak in peaks.items()
    }


def test_what_holds_the_peak_is_told_with_what_would_lower_it() -> None:
    updating = explain_peak(phases(forward=30, backward=35, optimizer=50))
    assert "5.0 x parameters), so activation techniques cannot lower it" in updating
    assert "fused optimizer, without its temporaries, would lower it to about 40" in updating
    running = explain_peak(phases(forward=70, backward=90, optimizer=50))
    assert "backward holds the peak (90.0 MiB, of which 10.0 parameters, 10.0 temp" in running
    assert "can save at most 40.0" in running


def test_the_bound_on_savings_leaves_out_what_an_allocator_rounds_up() -> None:
    said = explain_peak(phases(forward=70, backward=90, optimizer=50), 48)
    assert "needs at least 48.0, so activation techniques can save at most 42.0" in said


def test_without_activations_at_the_peak_no_technique_for_them_is_named() -> None:
    categories = {"parameters": 20.0, "gradients": 20.0, "activations": 0.0, "temporaries": 60.0}
    held = PhaseEstimate(peak_mem_mb=100, categories=categories, flops=0)
    said = explain_peak({**phases(forward=70, optimizer=50), "backward": held})
    assert "of which 60.0 temporaries, 20.0 parameters, 20.0 gradients)" in said
    assert "activation" not in said


@pytest.mark.parametrize("technique", [{"checkpoint": True}, {"precision": "bf16"}])
def test_no_technique_for_activations_saves_more_than_the_bound(technique: dict[str, Any]) -> None:
    target, sizes = target_for("cuda"), {**SIZES, "batch_size": 4, "seq_len": 128}
    plain = causal_lm_step(parse_config("causal_lm", sizes), target)
    saving = causal_lm_step(parse_config("causal_lm", {**sizes, **technique}), target)
    floor = plain.floor_mb or 0.0
    peaks = [training_peak(step.phases) for step in (plain, saving)]
    assert peaks[0][0] == "backward"
    assert 0 < floor <= saving.phases["optimizer"].peak_mem_mb
    assert 0 < peaks[0][1] - peaks[1][1] <= peaks[0][1] - floor


def test_evaluation_counts_for_what_fits_but_not_for_the_training_peak() -> None:
    known = phases(forward=400, backward=500, optimizer=450, evaluation=900)
    assert fits(known, 1500)
    assert not fits(known, 1400)


# --- limits ------------------------------------------------------------------------------------


@pytest.mark.usefixtures("tasks")
@pytest.mark.parametrize(
    ("task", "reason"),
    [
        ("chooses", "without the tensors' values"),
        ("autocasts", "autocast"),
        ("compiles", "torch.compile"),
        ("compiles_in_place", "torch.compile"),
        ("plain_step", "return a trainperf_mlflow.Task"),
        ("broken", "no such thing"),
        ("ends", "SystemExit: this is the end"),
        ("recurrent", "LSTM"),
    ],
)
def test_what_cannot_be_modelled_is_unsupported_with_the_reason(task: str, reason: str) -> None:
    found = variant(task)
    assert found.status == "unsupported"
    assert reason in found.reason
    assert (found.peak_mem_mb, found.flops_per_step, found.fits) == (None, None, None)


def test_what_is_not_modelled_is_told_where_it_applies(tasks: None) -> None:
    with_convolutions, without = variant("convolutions"), variant("lora")
    assert any("cuDNN" in text for text in with_convolutions.not_modelled)
    assert not any("cuDNN" in text for text in without.not_modelled)
    assert not any("autocast" in text for text in without.not_modelled)
    assert variant("convolutions", "cpu").not_modelled == ("buffers inside an operation",)


def test_tensors_on_another_device_are_not_left_out_silently() -> None:
    with FakeTensorMode():
        ledger = Ledger()
        ledger.track([torch.empty(2, device="meta"), torch.empty(2)])
        assert ledger.unsupported is None
        ledger.track([torch.empty(2, device="xla")])
    assert "on xla by itself" in str(ledger.unsupported)


def test_a_compiled_model_is_unsupported_and_the_others_go_on() -> None:
    found = tp.estimate({"set": {"seq_len": 16}, "candidates": ["compile", "bf16"]}).variants
    assert [v.status for v in found] == ["ok", "unsupported", "ok"]
    assert "compile" in str(found[1].reason)


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        ({"device": "mps"}, "device 'mps'"),
        ({"model": "no/such"}, "does not ship"),
        ({"set": {"seq_len": 100_000}}, "positions"),
        ({"task": "no_such_module:make"}, "no_such_module"),
    ],
)
def test_what_no_device_could_train_is_refused(plan: dict[str, Any], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        tp.estimate({"probe": True, **plan})


def test_the_larger_profile_needs_four_copies_of_its_weights_and_the_temporaries() -> None:
    found = tp.estimate(
        {"workload": "smoke", "model": "deepseek_r1_small", "probe": True}, device_memory_mb=24_000
    ).variants[0]
    assert found.peak_phase == "optimizer"
    assert found.peak_mem_mb == pytest.approx(5 * 1_777_088_000 * 4 / 2**20, rel=0.01)
    assert found.fits is False


# --- on the command line -----------------------------------------------------------------------


def run(*words: str) -> Any:
    return CliRunner().invoke(cli, ["estimate", "--set", "seq_len=16", *words])


def test_machines_get_one_object_with_the_promised_keys() -> None:
    done = run("--candidate", "checkpoint", "--device-memory", "600", "--format", "json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["schema_version"] == "trainperf-estimate/v1"
    for item in found["variants"]:
        assert {
            "variant",
            "status",
            "peak_mem_mb",
            "peak_phase",
            "phases",
            "flops_per_step",
        } <= set(item)
        assert item["fits"] is True
        assert item["not_modelled"]
        assert item["phases"]["backward"]["categories"]["parameters"] > 0


def test_the_capability_decides_the_workspaces_and_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    peaks = []
    for words in ((), ("--capability", "9.0")):
        found = json.loads(run("--format", "json", *words).stdout)["variants"][0]
        assert any("cuBLAS workspaces other than" in text for text in found["not_modelled"])
        peaks.append(found["peak_mem_mb"])
    assert peaks[1] - peaks[0] == pytest.approx(2 * (32 - 8.125), abs=2)


def test_people_get_a_table_a_sentence_and_the_limits() -> None:
    done = run("--device-memory", "100")
    assert done.exit_code == 0, done.output
    text = " ".join(done.stdout.split())
    assert "baseline: " in text
    assert "holds the peak" in text
    for category in ("parameters", "gradients", "optimizer state", "activations", "temporaries"):
        assert category in text.partition("at the peak")[2].partition("baseline: ")[0]
    assert "not modelled: reserved memory" in text
    assert " no at the peak" in text  # the last cell of the first table: it does not fit


@pytest.mark.parametrize("memory", ["much", "0", "-5", "nan", "inf"])
def test_a_memory_that_is_no_positive_number_is_refused(memory: str) -> None:
    done = run("--device-memory", memory)
    assert done.exit_code == 2
    assert memory in done.stderr
