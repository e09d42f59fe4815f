"""What was promised to be the same in a study is checked, and what was not is named."""

from __future__ import annotations

import gc
from typing import Any

import pytest
import torch

from trainperf_mlflow.analysis.trust import violations
from trainperf_mlflow.measurement.batches import batch_digest, first_batch
from trainperf_mlflow.measurement.timing import timed_block
from trainperf_mlflow.results.record import Role, Status
from trainperf_mlflow.results.values import BlockValues, RepeatValues, VariantValues
from trainperf_mlflow.workloads.task import CallableTask, Task


def variant(name: str, role: Role, block: dict[str, Any], **repeat: Any) -> VariantValues:
    blocks = tuple(
        BlockValues(
            index=index, process=0, started_at=0.0, wall_s=1.0, mean_ms=1.0, low_ms=1.0,
            **{"samples_per_step": 4.0, "gc": 0, "compilations": 0, **block},
        )
        for index in range(2)
    )  # fmt: skip
    settings = {"seed": 42, "data_digest": "a", **repeat}
    repeats = tuple(
        RepeatValues(index=index, status=Status.OK, blocks=blocks, **settings) for index in range(3)
    )
    return VariantValues(name=name, role=role, status=Status.OK, repeats=repeats)


def against(block: dict[str, Any] | None = None, **repeat: Any) -> tuple[str, ...]:
    baseline = variant("baseline", "baseline", {})
    return violations([baseline, variant("new", "candidate", block or {}, **repeat)])


def test_runs_that_keep_their_promises_are_not_told_about() -> None:
    assert against() == ()
    assert against(data_digest=None, seed=None) == ()  # nobody could look


@pytest.mark.parametrize(
    ("block", "repeat", "told"),
    [
        ({}, {"seed": 43}, "new had other seeds than the baseline in 3 of 3 rounds"),
        ({}, {"data_digest": "b"}, "new trained on other data than the baseline"),
        ({"gc": 1}, {}, "new collected garbage inside 6 of 6 measured blocks"),
        ({"compilations": 2}, {}, "new compiled inside 6 of 6 measured blocks"),
    ],
)
def test_each_violated_condition_is_named(
    block: dict[str, Any], repeat: dict[str, Any], told: str
) -> None:
    (text,) = against(block, **repeat)
    assert text.startswith(told)


def test_a_batch_of_another_size_is_other_data_by_intent() -> None:
    assert against({"samples_per_step": 8.0}, data_digest="b") == ()


class Training(Task):
    def __init__(self) -> None:
        self.handed = 0

    def next_batch(self) -> Any:
        self.handed += 1
        return {"x": torch.full((2, 3), float(self.handed)), "name": "text"}

    def forward(self, batch: Any) -> torch.Tensor:
        return batch["x"].sum()

    def optimizer_step(self) -> None:
        pass


def test_the_first_batch_is_kept_and_the_task_is_left_as_it_was() -> None:
    task = Training()
    with first_batch(task) as batches:
        task.next_batch()
        task.next_batch()
    assert [batch["x"][0, 0].item() for batch in batches] == [1.0]
    assert "next_batch" not in vars(task)
    with first_batch(CallableTask(lambda: None)) as batches:
        pass
    assert batches == []


def test_a_digest_tells_values_types_and_shapes_apart() -> None:
    x = torch.arange(6.0)
    different = [x, x + 1, x.reshape(2, 3), x.double(), x.bfloat16(), (x, x)]
    assert len({batch_digest(batch) for batch in different}) == len(different)
    assert batch_digest({"x": x}) == batch_digest({"x": x.clone()})
    assert batch_digest("only text") is None
    assert batch_digest(torch.tensor(1.0)) is not None


def test_a_step_that_collects_garbage_is_seen_and_the_toolkits_own_collection_is_not() -> None:
    cpu = torch.device("cpu")
    assert timed_block(lambda: None, 3, cpu, 0).gc_collections == 0

    def collecting() -> None:
        gc.collect()

    assert timed_block(collecting, 3, cpu, 0).gc_collections == 3


def test_a_step_that_compiles_is_seen() -> None:
    compiled = torch.compile(lambda x: x * 2, backend="eager", dynamic=False)
    sizes = iter([2, 2, 3, 4])

    def step() -> None:
        compiled(torch.ones(next(sizes)))

    cpu = torch.device("cpu")
    step()
    assert timed_block(step, 1, cpu, 0).compilations == 0
    assert timed_block(step, 2, cpu, 1).compilations == 2
