"""What the published formats have in common: strict fields, and whatever else they hold kept."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from trainperf_mlflow.errors import PlanError
from trainperf_mlflow.evidence.reading import Document, Json, path_of
from trainperf_mlflow.messages import shown
from trainperf_mlflow.results.study import PublishedDecision

PROJECT_SCHEMA = "training-performance-project/v1"
BASELINE_ID = "PERF-TRAINING-BASELINE"
STRATEGY_ID = "PERF-MEMORY-STRATEGY"
BUDGET_ID = "PERF-MEMORY-BUDGET"
TASK = "task3_training_memory_optimization"

_MAX_PROBLEMS = 5
_KINDS = {
    "float_type": "is no number",
    "int_type": "is no whole number",
    "string_type": "is no text",
    "bool_type": "is neither true nor false",
    "list_type": "is no list",
    "dict_type": "is no mapping",
    "model_type": "is no mapping",
}


def _usable(value: float) -> float:
    # One divides by them, and 1 / 1e-308 is no finite number.
    if value and not 1e-30 <= value <= 1e30:
        raise ValueError("is beyond what can be measured; give 1e-30 to 1e30, or 0")
    return value


# MiB, ms and rates; 0 is what a missing counter reports, so it counts as not measured.
Amount = Annotated[float, Field(ge=0), AfterValidator(_usable)]
Count = Annotated[int, Field(ge=0, le=10**9)]


def _printable(name: str) -> str:
    if not name.isprintable() or name != name.strip():
        raise ValueError("holds control characters, or blanks at its ends")
    return name


Name = Annotated[str, Field(min_length=1, max_length=250), AfterValidator(_printable)]


class Fields(BaseModel):
    """Base of all models: no boolean or text passes for a number, unknown fields are kept."""

    model_config = ConfigDict(
        frozen=True, strict=True, extra="allow", allow_inf_nan=False, protected_namespaces=()
    )

    def to_json(self) -> Json:
        """The object as it was given, with the fields that no model knows."""
        return self.model_dump(mode="json", exclude_unset=True)


class Config(Fields):
    """What was trained and on what."""

    model_id: str | None = None
    workload: str | None = None
    batch_size: Count | None = None
    seq_len: Count | None = None
    dtype: str | None = None
    amp_dtype: str | None = None
    optimizer: str | None = None
    warmup: Count | None = None
    iters: Count | None = None
    repeats: Count | None = None
    seed: Count | None = None
    device: str | None = None
    torch: str | None = None
    torch_cuda: str | None = None


class Measured(Fields):
    """One run or the means of several, by the names of either format; ms and MiB."""

    step_time_ms: Amount | None = None
    step_time_median_ms: Amount | None = None
    samples_per_s: Amount | None = None
    tokens_per_s: Amount | None = None
    peak_mem_mb: Amount | None = None  # 73
    peak_memory_mb: Amount | None = None  # 75, 76
    peak_reserved_mb: Amount | None = None
    host_peak_rss_mb: Amount | None = None
    first_step_ms: Amount | None = None
    compile_s: Amount | None = None
    num_alloc_retries: Amount | None = None
    loss: float | None = None
    eval_loss: float | None = None
    val_loss: float | None = None

    def metrics(self) -> dict[str, float]:
        """The values by their MLflow names."""
        amounts = {
            "step_time_ms": self.step_time_ms,
            "step_time_median_ms": self.step_time_median_ms,
            "samples_per_s": self.samples_per_s,
            "tokens_per_s": self.tokens_per_s,
            "peak_mem_mb": self.peak_memory_mb or self.peak_mem_mb,
            "peak_reserved_mb": self.peak_reserved_mb,
            "host_peak_rss_mb": self.host_peak_rss_mb,
            "first_step_ms": self.first_step_ms,
            "compile_s": self.compile_s,
        }
        exact = {
            "num_alloc_retries": self.num_alloc_retries,
            "loss": self.loss,
            "eval_loss": self.eval_loss if self.eval_loss is not None else self.val_loss,
        }
        return {
            **{name: value for name, value in amounts.items() if value},
            **{name: value for name, value in exact.items() if value is not None},
        }


class Run(Measured):
    """One repeat. What the source leaves out: it counts from 1, and it succeeded."""

    repeat: Annotated[int, Field(ge=1, le=10**6)] | None = None
    status: str | None = None
    error: str | None = None
    quality_checked: bool | None = None


class Means(Run):
    """A variant's means and, where they were published, its repeats."""

    runs: list[Run] | None = None

    def named(self, name: str) -> Candidate:
        return Candidate.model_validate({**self.model_dump(exclude_unset=True), "name": name})


class Candidate(Means):
    """A variant that says its name itself."""

    name: Name


class Conclusion(Fields):
    """A published decision."""

    decision: Literal["accept", "tune", "reject", "measure"]
    reason: str | None = None
    next_action: str | None = None
    by_point_values: Conclusion | None = None  # ours: before the evidence was weighed


def published(
    conclusion: Conclusion | None, best_candidate: str | None = None
) -> PublishedDecision | None:
    """A report's decision as a study keeps it; None where it states none."""
    if conclusion is None:
        return None
    return PublishedDecision(
        decision=conclusion.decision,
        reason=conclusion.reason,
        next_action=conclusion.next_action,
        best_candidate=best_candidate,
        by_point_values=published(conclusion.by_point_values),
    )


class Report(Fields):
    """Base of the formats: what is named as their kind must be theirs."""

    schema_version: str | None = None
    semantic_id: str | None = None

    @classmethod
    def read(cls, document: Document) -> Self:
        """The report in a document.

        Raises:
            PlanError: fields are missing or wrong, each named with its path and value.
        """
        return validated(cls, document.content, document.name)


M = TypeVar("M", bound=BaseModel)


def validated(model: type[M], content: Any, where: str, *at: str) -> M:
    """An object as a model; ``at`` is the path of the object in its file.

    Raises:
        PlanError: the first problems, each with the field's path and the value.
    """
    try:
        return model.model_validate(content)
    except ValidationError as error:
        problems = [_problem(item, at) for item in error.errors()[:_MAX_PROBLEMS]]
        more = error.error_count() - len(problems)
        rest = f"; and {more} more" if more > 0 else ""
        raise PlanError(f"{shown(where)}: {'; '.join(problems)}{rest}") from None


def _problem(item: Any, at: tuple[str, ...]) -> str:
    path = path_of((*at, *item["loc"]))
    kind, value = item["type"], shown(item.get("input"))
    if kind == "missing":
        return f"{path} is missing"
    if kind in _KINDS:
        return f"{path}: {value} {_KINDS[kind]}"
    if kind == "literal_error":
        return f"{path}: {value} is not {item['ctx']['expected']}"
    message: str = item["msg"]
    return f"{path}: {value}: {message.removeprefix('Value error, ')}"
