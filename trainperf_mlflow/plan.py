"""What is to be measured: the plan, its validation and its messages.

A YAML file and the command line's flags give the same object. Nothing here
imports torch, transformers or mlflow.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)

from trainperf_mlflow.analysis.sequential import PAIRS_PER_PROCESS_PAIR, looks_allowed
from trainperf_mlflow.configurations import (
    changed_settings,
    changed_variable,
    complete_built_in,
    keepable,
)
from trainperf_mlflow.decisions.activation_scope import MIN_SUCCESSFUL_RUNS
from trainperf_mlflow.decisions.policies import GOALS, POLICIES
from trainperf_mlflow.decisions.qualification import QUALIFICATION_GATES
from trainperf_mlflow.errors import PlanError
from trainperf_mlflow.messages import explain, nearest, shown
from trainperf_mlflow.results.record import Setting
from trainperf_mlflow.results.study import Variant
from trainperf_mlflow.shortforms import parse_seconds, parse_settings
from trainperf_mlflow.workloads.config import MAX_SIZE
from trainperf_mlflow.workloads.presets import CUSTOM_TASK, PRESETS, Preset
from trainperf_mlflow.workloads.strategies import STRATEGIES

BUILT_IN_TASK = "causal_lm"
BASELINE = "baseline"
# MLflow on PostgreSQL refuses longer run names.
MAX_NAME = 250
MAX_CANDIDATES = 50
# Keys of the built-in task that have a flag of their own.
MODEL_FLAGS = ("model", "model_source")

Phase = Literal["data", "forward", "backward", "optimizer", "memory"]


def _printable(name: str) -> str:
    if not name.strip():
        raise ValueError("is empty; give it a name or leave it out")
    if not name.isprintable():
        raise ValueError(f"{shown(name)} holds control characters or line breaks; remove them")
    if name != name.strip():
        raise ValueError(f"{shown(name)} begins or ends with a space; remove it")
    return name


def _device(name: str) -> str:
    if not re.fullmatch(r"[a-z]{1,20}(:\d{1,4})?", name):
        raise ValueError(f"{shown(name)} is no device; give auto, cpu, cuda, cuda:1, mps or xpu")
    return name


def _whole(low: int, high: int, *, auto: bool = False) -> Callable[[Any], Any]:
    """One message for a count, where pydantic would tell each half of a union apart."""

    def check(value: Any) -> Any:
        if (auto and value == "auto") or (type(value) is int and low <= value <= high):
            return value
        remedy = f"give a whole number from {low} to {high}" + (", or auto" if auto else "")
        raise ValueError(f"{shown(value)} cannot be used; {remedy}")

    return check


Name = Annotated[str, Field(max_length=MAX_NAME), AfterValidator(_printable)]


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, protected_namespaces=())


class Candidate(_Strict):
    """One change: a named strategy, settings of your own, or both under a name."""

    name: Annotated[str, Field(max_length=100), AfterValidator(_printable)]
    config: dict[str, Setting] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _known_or_configured(self) -> Self:
        if self.name == BASELINE:
            raise ValueError("a candidate cannot be named 'baseline'; give it another name")
        if not self.config and self.name not in STRATEGIES:
            raise ValueError(
                f"unknown strategy {shown(self.name)}{nearest(self.name, STRATEGIES)}; "
                f"known: {', '.join(STRATEGIES)}; or give settings of your own as NAME:KEY=VALUE"
            )
        return self

    @property
    def settings(self) -> dict[str, Setting]:
        """What it changes; a strategy's name stands for its settings, whatever is added to them."""
        return {**STRATEGIES.get(self.name, {}), **self.config}


class Plan(_Strict):
    """One study: one baseline, its candidates, one workload, and how it is decided.

    >>> plan = Plan(workload="quick", candidates=[Candidate(name="bf16")])
    >>> [variant.name for variant in plan.variants()]
    ['baseline', 'bf16']
    """

    study: Name | None = None
    task: str = Field(default=BUILT_IN_TASK, min_length=1, max_length=500)
    workload: str | None = None
    model: str | None = Field(default=None, min_length=1, max_length=500)
    model_source: Literal["auto", "huggingface", "modelscope", "local", "config"] | None = None
    set: dict[str, Setting] = Field(default_factory=dict)
    baseline: dict[str, Setting] = Field(default_factory=dict)
    candidates: tuple[Candidate, ...] = Field(default=(), max_length=MAX_CANDIDATES)
    probe: bool = False
    repeats: Annotated[int, BeforeValidator(_whole(1, 1000))] = 3
    blocks: Annotated[
        int | Literal["auto"], BeforeValidator(_whole(1, PAIRS_PER_PROCESS_PAIR, auto=True))
    ] = "auto"
    warmup: Annotated[int | Literal["auto"], BeforeValidator(_whole(0, 100_000, auto=True))] = (
        "auto"
    )
    iters: Annotated[int | Literal["auto"], BeforeValidator(_whole(1, 100_000, auto=True))] = "auto"
    max_time: float | None = Field(default=None, gt=0, le=30 * 86400, allow_inf_nan=False)
    # After the measured part each variant trains so many steps with several seeds.
    convergence_steps: Annotated[int, BeforeValidator(_whole(1, 1_000_000))] | None = None
    seed: Annotated[int, BeforeValidator(_whole(0, 2**31 - 1))] = 42
    device: Annotated[str, AfterValidator(_device)] = "auto"
    isolation: Literal["auto", "process", "resident"] = "auto"
    goal: str | None = None
    hypothesis: Phase | None = None
    policy: str | None = None
    threshold: dict[str, float] = Field(default_factory=dict)
    label: Name | None = None
    # Sequence lengths: one study each, in the scope of activation memory.
    ladder: tuple[Annotated[int, BeforeValidator(_whole(2, MAX_SIZE))], ...] | None = None

    @model_validator(mode="before")
    @classmethod
    def _accept_lists_and_short_candidates(cls, data: Any) -> Any:
        # YAML and JSON know lists, not tuples, and a candidate may be its short form.
        if not isinstance(data, Mapping):
            raise ValueError("a plan is a mapping of keys to values")
        data = dict(data)
        listed = data.get("candidates")
        if isinstance(listed, (list, tuple)):
            data["candidates"] = tuple(
                parse_candidate(item) if isinstance(item, str) else item for item in listed
            )
        if isinstance(data.get("ladder"), list):
            data["ladder"] = tuple(data["ladder"])
        if type(data.get("max_time")) in (int, str):
            try:
                data["max_time"] = parse_seconds(str(data["max_time"]))
            except ValueError as error:
                raise ValueError(f"max_time: {error}") from None
        return data

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.task == BUILT_IN_TASK:
            if self.workload is not None and self.workload not in PRESETS:
                raise ValueError(
                    f"unknown workload {shown(self.workload)}{nearest(self.workload, PRESETS)}; "
                    f"known: {', '.join(PRESETS)}"
                )
        else:
            _check_task_path(self.task)
            given = [key for key in ("workload", *MODEL_FLAGS) if getattr(self, key) is not None]
            if given:
                raise ValueError(
                    f"{', '.join(given)}: only the built-in task has this; pass the settings of "
                    f"{shown(self.task)} with set (--set KEY=VALUE)"
                )
        twice = [key for key in MODEL_FLAGS if getattr(self, key) is not None and key in self.set]
        if twice:
            raise ValueError(f"{twice[0]} is given twice, by itself and in set; give it once")
        if self.goal is not None and self.goal not in GOALS:
            raise ValueError(
                f"unknown goal {shown(self.goal)}{nearest(self.goal, GOALS)}; "
                f"known: {', '.join(GOALS)}"
            )
        self._check_policy()
        names = [candidate.name for candidate in self.candidates]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"candidate {twice[0]!r} is given twice; names must differ")
        variants = self.variants()
        if self.convergence_steps is not None and self.task == BUILT_IN_TASK:
            for variant in variants:
                if variant.config["data"] == "random":
                    raise ValueError(
                        f"convergence_steps: {variant.name} trains on random tokens, whose loss "
                        "says nothing about quality; set data=stdlib, or a .txt or .jsonl file"
                    )
        if self.ladder is not None:
            self._check_ladder(self.ladder)
        return self

    def _check_ladder(self, lengths: tuple[int, ...]) -> None:
        """Only where no optimizer state hides the activations does a ladder answer its question."""
        if self.task != BUILT_IN_TASK:
            raise ValueError("ladder: only the built-in task has a seq_len to climb")
        if len(lengths) < 2 or list(lengths) != sorted(set(lengths)):
            given = ", ".join(map(str, lengths)) or "empty"
            raise ValueError(
                f"ladder is {given}; give two lengths or more, each longer than the one before"
            )
        if "seq_len" in {**self.set, **self.baseline}:
            raise ValueError("seq_len is given twice, in the ladder and as a setting; give it once")
        base, *changed = (variant.config for variant in self.variants())
        if base["optimizer"] != "sgd" or base["momentum"] != 0:
            raise ValueError(
                f"ladder: the optimizer is {base['optimizer']} with momentum {base['momentum']}; "
                "set optimizer=sgd and momentum=0, so that no optimizer state hides the activations"
            )
        if self.probe or changed != [{**base, "checkpoint": True}]:
            raise ValueError(
                "ladder: it asks whether checkpointing helps; give the candidate checkpoint alone"
            )
        if self.repeats < MIN_SUCCESSFUL_RUNS:
            raise ValueError(
                f"ladder: repeats is {self.repeats}; each side needs {MIN_SUCCESSFUL_RUNS} or more"
            )
        for length in lengths:
            self.rung(length).variants()

    def rung(self, seq_len: int) -> Plan:
        """The plan of one length of the ladder: a study like any other."""
        gates = set(QUALIFICATION_GATES)
        return self.model_copy(
            update={
                "study": f"{self.study or self.ladder_name} seq_len={seq_len}"[:MAX_NAME],
                "set": {**self.set, "seq_len": seq_len},
                "policy": self.policy_name,
                "threshold": {k: v for k, v in self.threshold.items() if k not in gates},
                "ladder": None,
            }
        )

    @property
    def ladder_name(self) -> str:
        return f"{self.workload_name}: activation scope"

    def _check_policy(self) -> None:
        name = self.policy_name
        if name not in POLICIES:
            raise ValueError(
                f"unknown policy {shown(name)}{nearest(name, POLICIES)}; "
                f"known: {', '.join(POLICIES)}"
            )
        if POLICIES[name].needs_goal and self.goal is None:
            raise ValueError(f"the policy {name!r} needs a goal; known: {', '.join(GOALS)}")
        known = POLICIES[name].threshold_names
        if self.ladder:
            known = (*known, *QUALIFICATION_GATES)
        for key, value in self.threshold.items():
            if key not in known:
                owners = [
                    owner for owner, other in POLICIES.items() if key in other.threshold_names
                ]
                hint = f" (it belongs to the policy {owners[0]!r})" if owners else ""
                raise ValueError(
                    f"unknown threshold {shown(key)} of the policy {name!r}"
                    f"{hint or nearest(key, known)}; known: {', '.join(known)}"
                )
            if not math.isfinite(value) or value < 0:
                raise ValueError(f"threshold {key} is {value}; give a finite number, 0 or more")

    @property
    def policy_name(self) -> str:
        """The rule set that decides: the goal's where a goal is given, else the source's."""
        by_default = "memory-strategy" if self.ladder else "training"
        return self.policy or ("goal" if self.goal else by_default)

    @property
    def workload_name(self) -> str:
        return self.task if self.task != BUILT_IN_TASK else (self.workload or "quick")

    @property
    def preset(self) -> Preset:
        return PRESETS[self.workload_name] if self.task == BUILT_IN_TASK else CUSTOM_TASK

    @property
    def fixed_warmup(self) -> int | None:
        """Steps of warmup; None: until they have settled."""
        return None if self.warmup == "auto" and not self.preset.fixed else self.warmup_steps

    @property
    def fixed_iters(self) -> int | None:
        """Steps of a block; None: as many as make it long enough."""
        return None if self.iters == "auto" and not self.preset.fixed else self.steps_per_block

    @property
    def warmup_steps(self) -> int:
        return self.preset.warmup if self.warmup == "auto" else self.warmup

    @property
    def steps_per_block(self) -> int:
        return self.preset.iters if self.iters == "auto" else self.iters

    @property
    def blocks_per_repeat(self) -> int:
        return PAIRS_PER_PROCESS_PAIR if self.blocks == "auto" else self.blocks

    @property
    def looks(self) -> tuple[int, ...]:
        """After how many rounds the study is looked at; the last one ends it."""
        return looks_allowed(self.repeats, self.blocks == "auto" and self.max_time is not None)

    def variants(self) -> tuple[Variant, ...]:
        """Baseline and candidates with their whole configurations, checked.

        A probe has no baseline to compare with: it measures its candidates, or
        the baseline's configuration where it names none.

        Raises:
            ValueError: a setting is invalid, or a candidate differs from the
                baseline in nothing or in more than one variable.
        """
        shared = {**self.preset.config, **_given(self, MODEL_FLAGS), **self.set}
        complete = complete_built_in if self.task == BUILT_IN_TASK else keepable
        base = complete({**shared, **self.baseline}, "the baseline's configuration")
        variants = [Variant(name=BASELINE, role="baseline", config=base)]
        for candidate in self.candidates:
            config = complete({**base, **candidate.settings}, f"candidate {candidate.name!r}")
            changed = changed_settings(base, config)
            variants.append(
                Variant(
                    name=candidate.name,
                    role="candidate",
                    config=config,
                    changed=changed,
                    changed_variable=changed_variable(candidate.name, changed),
                )
            )
        if self.probe and self.candidates:
            return tuple(variants[1:])
        return tuple(variants)


def _given(plan: Plan, keys: Iterable[str]) -> dict[str, Setting]:
    return {key: getattr(plan, key) for key in keys if getattr(plan, key) is not None}


def _check_task_path(task: str) -> None:
    module, separator, factory = task.partition(":")
    if not separator or not all(part.isidentifier() for part in (*module.split("."), factory)):
        raise ValueError(
            f"task {shown(task)} is neither {BUILT_IN_TASK!r} nor of the form MODULE:FACTORY, "
            "e.g. mypackage.training:make_task"
        )


def make_plan(data: Mapping[str, Any], *, where: str = "plan") -> Plan:
    """Validate a mapping as a plan.

    Raises:
        PlanError: with every problem, the value, and the nearest known key.
    """
    try:
        return Plan.model_validate(data)
    except ValidationError as error:
        raise PlanError(f"{where}: {explain(error, Plan)}") from None


def parse_candidate(text: str) -> Candidate:
    """A candidate's short form: NAME, NAME:K=V,... or K=V.

    >>> parse_candidate("wide:batch_size=4").settings
    {'batch_size': 4}
    >>> parse_candidate("fused=true").name
    'fused=true'
    """
    head, separator, tail = text.partition(":")
    if "=" in head:  # no name of its own, and a ":" can only belong to the value
        return Candidate(name=text.strip(), config=parse_settings(text))
    if separator:
        return Candidate(name=head.strip(), config=parse_settings(tail))
    return Candidate(name=text.strip())


def choices(field: str) -> list[str]:
    """The words that a field of the plan takes, for the command line.

    >>> choices("isolation")
    ['auto', 'process', 'resident']
    """
    annotation = Plan.model_fields[field].annotation
    words = [word for part in (annotation, *get_args(annotation)) for word in get_args(part)]
    return [word for word in words if isinstance(word, str)]
