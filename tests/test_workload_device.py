from __future__ import annotations

import pytest
import torch

from trainperf_mlflow.errors import MeasurementError, PlanError
from trainperf_mlflow.workloads.device import (
    autocast_dtype,
    available_devices,
    device_name,
    resolve_device,
)


class _Accelerator:
    """Two accelerators, as torch.accelerator would report them."""

    @staticmethod
    def current_accelerator(check_available: bool = False) -> torch.device:
        return torch.device("cuda")

    @staticmethod
    def device_count() -> int:
        return 2

    @staticmethod
    def current_device_index() -> int:
        return 0


def test_auto_is_the_first_of_the_available_devices() -> None:
    assert str(resolve_device("auto")) == available_devices()[0]


def test_auto_takes_the_accelerator_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "accelerator", _Accelerator)
    assert resolve_device("auto") == torch.device("cuda:0")
    assert resolve_device("cuda") == torch.device("cuda:0")
    assert resolve_device("cuda:1") == torch.device("cuda:1")
    assert resolve_device("cpu") == torch.device("cpu")


def test_an_accelerator_number_beyond_the_last_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "accelerator", _Accelerator)
    with pytest.raises(MeasurementError, match=r"'cuda:2'.*cuda:0, cuda:1, cpu"):
        resolve_device("cuda:2")


@pytest.mark.parametrize("request_", ["xpu", "mps", "cuda:99", "cpu:3"])
def test_a_device_that_is_not_here_names_what_is(request_: str) -> None:
    with pytest.raises(MeasurementError, match=f"'{request_}' is not available; .*cpu"):
        resolve_device(request_)


@pytest.mark.parametrize("request_", ["gpu", "meta", "cuda:x", ""])
def test_a_word_that_is_no_device_is_a_plan_error(request_: str) -> None:
    with pytest.raises(PlanError, match="unknown device"):
        resolve_device(request_)


def test_precisions_name_the_dtype_of_autocast() -> None:
    cpu = torch.device("cpu")
    assert autocast_dtype("fp32", cpu) is None
    assert autocast_dtype("fp16", cpu) is torch.float16
    assert autocast_dtype("amp", cpu) is torch.bfloat16


def test_the_cpu_has_a_name() -> None:
    assert device_name(torch.device("cpu"))
