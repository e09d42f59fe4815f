"""A task whose parts are marked, so that ``run_step`` defines the order for marked steps, too."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from torch import Tensor

from trainperf_mlflow.errors import UnsupportedError
from trainperf_mlflow.workloads.task import CallableTask, Task

# Called with a phase's name; what it returns is entered around the phase.
Mark = Callable[[str], AbstractContextManager[Any]]


class MarkedTask(Task):
    """The same task; its ``run_step`` enters a mark around each named phase.

    A wrapper and not a hook in ``run_step``, so that plain steps cost what they did.

    Raises:
        UnsupportedError: the task is a plain callable, which has no parts.
    """

    def __init__(self, task: Task, mark: Mark) -> None:
        if isinstance(task, CallableTask):
            raise UnsupportedError(
                "this task is a plain callable that runs a whole step, so its phases are unknown; "
                "return a trainperf_mlflow.Task with forward and optimizer_step from the factory"
            )
        self.microsteps = task.microsteps
        self._task = task
        self._mark = mark

    def zero_grad(self) -> None:
        self._task.zero_grad()

    def next_batch(self) -> Any:
        with self._mark("data"):
            return self._task.next_batch()

    def forward(self, batch: Any) -> Tensor:
        with self._mark("forward"):
            return self._task.forward(batch)

    def backward(self, loss: Tensor) -> None:
        with self._mark("backward"):
            self._task.backward(loss)

    def optimizer_step(self) -> None:
        with self._mark("optimizer"):
            self._task.optimizer_step()
