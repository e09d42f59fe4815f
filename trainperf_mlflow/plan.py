"""What is to be measured: the plan, its validation and its messages.

A YAML file and the command line's flags give the same object. Nothing here
imports torch, transformers or mlflow.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_args

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)

from trainperf_mlflow.decisions.policies import GOALS, POLICIES
from trainperf_mlflow.errors import PlanError
from trainperf_mlflow.results import Setting, Variant
from trainperf_mlflow.workloads.config import CausalLMConfig
from trainperf_mlflow.workloads.presets import CUSTOM_TASK, PRESETS, Preset
from trainperf_mlflow.workloads.strategies import STRATEGIES, strategy_of

BUILT_IN_TASK = "causal_lm"
BASELINE = "baseline"
MAX_PLAN_BYTES = 1_000_000
# MLflow on PostgreSQL refuses longer run names.
MAX_NAME = 250
MAX_CANDIDATES = 50
MAX_SETTING_CHARS = 2000
# Keys of the built-in task that have a flag of their own.
MODEL_FLAGS = ("model", "model_source")

Phase = Literal["data", "forward", "backward", "optimizer", "memory"]


def _printable(name: str) -> str:
    if not name.strip():
        raise ValueError("is empty; give it a name or leave it out")
    if not name.isprintable():
        raise ValueError(f"{name[:60]!r} holds control characters or line breaks; remove them")
    if name != name.strip():
        raise ValueError(f"{name[:60]!r} begins or ends with a space; remove it")
    return name


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
                f"unknown strategy {self.name!r}{nearest(self.name, STRATEGIES)}; "
                f"known: {', '.join(STRATEGIES)}; or give settings as {self.name}:KEY=VALUE"
            )
        return self

    @property
    def settings(self) -> dict[str, Setting]:
        return self.config or dict(STRATEGIES[self.name])


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
    repeats: int = Field(default=3, ge=1, le=1000)
    blocks: Annotated[int, Field(ge=1, le=1000)] | Literal["auto"] = "auto"
    warmup: Annotated[int, Field(ge=0, le=100_000)] | Literal["auto"] = "auto"
    iters: Annotated[int, Field(ge=1, le=100_000)] | Literal["auto"] = "auto"
    max_time: float | None = Field(default=None, gt=0, le=30 * 86400, allow_inf_nan=False)
    seed: int = Field(default=42, ge=0, le=2**31 - 1)
    device: Annotated[str, Field(pattern=r"^[a-z]+(:\d+)?$", max_length=40)] = "auto"
    isolation: Literal["auto", "process", "resident"] = "auto"
    goal: str | None = None
    hypothesis: Phase | None = None
    policy: str | None = None
    threshold: dict[str, float] = Field(default_factory=dict)
    label: Name | None = None

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
        if isinstance(data.get("threshold"), Mapping):
            data["threshold"] = {
                key: float(value) if type(value) is int else value
                for key, value in data["threshold"].items()
            }
        if type(data.get("max_time")) in (int, str):
            data["max_time"] = parse_seconds(str(data["max_time"]))
        return data

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.task == BUILT_IN_TASK:
            if self.workload is not None and self.workload not in PRESETS:
                raise ValueError(
                    f"unknown workload {self.workload!r}{nearest(self.workload, PRESETS)}; "
                    f"known: {', '.join(PRESETS)}"
                )
        else:
            _check_task_path(self.task)
            given = [key for key in ("workload", *MODEL_FLAGS) if getattr(self, key) is not None]
            if given:
                raise ValueError(
                    f"{', '.join(given)} belong to the built-in task, not to {self.task!r}; "
                    "pass such settings with set (--set KEY=VALUE)"
                )
        if self.goal is not None and self.goal not in GOALS:
            raise ValueError(
                f"unknown goal {self.goal!r}{nearest(self.goal, GOALS)}; known: {', '.join(GOALS)}"
            )
        self._check_policy()
        names = [candidate.name for candidate in self.candidates]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"candidate {twice[0]!r} is given twice; names must differ")
        self.variants()
        return self

    def _check_policy(self) -> None:
        name = self.policy_name
        if name not in POLICIES:
            raise ValueError(
                f"unknown policy {name!r}{nearest(name, POLICIES)}; known: {', '.join(POLICIES)}"
            )
        if name == "goal" and self.goal is None:
            raise ValueError(f"the policy 'goal' needs a goal; known: {', '.join(GOALS)}")
        defaults = POLICIES[name].thresholds
        for key, value in self.threshold.items():
            if key not in defaults:
                raise ValueError(
                    f"unknown threshold {key!r} of the policy {name!r}{nearest(key, defaults)}; "
                    f"known: {', '.join(defaults)}"
                )
            if value != value or abs(value) == float("inf"):
                raise ValueError(f"threshold {key} is {value}; give a finite number")

    @property
    def policy_name(self) -> str:
        """The rule set that decides: the goal's where a goal is given, else the source's."""
        return self.policy or ("goal" if self.goal else "training")

    @property
    def workload_name(self) -> str:
        return self.task if self.task != BUILT_IN_TASK else (self.workload or "quick")

    @property
    def preset(self) -> Preset:
        return PRESETS[self.workload_name] if self.task == BUILT_IN_TASK else CUSTOM_TASK

    @property
    def warmup_steps(self) -> int:
        return self.preset.warmup if self.warmup == "auto" else self.warmup

    @property
    def steps_per_block(self) -> int:
        return self.preset.iters if self.iters == "auto" else self.iters

    @property
    def blocks_per_repeat(self) -> int:
        return 1 if self.blocks == "auto" else self.blocks

    def variants(self) -> tuple[Variant, ...]:
        """Baseline and candidates with their whole configurations, checked.

        A probe has no baseline to compare with: it measures its candidates, or
        the baseline's configuration where it names none.

        Raises:
            ValueError: a setting is invalid, or a candidate differs from the
                baseline in nothing or in more than one variable.
        """
        shared = {**self.preset.config, **_given(self, MODEL_FLAGS), **self.set}
        base = self._complete({**shared, **self.baseline}, BASELINE)
        variants = [Variant(name=BASELINE, role="baseline", config=base)]
        for candidate in self.candidates:
            config = self._complete({**base, **candidate.settings}, candidate.name)
            changed = {key: value for key, value in config.items() if base.get(key) != value}
            variable = _changed_variable(candidate.name, changed)
            variants.append(
                Variant(
                    name=candidate.name,
                    role="candidate",
                    config=config,
                    changed=changed,
                    changed_variable=variable,
                )
            )
        if self.probe and self.candidates:
            return tuple(variants[1:])
        return tuple(variants)

    def _complete(self, config: dict[str, Setting], name: str) -> dict[str, Setting]:
        for key, value in config.items():
            if not re.fullmatch(r"[A-Za-z_][\w.]{0,99}", key):
                raise ValueError(f"{name}: {key[:60]!r} is not a usable key; use letters, digits, _")
            if len(json.dumps(value)) > MAX_SETTING_CHARS:
                raise ValueError(f"{name}: the value of {key} is over {MAX_SETTING_CHARS} characters")
        if self.task != BUILT_IN_TASK:
            return config
        try:
            return CausalLMConfig.model_validate(_whole_floats(config)).model_dump()
        except ValidationError as error:
            raise ValueError(f"{name}: {explain(error, CausalLMConfig)}") from None


def _whole_floats(config: Mapping[str, Setting]) -> dict[str, Setting]:
    """``learning_rate=1`` means 1.0: an integer is a fine float, a string never is."""
    floats = [key for key, field in CausalLMConfig.model_fields.items() if field.annotation is float]
    return {
        key: float(value) if key in floats and type(value) is int else value
        for key, value in config.items()
    }


def _given(plan: Plan, keys: Iterable[str]) -> dict[str, Setting]:
    return {key: getattr(plan, key) for key in keys if getattr(plan, key) is not None}


def _changed_variable(name: str, changed: dict[str, Setting]) -> str:
    if not changed:
        raise ValueError(
            f"candidate {name!r} does not differ from the baseline; change one setting"
        )
    if len(changed) == 1:
        return next(iter(changed))
    strategy = strategy_of(changed)
    if strategy is None:
        raise ValueError(
            f"candidate {name!r} changes {len(changed)} variables ({', '.join(sorted(changed))}), "
            "so no difference could be attributed to one of them; change one, "
            "and put what both share into set or baseline"
        )
    return strategy


def _check_task_path(task: str) -> None:
    module, separator, factory = task.partition(":")
    if not separator or not all(part.isidentifier() for part in (*module.split("."), factory)):
        raise ValueError(
            f"task {task!r} is neither {BUILT_IN_TASK!r} nor of the form MODULE:FACTORY, "
            "e.g. mypackage.training:make_task"
        )


# --- reading -----------------------------------------------------------------------------------


def make_plan(data: Mapping[str, Any], *, where: str = "plan") -> Plan:
    """Validate a mapping as a plan.

    Raises:
        PlanError: with every problem, the value, and the nearest known key.
    """
    try:
        return Plan.model_validate(data)
    except ValidationError as error:
        raise PlanError(f"{where}: {explain(error, Plan)}") from None


def read_plan(path: Path) -> dict[str, Any]:
    """The mapping in a YAML plan file, not yet validated.

    Raises:
        PlanError: the file is missing, too large, no YAML, or no mapping.
    """
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise PlanError(f"plan {str(path)!r} cannot be read: {error.strerror}") from None
    if len(raw) > MAX_PLAN_BYTES:
        raise PlanError(f"plan {str(path)!r} has {len(raw)} bytes; at most {MAX_PLAN_BYTES}")
    try:
        data = yaml.load(raw.decode("utf-8"), Loader=_UniqueKeys)  # noqa: S506 - a SafeLoader
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise PlanError(f"plan {str(path)!r} is not valid YAML: {error}") from None
    if not isinstance(data, dict) or not all(isinstance(key, str) for key in data):
        raise PlanError(f"plan {str(path)!r} must be a mapping of keys to values")
    return data


class _UniqueKeys(yaml.SafeLoader):
    """YAML lets a repeated key win silently; a plan must not."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, str):
                raise yaml.YAMLError(f"key {key!r} is not a text{key_node.start_mark}")
            if key in seen:
                raise yaml.YAMLError(f"key {key!r} is given twice{key_node.start_mark}")
            seen.add(key)
        return super().construct_mapping(node, deep=deep)


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


def parse_settings(text: str) -> dict[str, Setting]:
    """K=V,K=V as a mapping; a comma separates only where another K= follows.

    >>> parse_settings("batch_size=4,compile=off,learning_rate=1e-5")
    {'batch_size': 4, 'compile': 'off', 'learning_rate': 1e-05}
    """
    settings: dict[str, Setting] = {}
    for part in re.split(r",(?=\s*[A-Za-z_][\w.]*\s*=)", text):
        key, separator, value = part.partition("=")
        key = key.strip()
        if not separator or not key:
            raise ValueError(f"{part.strip()[:80]!r} is not of the form KEY=VALUE")
        if key in settings:
            raise ValueError(f"{key!r} is given twice")
        settings[key] = parse_value(value.strip())
    return settings


def parse_value(text: str) -> Setting:
    """A JSON value where it is one, else the text itself.

    >>> [parse_value(text) for text in ("3", "1e-3", "true", "null", "fp32")]
    [3, 0.001, True, None, 'fp32']
    """
    try:
        value: Setting = json.loads(text, parse_constant=lambda name: name)
    except (json.JSONDecodeError, RecursionError, ValueError):
        return text
    return value


_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "": 1.0}


def parse_seconds(text: str) -> float:
    """A duration as 90, 90s, 15m or 2h, in seconds.

    >>> parse_seconds("15m")
    900.0
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([smh]?)\s*", text)
    if not match:
        raise ValueError(f"{text[:40]!r} is no duration; write 90s, 15m or 2h")
    return float(match[1]) * _UNITS[match[2]]


# --- messages ----------------------------------------------------------------------------------


def nearest(word: str, known: Iterable[str]) -> str:
    """A hint at the nearest known word, or nothing.

    >>> nearest("chekpoint", ["checkpoint", "offload"])
    " (did you mean 'checkpoint'?)"
    """
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.5)
    return f" (did you mean {close[0]!r}?)" if close else ""


def explain(error: ValidationError, model: type[BaseModel]) -> str:
    """All problems of a validation in one line, each with the key, the value and the remedy."""
    problems = []
    for item in error.errors(include_url=False):
        key = ".".join(str(part) for part in item["loc"])
        value = repr(item.get("input"))
        value = value if len(value) <= 80 else value[:77] + "..."
        if item["type"] == "extra_forbidden":
            problems.append(
                f"unknown key {key!r}{nearest(key, model.model_fields)}; "
                f"known: {', '.join(model.model_fields)}"
            )
        elif item["type"] == "value_error":
            cause = item["ctx"]["error"]
            message = explain(cause, Candidate) if isinstance(cause, ValidationError) else str(cause)
            problems.append(f"{key}: {message}" if key else message)
        else:
            problems.append(f"{key} = {value}: {item['msg'][0].lower()}{item['msg'][1:]}")
    return "; ".join(dict.fromkeys(problems))


def choices(field: str) -> list[str]:
    """The words that a field of the plan takes, for the command line.

    >>> choices("isolation")
    ['auto', 'process', 'resident']
    """
    annotation = Plan.model_fields[field].annotation
    words = [word for part in (annotation, *get_args(annotation)) for word in get_args(part)]
    return [word for word in words if isinstance(word, str)]
