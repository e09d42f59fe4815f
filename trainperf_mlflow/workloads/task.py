"""What a task is, how one of its steps runs, and how a task is made from its name."""

from __future__ import annotations

import importlib
import importlib.util
import random
import sys
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from trainperf_mlflow.errors import PlanError, TrainperfError
from trainperf_mlflow.results.record import Setting
from trainperf_mlflow.workloads.device import use_device

if TYPE_CHECKING:
    from trainperf_mlflow.workloads.effects import Observed


class Task(ABC):
    """What is trained: subclass it to measure your own training.

    A step is ``zero_grad``, then ``microsteps`` times ``next_batch``, ``forward``
    and ``backward``, then ``optimizer_step`` (see ``run_step``). None of them
    should wait for the device: a ``loss.item()`` inside makes every step
    synchronous, and the measurement with it.
    """

    samples_per_step: float = 1.0
    tokens_per_step: float | None = None
    microsteps: int = 1
    # True where evaluate() reads held-out real data, so that its loss says something of quality.
    quality_checked: bool = False

    def zero_grad(self) -> None:  # noqa: B027 - a task without gradients needs none
        """Forget the gradients of the last step."""

    @abstractmethod
    def next_batch(self) -> Any:
        """The next micro-batch, on the device."""

    @abstractmethod
    def forward(self, batch: Any) -> Tensor:
        """The scalar loss of one micro-batch, on the device."""

    def backward(self, loss: Tensor) -> None:
        """Add the gradients of one micro-batch."""
        loss.backward()

    @abstractmethod
    def optimizer_step(self) -> None:
        """Update the weights."""

    def evaluate(self) -> float | None:
        """The loss on a fixed validation batch, or None where there is none."""
        return None

    def state_tensors(self) -> Iterable[Tensor]:
        """All tensors that live from step to step: weights, buffers, optimizer state, batch.

        A tracker on the CPU counts them into the peak memory.
        """
        return ()

    def modules(self) -> Iterable[nn.Module]:
        """The root modules that are trained."""
        return ()

    def effects(self, changed: Mapping[str, Setting], observed: Observed) -> Mapping[str, bool]:
        """Which of the changed settings are proven to be in effect (True) or not to be (False).

        Leave out what cannot be proven. ``observed`` is what one step was seen to do.
        """
        return {}

    def close(self) -> None:  # noqa: B027 - most tasks hold nothing that needs closing
        """Release workers and files."""


class CallableTask(Task):
    """A plain callable that runs one whole step and may return its loss."""

    accepted: ClassVar[str] = "a number, a tensor with one element, or None"

    def __init__(self, step: Callable[[], Any]) -> None:
        self.step = step

    def run(self) -> Tensor | float | None:
        """Run the step.

        Raises:
            TypeError: it returned something that is no loss.
        """
        loss = self.step()
        if isinstance(loss, Tensor) and loss.numel() == 1:
            return kept(loss)
        if loss is None or (isinstance(loss, (int, float)) and not isinstance(loss, bool)):
            return loss
        if isinstance(loss, np.generic) and isinstance(loss.item(), (int, float)):
            return float(loss)
        raise TypeError(
            f"the step returned {_shown(loss)}; it must return its loss: {self.accepted}"
        )

    def next_batch(self) -> Any:
        raise NotImplementedError("a plain callable has no parts")

    def forward(self, batch: Any) -> Tensor:
        raise NotImplementedError("a plain callable has no parts")

    def optimizer_step(self) -> None:
        raise NotImplementedError("a plain callable has no parts")

    def state_tensors(self) -> Iterable[Tensor]:
        # What a two-line task trains usually hangs on its closure; nothing else is known of it.
        for module in self.modules():
            yield from module.parameters()
            yield from module.buffers()

    def modules(self) -> Iterable[nn.Module]:
        cells = getattr(self.step, "__closure__", None) or ()
        for cell in cells:
            try:
                value = cell.cell_contents
            except ValueError:  # the cell is still empty
                continue
            if isinstance(value, nn.Module):
                yield value


def run_step(task: Task) -> Tensor | float | None:
    """One training step; the loss of its last micro-batch, detached and not synchronised."""
    if isinstance(task, CallableTask):
        return task.run()
    task.zero_grad()
    loss: Tensor | None = None
    for _ in range(task.microsteps):
        loss = task.forward(task.next_batch())
        task.backward(loss)
    task.optimizer_step()
    return None if loss is None else kept(loss)


def kept(loss: Tensor) -> Tensor:
    """The loss as it is now, not synchronised: its buffer may be written again by the next step,
    as a CUDA graph's output is."""
    return loss.detach().clone()


def build_task(
    task: str, config: Mapping[str, Setting], seed: int, device: torch.device, data_seed: int
) -> Task:
    """Build the live task on the device.

    ``seed`` fixes the initialisation (another one in each repeat), ``data_seed``
    the data and their order (the study's: the same in all of its repeats).

    Raises:
        PlanError: the task, its model or its data cannot be had as configured.
        FactoryError: a factory of the user's own raised something (its cause), or returned
            neither a ``Task`` nor a callable.
    """
    use_device(device)
    _seed_everything(seed)
    if not is_custom(task):
        from trainperf_mlflow.workloads.causal_lm import build_causal_lm

        return build_causal_lm(task, config, seed, device, data_seed)
    factory = load_factory(task)
    try:
        made = factory(dict(config))
    except TrainperfError:
        raise
    except (Exception, SystemExit) as error:
        raise FactoryError(_factory_failure(task, config, error)) from error
    if isinstance(made, Task):
        return made
    if callable(made) and not isinstance(made, (type, nn.Module)):
        return CallableTask(made)
    returned = f"the class {made.__name__}" if isinstance(made, type) else _shown(made)
    raise FactoryError(
        f"the factory {task} returned {returned}; it must return a trainperf_mlflow Task, "
        "or a callable without arguments that runs one step"
    )


class FactoryError(Exception):
    """What a factory of the user's own did wrong, told so that it needs no traceback."""


def _factory_failure(
    task: str, config: Mapping[str, Setting], error: Exception | SystemExit
) -> str:
    frames = traceback.extract_tb(error.__traceback__)[1:]
    where = f" at {Path(frames[0].filename).name}:{frames[0].lineno}" if frames else ""
    missing = error.args[0] if isinstance(error, KeyError) and error.args else None
    if isinstance(missing, str) and missing not in config:
        remedy = (
            f"the settings have no {missing!r} (they have {', '.join(config) or 'none'}): "
            f"give it with --set {missing}=VALUE, or let the factory do without"
        )
    else:
        remedy = "mend the factory, or the settings that it gets"
    return f"the factory {task} raised {type(error).__name__}: {error}{where}; {remedy}"


def is_custom(task: str) -> bool:
    """Whether a task's name is MODULE:FACTORY, and not that of the built-in task."""
    return ":" in task


def load_factory(path: str) -> Callable[[dict[str, Setting]], Any]:
    """Import MODULE:FACTORY, looking in the current folder first.

    Raises:
        PlanError: the module is missing or cannot be imported, or it has no such callable.
    """
    module_name, _, attribute = path.partition(":")
    here = str(Path.cwd())
    if sys.path[0] != here:
        sys.path.insert(0, here)
    importlib.invalidate_caches()
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{module_name}.".startswith(f"{error.name}."):
            raise PlanError(
                f"task {path!r}: there is no module {error.name!r} in the current folder or the "
                "environment; run from the folder that holds it, or install it"
            ) from None
        raise PlanError(_import_failure(path, module_name, error)) from error
    except (Exception, SystemExit) as error:
        raise PlanError(_import_failure(path, module_name, error)) from error
    factory = getattr(module, attribute, None)
    if factory is None:
        known = [name for name, value in vars(module).items() if _is_own_callable(value, module)]
        raise PlanError(
            f"task {path!r}: module {module_name!r} has no {attribute!r}; "
            f"it defines {', '.join(sorted(known)[:10]) or 'no function'}"
        )
    if not callable(factory):
        raise PlanError(
            f"task {path!r}: {attribute!r} is {_shown(factory)}, not a function; "
            "name a function that takes the configuration and returns a task"
        )
    return factory  # type: ignore[no-any-return]


def _import_failure(path: str, module_name: str, error: BaseException) -> str:
    own = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if "importlib" not in frame.filename
    ]
    where = f" at {Path(own[-1].filename).name}:{own[-1].lineno}" if len(own) > 1 else ""
    return (
        f"task {path!r}: importing {module_name!r} failed{where}: "
        f"{type(error).__name__}: {error}; fix the module, then try again"
    )


def _is_own_callable(value: Any, module: Any) -> bool:
    return callable(value) and getattr(value, "__module__", None) == module.__name__


def _shown(value: Any) -> str:
    text = repr(value)
    return f"{text if len(text) <= 60 else text[:57] + '...'} ({type(value).__name__})"


def _seed_everything(seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)
