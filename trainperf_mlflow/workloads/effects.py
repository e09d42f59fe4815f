"""Whether a change took effect: the settings against the live task and one observed step.

A flag that was set proves nothing: a wrapper may have dropped it, a kernel may
be missing, a compiler may have fallen back. So the proof is what a step did.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import torch

from trainperf_mlflow.results.record import Setting
from trainperf_mlflow.results.repeats import Effect
from trainperf_mlflow.workloads.causal_lm import CausalLM
from trainperf_mlflow.workloads.device import amp_dtype
from trainperf_mlflow.workloads.task import Task

# In effect, not in effect, or not known; and how one can tell.
Finding = tuple[bool | None, str]

NO_PROOF: Finding = (None, "this task gives no proof")


@dataclass(frozen=True)
class Observed:
    """What one untimed step was seen to do."""

    # FLOPs of matrix products, attention and convolutions by their inputs' dtype, e.g. "bfloat16".
    matmul_flops: Mapping[str, float] = field(default_factory=dict)
    # Calls of a module's forward from inside the backward pass.
    recomputed_modules: int = 0
    # Bytes of saved tensors that were copied off the device.
    device_to_host_bytes: int = 0
    # Names of the operators that ran, e.g. "aten.mm.default"; empty where they were not seen.
    ops: frozenset[str] = frozenset()
    # Compiled regions that ran; None where that was not looked at.
    compiled_regions: int | None = None
    batch_shape: tuple[int, ...] | None = None

    def share(self, dtype: torch.dtype) -> float | None:
        """The share of the matmul FLOPs in a dtype, 0 to 1; None where no matmul was seen."""
        total = sum(self.matmul_flops.values())
        if not total:
            return None
        wanted = str(dtype).removeprefix("torch.")
        flops = (
            value
            for name, value in self.matmul_flops.items()
            if name.removeprefix("torch.") == wanted
        )
        return sum(flops) / total

    def ran(self, *fragments: str) -> bool:
        return any(fragment in op for op in self.ops for fragment in fragments)


def verify_effects(
    task: Task, changed: Mapping[str, Setting], observed: Observed
) -> tuple[Effect, ...]:
    """One ``Effect`` per changed setting, in their order.

    ``verified`` is False only where the setting is shown not to be in effect.
    A task of the user's own speaks first; what it leaves out is read from the
    observed step where the key has the meaning that it has in the built-in task.
    """
    own = {} if isinstance(task, CausalLM) else task.effects(changed, observed)
    effects = []
    for key, wanted in changed.items():
        finding: Finding
        if key in own:
            finding = own[key], "as the task itself says"
        elif isinstance(task, CausalLM):
            proof = PROOFS.get(key)
            finding = proof(task, wanted, observed) if proof else NO_PROOF
        else:
            finding = _seen(key, wanted, observed)
        verified, detail = finding
        effects.append(Effect(key=key, wanted=wanted, verified=verified, detail=detail))
    return tuple(effects)


def matmul_error(device: torch.device) -> float:
    """The error of an fp32 product [256, 256] on the device, relative to its largest element.

    About 1e-7 in true fp32, above 1e-5 once inputs are rounded to TF32 or bf16.
    """
    generator = torch.Generator(device="cpu").manual_seed(0)
    a = torch.randn(256, 256, generator=generator)
    exact = a.double() @ a.double()
    a = a.to(device)
    return float(((a @ a).cpu().double() - exact).abs().max() / exact.abs().max())


# Between the rounding of fp32 (2^-24) and of TF32 (2^-11).
REDUCED_PRECISION_ERROR = 1e-5


# --- the built-in task -------------------------------------------------------------------------


def _precision(task: CausalLM, wanted: Setting, observed: Observed) -> Finding:
    return _matmuls_in(task.dtype or torch.float32, observed)


def _matmuls_in(dtype: torch.dtype, observed: Observed) -> Finding:
    share = observed.share(dtype)
    name = str(dtype).removeprefix("torch.")
    if share is None:
        return None, "no matrix multiplication was seen"
    return share > 0.5, f"{share:.1%} of the matmul FLOPs ran in {name}"


def _matmul_precision(task: CausalLM, wanted: Setting, observed: Observed) -> Finding:
    current = torch.get_float32_matmul_precision()
    if current != wanted:
        return False, f"float32 matmul precision is {current}"
    if observed.share(torch.float32) == 0:
        return False, "no matmul ran in float32, so the setting had nothing to act on"
    error = matmul_error(task.device)
    reduced = error > REDUCED_PRECISION_ERROR
    return reduced is (
        wanted != "highest"
    ), f"a float32 product has a relative error of {error:.1e}"


def _checkpoint(task: CausalLM, wanted: Setting, observed: Observed) -> Finding:
    count = observed.recomputed_modules
    return (count > 0) is bool(wanted), f"{count} module calls were recomputed in backward"


def _offload(task: CausalLM, wanted: Setting, observed: Observed) -> Finding:
    count = observed.device_to_host_bytes
    return (count > 0) is bool(wanted), f"{count / 2**20:.1f} MiB of saved tensors went to the host"


def _compile(task: CausalLM, wanted: Setting, observed: Observed) -> Finding:
    regions = observed.compiled_regions
    if regions is None:
        return None, "compiled regions were not observed"
    return (regions > 0) is (wanted != "off"), f"{regions} compiled regions ran"


def _fused(task: CausalLM, wanted: Setting, observed: Observed) -> Finding:
    if observed.ops:
        ran = observed.ran("_fused_adam", "_fused_sgd", "_fused_adagrad")
        return ran is bool(wanted), f"the fused kernel {'ran' if ran else 'did not run'}"
    on = bool(task.optimizer.param_groups[0].get("fused"))
    return on is bool(wanted), f"the optimizer has fused={on}"


def _optimizer(task: CausalLM, wanted: Setting, observed: Observed) -> Finding:
    name = type(task.optimizer).__name__
    return name.lower() == wanted, f"the optimizer is {name}"


def _of_optimizer(option: str) -> Callable[[CausalLM, Setting, Observed], Finding]:
    def proof(task: CausalLM, wanted: Setting, observed: Observed) -> Finding:
        values = {group.get(option) for group in task.optimizer.param_groups}
        shown = ", ".join(map(str, values))
        return values == {wanted}, f"the optimizer has {option}={shown}"

    return proof


def _batch_dimension(dimension: int) -> Callable[[CausalLM, Setting, Observed], Finding]:
    def proof(task: CausalLM, wanted: Setting, observed: Observed) -> Finding:
        shape = observed.batch_shape or tuple(task.batches.next().shape)
        return shape[dimension] == wanted, f"a batch is {' x '.join(map(str, shape))}"

    return proof


def _grad_accumulation(task: CausalLM, wanted: Setting, observed: Observed) -> Finding:
    return task.microsteps == wanted, f"{task.microsteps} micro-batches per step"


def _attention(task: CausalLM, wanted: Setting, observed: Observed) -> Finding:
    if observed.ops:
        ran = observed.ran("scaled_dot_product")
        kernel = "sdpa" if ran else "eager"
        return kernel == wanted, f"attention ran as {kernel}"
    kernel = task.model.config._attn_implementation
    return kernel == wanted, f"the model's attention is {kernel}"


def _data(task: CausalLM, wanted: Setting, observed: Observed) -> Finding:
    return task.config.data == wanted, f"batches come from {task.config.data}"


def _num_workers(task: CausalLM, wanted: Setting, observed: Observed) -> Finding:
    count = task.batches.num_workers
    return count == wanted, f"{count} workers load the data"


def _model(task: CausalLM, wanted: Setting, observed: Observed) -> Finding:
    return task.resolved.name == wanted, f"the model is {task.resolved.name}"


def _model_source(task: CausalLM, wanted: Setting, observed: Observed) -> Finding:
    source = task.resolved.source
    return wanted in ("auto", source), f"the model came from {source}"


PROOFS: MappingProxyType[str, Callable[[CausalLM, Setting, Observed], Finding]] = MappingProxyType(
    {
        "model": _model,
        "model_source": _model_source,
        "batch_size": _batch_dimension(0),
        "seq_len": _batch_dimension(1),
        "precision": _precision,
        "matmul_precision": _matmul_precision,
        "checkpoint": _checkpoint,
        "offload": _offload,
        "compile": _compile,
        "optimizer": _optimizer,
        "fused": _fused,
        "momentum": _of_optimizer("momentum"),
        "learning_rate": _of_optimizer("lr"),
        "attention": _attention,
        "grad_accumulation": _grad_accumulation,
        "data": _data,
        "num_workers": _num_workers,
    }
)


# --- tasks of the user's own -------------------------------------------------------------------


def _seen(key: str, wanted: Setting, observed: Observed) -> Finding:
    """What a step shows of a custom task's setting: proof where it is seen, seldom disproof.

    The task may reach the same end in a way that is not observed (a checkpointed
    plain function, an offload of its own), so absence alone disproves nothing.
    """
    if key == "precision" and wanted in ("bf16", "fp16", "fp32", "amp"):
        return _seen_precision(str(wanted), observed)
    if key == "checkpoint" and wanted is True and observed.recomputed_modules:
        return True, f"{observed.recomputed_modules} module calls were recomputed in backward"
    if key == "offload" and wanted is True and observed.device_to_host_bytes:
        return True, f"{observed.device_to_host_bytes / 2**20:.1f} MiB went to the host"
    if key == "compile" and wanted not in (False, None, "off") and observed.compiled_regions:
        return True, f"{observed.compiled_regions} compiled regions ran"
    if key == "fused" and wanted is True and observed.ran("_fused_adam", "_fused_sgd"):
        return True, "the optimizer's fused kernel ran"
    return NO_PROOF


def _seen_precision(wanted: str, observed: Observed) -> Finding:
    names = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
    accelerator = torch.accelerator.current_accelerator() or torch.device("cpu")
    dtype = names.get(wanted) or amp_dtype(accelerator)
    verified, detail = _matmuls_in(dtype, observed)
    # A part in the wanted dtype may be all that the task means by it.
    return (None if observed.share(dtype) and not verified else verified), detail
