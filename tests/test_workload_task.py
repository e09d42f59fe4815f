from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from trainperf_mlflow.errors import PlanError
from trainperf_mlflow.measurement.worker import describe_error, status_of
from trainperf_mlflow.results.record import Status
from trainperf_mlflow.workloads.task import (
    CallableTask,
    FactoryError,
    Task,
    build_task,
    load_factory,
    run_step,
)

CPU = torch.device("cpu")


@pytest.fixture
def own_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[Any]:
    """Write the source of a module into the current folder; a name that no other test has."""
    import sys

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    name = "mod_" + "".join(c if c.isalnum() else "_" for c in request.node.name)

    def write(source: str) -> str:
        (tmp_path / f"{name}.py").write_text(source)
        return name

    yield write
    sys.modules.pop(name, None)


class Recorded(Task):
    """Writes down what it is asked to do."""

    microsteps = 2

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.weight = nn.Parameter(torch.ones(()))

    def zero_grad(self) -> None:
        self.calls.append("zero")

    def next_batch(self) -> int:
        self.calls.append("batch")
        return len(self.calls)

    def forward(self, batch: int) -> Tensor:
        self.calls.append("forward")
        return self.weight * batch

    def backward(self, loss: Tensor) -> None:
        self.calls.append("backward")
        super().backward(loss)

    def optimizer_step(self) -> None:
        self.calls.append("step")


def test_a_step_runs_its_parts_in_order_once_per_microstep() -> None:
    task = Recorded()
    loss = run_step(task)
    part = ["batch", "forward", "backward"]
    assert task.calls == ["zero", *part, *part, "step"]
    assert isinstance(loss, Tensor)
    assert not loss.requires_grad
    assert float(loss) == 5.0  # of the last microstep
    assert float(task.weight.grad or 0) == 7.0  # gradients of both


def test_a_task_of_a_few_lines_has_usable_defaults() -> None:
    task = Recorded()
    assert (task.samples_per_step, task.tokens_per_step) == (1.0, None)
    assert task.evaluate() is None
    assert list(task.state_tensors()) == []
    assert not task.quality_checked


@pytest.mark.parametrize("value", [1.5, 3, None, torch.tensor(1.5), torch.ones(1), np.float32(2)])
def test_a_callable_may_return_its_loss_or_nothing(value: Any) -> None:
    loss = run_step(CallableTask(lambda: value))
    assert (loss is None) if value is None else float(loss) == float(value)  # type: ignore[arg-type]


@pytest.mark.parametrize("value", ["0.5", [1.0], {"loss": 1}, True, torch.ones(2)])
def test_a_callable_that_returns_no_loss_is_told_so(value: Any) -> None:
    with pytest.raises(TypeError, match=r"the step returned .* must return its loss"):
        run_step(CallableTask(lambda: value))


def test_a_callable_shows_the_modules_that_it_closes_over() -> None:
    model = nn.Linear(2, 2)
    task = CallableTask(lambda: model(torch.ones(2)).sum())
    assert list(task.modules()) == [model]
    assert len(list(task.state_tensors())) == 2
    assert list(CallableTask(print).modules()) == []


def test_a_task_of_two_lines_is_built_from_its_path(own_module: Any) -> None:
    name = own_module("def factory(config):\n    return lambda: config['x'] * 2.0\n")
    task = build_task(f"{name}:factory", {"x": 4}, 0, CPU, 0)
    assert run_step(task) == 8.0


def test_the_seed_of_a_repeat_fixes_what_a_factory_draws(own_module: Any) -> None:
    name = own_module(
        "import random, numpy, torch\n"
        "def factory(config):\n"
        "    drawn = random.random() + numpy.random.rand() + float(torch.rand(()))\n"
        "    return lambda: drawn\n"
    )
    first, again, other = (
        run_step(build_task(f"{name}:factory", {}, seed, CPU, 0)) for seed in (1, 1, 2)
    )
    assert first == again != other


def test_a_missing_module_is_named(own_module: Any) -> None:
    with pytest.raises(PlanError, match="there is no module 'nowhere_to_be_found'"):
        load_factory("nowhere_to_be_found:factory")


def test_an_import_that_fails_inside_the_module_is_told_apart(own_module: Any) -> None:
    name = own_module("x = 1\nimport not_installed_at_all\n")
    with pytest.raises(
        PlanError, match=rf"failed at {name}.py:2: ModuleNotFoundError.*not_installed"
    ):
        load_factory(f"{name}:factory")


@pytest.mark.parametrize(
    ("source", "message"),
    [("def factory(:\n", "SyntaxError"), ("raise SystemExit(3)\n", "SystemExit: 3")],
)
def test_a_module_that_cannot_be_run_is_a_plan_error(
    own_module: Any, source: str, message: str
) -> None:
    name = own_module(source)
    with pytest.raises(PlanError, match=message):
        load_factory(f"{name}:factory")


def test_a_missing_factory_names_those_that_exist(own_module: Any) -> None:
    name = own_module("def make_it(config): ...\n")
    with pytest.raises(PlanError, match="has no 'factory'; it defines make_it"):
        load_factory(f"{name}:factory")


def test_a_factory_that_is_no_function_is_refused(own_module: Any) -> None:
    name = own_module("factory = 3\n")
    with pytest.raises(PlanError, match=r"'factory' is 3 \(int\), not a function"):
        load_factory(f"{name}:factory")


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (
            "return config['width']",
            r"KeyError: 'width' at mod_\w+.py:2; .*\(they have x\)",
        ),
        ("return {}['x']", r"KeyError: 'x' at .*; mend the factory, or the settings"),
        ("raise ValueError('too wide')", "ValueError: too wide at .*; mend the factory"),
        ("raise SystemExit(3)", "SystemExit: 3 at .*; mend the factory"),
    ],
)
def test_what_a_factory_raises_is_told_with_its_name_and_line(
    own_module: Any, body: str, told: str
) -> None:
    name = own_module(f"def factory(config):\n    {body}\n")
    with pytest.raises(FactoryError, match=f"the factory {name}:factory raised {told}"):
        build_task(f"{name}:factory", {"x": 1}, 0, CPU, 0)


def test_a_factory_that_runs_out_of_memory_is_out_of_memory(own_module: Any) -> None:
    name = own_module("def factory(config):\n    raise MemoryError('big')\n")
    with pytest.raises(FactoryError) as raised:
        build_task(f"{name}:factory", {}, 0, CPU, 0)
    assert status_of(raised.value) is Status.OOM


@pytest.mark.parametrize("result", ["3", "None", "torch.nn.Linear(1, 1)", "'text'", "dict"])
def test_a_factory_that_returns_nonsense_is_told_what_came(own_module: Any, result: str) -> None:
    name = own_module(f"import torch\ndef factory(config):\n    return {result}\n")
    told = rf"the factory {name}:factory returned .* must return a trainperf_mlflow Task"
    with pytest.raises(FactoryError, match=told) as raised:
        build_task(f"{name}:factory", {}, 0, CPU, 0)
    assert describe_error(raised.value) == str(raised.value)


def test_an_unknown_built_in_task_is_a_plan_error() -> None:
    with pytest.raises(PlanError, match="unknown task 'image_classifier'; known: causal_lm"):
        build_task("image_classifier", {}, 0, CPU, 0)
