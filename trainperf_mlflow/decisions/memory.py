"""Memory strategies under a budget, as course projects 76 and 75 judge them.

A variant is feasible when its peak memory is within the cap, its throughput
reaches the floor and its eval loss stays within the limit; one that equals a
limit keeps it. The baseline competes too. The best is the feasible one with the
least memory, then the most throughput, then the least loss.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple, TypedDict

from trainperf_mlflow.decisions.numbers import is_number, limit, number, optional_number
from trainperf_mlflow.decisions.quality import settled
from trainperf_mlflow.decisions.reasons import REASONS
from trainperf_mlflow.results.decision import Evaluation
from trainperf_mlflow.results.record import Record

MEMORY_STRATEGIES = frozenset({"checkpoint", "offload", "hybrid"})
MIN_MEMORY_SAVING_MB = 512.0
MIN_THROUGHPUT_RATIO = 0.70
MAX_VAL_LOSS_RATIO = 1.02  # of the baseline's, where no absolute limit is given
BASELINE = "baseline"

_BUDGET_KEYS = ("memory_cap_mb", "min_samples_per_s")
_DEFAULTED_KEYS = ("min_memory_saving_mb", "min_throughput_ratio")
_QUALITY_KEYS = ("max_val_loss",)


class MemoryBudget(Record):
    """The limits of a budget; ``max_val_loss`` is None where quality is not to be judged."""

    memory_cap_mb: float
    min_samples_per_s: float
    max_val_loss: float | None
    min_memory_saving_mb: float = MIN_MEMORY_SAVING_MB
    min_throughput_ratio: float = MIN_THROUGHPUT_RATIO


class BudgetCheck(TypedDict):
    is_valid: bool
    missing_keys: list[str]
    invalid_keys: list[str]


class MemorySummary(TypedDict):
    """Counts, and the best feasible variant against the baseline, unrounded.

    ``measured_count`` leaves out ooms and invalid ones. ``feasible_names`` has
    the best first; ``throughput_ratio`` is best / baseline.
    """

    candidate_count: int
    measured_count: int
    oom_count: int
    invalid_count: int
    feasible_count: int
    best_candidate: str | None
    quality_failed_count: int
    feasible_names: list[str]
    baseline_peak_memory_mb: float | None
    best_peak_memory_mb: float | None
    memory_saving_mb: float
    throughput_ratio: float | None
    min_memory_saving_mb: float
    min_throughput_ratio: float
    evaluations: list[dict[str, Any]]


class Measured(NamedTuple):
    """What a variant takes; the loss is None where quality is not judged."""

    name: str
    memory_mb: float
    samples_per_s: float
    eval_loss: float | None
    reserved_mb: float | None


class RuleSet(NamedTuple):
    """In what the two rules differ: names of policy and codes, next actions."""

    policy: str
    accepted: str
    quality: str
    next_actions: Mapping[str, str]

    def next_action(self, reason: str) -> str:
        return self.next_actions.get(reason, REASONS[reason].next_action)


def validate_memory_budget(
    budget: Mapping[str, Any], quality_floor: Mapping[str, Any]
) -> BudgetCheck:
    """Which limits are missing, and which are no finite number, 0 or more.

    A cap of 0 and a ``min_throughput_ratio`` above 1 are invalid too.
    ``min_memory_saving_mb`` and ``min_throughput_ratio`` may be left out.

    >>> validate_memory_budget({"memory_cap_mb": True}, {"max_val_loss": 2.5})["invalid_keys"]
    ['memory_cap_mb']
    """
    wanted = [(budget, key) for key in _BUDGET_KEYS] + [(quality_floor, k) for k in _QUALITY_KEYS]
    given = [(budget, key) for key in _DEFAULTED_KEYS if key in budget]
    missing = [key for values, key in wanted if key not in values]
    invalid = [
        key
        for values, key in (*wanted, *given)
        if key in values and not _is_limit(key, values[key])
    ]
    return BudgetCheck(
        is_valid=not missing and not invalid, missing_keys=missing, invalid_keys=invalid
    )


def _is_limit(key: str, value: Any) -> bool:
    if not is_number(value) or value < 0:
        return False
    return not (key == "memory_cap_mb" and value == 0) and not (
        key == "min_throughput_ratio" and value > 1
    )


def memory_budget(budget: Mapping[str, Any], quality_floor: Mapping[str, Any]) -> MemoryBudget:
    """The budget as a record.

    Raises:
        ValueError: a limit is missing or invalid.
    """
    check = validate_memory_budget(budget, quality_floor)
    if not check["is_valid"]:
        problems = [f"{key} is missing" for key in check["missing_keys"]]
        problems += [f"{key} is invalid" for key in check["invalid_keys"]]
        raise ValueError(
            f"the budget cannot be read: {', '.join(problems)}; give finite numbers, 0 or more"
        )
    optional = {key: limit(budget, key) for key in _DEFAULTED_KEYS if key in budget}
    return MemoryBudget(
        memory_cap_mb=limit(budget, "memory_cap_mb"),
        min_samples_per_s=limit(budget, "min_samples_per_s"),
        max_val_loss=limit(quality_floor, "max_val_loss"),
        **optional,
    )


def summarize_memory_strategies(
    candidates: Sequence[Mapping[str, Any]],
    budget: Mapping[str, Any],
    quality_floor: Mapping[str, Any],
) -> MemorySummary:
    """Judge the variants, baseline included, and find the best feasible one.

    Args:
        candidates: mappings with ``name``, ``peak_memory_mb``, ``samples_per_s``,
            ``eval_loss`` (else ``val_loss``) and, where it is not ok, ``status``.
        budget: ``memory_cap_mb`` and ``min_samples_per_s``; may have
            ``min_memory_saving_mb`` and ``min_throughput_ratio``.
        quality_floor: ``max_val_loss``.

    Raises:
        ValueError: the budget is invalid. A candidate that cannot be judged is
            counted as invalid, and never compared.
    """
    return summarize(candidates, memory_budget(budget, quality_floor))


def summarize(
    candidates: Sequence[Mapping[str, Any]],
    budget: MemoryBudget,
    unjudged: Collection[str] = (),
) -> MemorySummary:
    """The same for a budget as a record; the quality of those in ``unjudged`` is not judged."""
    names = Counter(name for item in candidates if isinstance(name := item.get("name"), str))
    judged = [_judge(item, budget, names, unjudged) for item in candidates]
    evaluations = [evaluation for evaluation, _ in judged]
    measured = [item for _, item in judged if item is not None]
    feasible = sorted(
        (item for evaluation, item in judged if item and evaluation.status == "feasible"),
        key=_best_first,
    )
    best = feasible[0] if feasible else None
    baseline = next((item for item in measured if item.name == BASELINE), None)
    statuses = Counter(evaluation.status for evaluation in evaluations)
    both = (baseline, best) if baseline and best else None
    return MemorySummary(
        candidate_count=len(candidates),
        measured_count=len(measured),
        oom_count=statuses["oom"],
        invalid_count=statuses["invalid"],
        feasible_count=len(feasible),
        best_candidate=best.name if best else None,
        quality_failed_count=sum("quality_over_floor" in item.reasons for item in evaluations),
        feasible_names=[item.name for item in feasible],
        baseline_peak_memory_mb=baseline.memory_mb if baseline else None,
        best_peak_memory_mb=best.memory_mb if best else None,
        memory_saving_mb=both[0].memory_mb - both[1].memory_mb if both else 0.0,
        throughput_ratio=both[1].samples_per_s / both[0].samples_per_s if both else None,
        min_memory_saving_mb=budget.min_memory_saving_mb,
        min_throughput_ratio=budget.min_throughput_ratio,
        evaluations=[item.model_dump(mode="json") for item in evaluations],
    )


def _best_first(item: Measured) -> tuple[float, float, float, bool, str]:
    # Of equals, the baseline; then by name, so that the order they come in does not matter.
    loss = item.eval_loss if item.eval_loss is not None else 0.0
    return item.memory_mb, -item.samples_per_s, loss, item.name != BASELINE, item.name


def _judge(
    item: Mapping[str, Any], budget: MemoryBudget, names: Counter[str], unjudged: Collection[str]
) -> tuple[Evaluation, Measured | None]:
    name = item.get("name")
    if not isinstance(name, str) or not name.strip():
        return _invalid("", "missing_or_duplicate_name", "it has no name"), None
    if names[name] > 1:
        return _invalid(name, "missing_or_duplicate_name", "its name is given twice"), None
    status = item.get("status", "ok")
    if status == "oom":
        oom = Evaluation(name=name, status="oom", reasons=("oom",), detail="ran out of memory")
        return oom, None
    if status != "ok":
        why = str(item.get("why") or f"it did not succeed (status {status})")
        return _invalid(name, "not_ok", why), None
    with_loss = budget.max_val_loss is not None and name not in unjudged
    measured = read_measured(item, with_loss=with_loss)
    if isinstance(measured, str):
        return _invalid(name, "missing_or_non_numeric_metric", measured), None
    return evaluate(measured, budget), measured


def _invalid(name: str, reason: str, why: str) -> Evaluation:
    detail = f"cannot be judged: {why}"
    return Evaluation(name=name, status="invalid", reasons=(reason,), detail=detail)


def read_measured(item: Mapping[str, Any], *, with_loss: bool) -> Measured | str:
    """A variant's numbers, or what is wrong with them."""
    loss_key = "eval_loss" if "eval_loss" in item else "val_loss"
    wanted = ["peak_memory_mb", "samples_per_s"] + ([loss_key] if with_loss else [])
    bad = [key for key in wanted if not is_number(item.get(key))]
    # A peak or a throughput of 0 is what a missing counter reports, never a measurement.
    bad += [key for key in wanted[:2] if key not in bad and item[key] <= 0]
    if bad:
        return f"{', '.join(bad)} was not measured"
    reserved = item.get("peak_reserved_mb")
    return Measured(
        name=str(item.get("name")),
        memory_mb=float(item["peak_memory_mb"]),
        samples_per_s=float(item["samples_per_s"]),
        eval_loss=float(item[loss_key]) if with_loss else None,
        reserved_mb=float(reserved) if is_number(reserved) else None,
    )


def evaluate(item: Measured, budget: MemoryBudget) -> Evaluation:
    """Whether a variant keeps the budget, or which of its limits it breaks."""
    checks = [
        (
            "memory_over_budget",
            settled(item.memory_mb) <= budget.memory_cap_mb,
            f"memory {item.memory_mb:.2f} MiB (at most {budget.memory_cap_mb:g})",
        ),
        (
            "throughput_below_floor",
            settled(item.samples_per_s) >= budget.min_samples_per_s,
            f"throughput {item.samples_per_s:.3f} samples/s (at least "
            f"{budget.min_samples_per_s:g})",
        ),
    ]
    if item.eval_loss is not None and budget.max_val_loss is not None:
        within = settled(item.eval_loss) <= settled(budget.max_val_loss)
        words = f"eval loss {item.eval_loss:.6g} (at most {budget.max_val_loss:.6g})"
        checks.append(("quality_over_floor", within, words))
    broken = [(code, words) for code, kept, words in checks if not kept]
    fits = checks[0][1]
    over_cap = fits and item.reserved_mb is not None and item.reserved_mb > budget.memory_cap_mb
    detail = (
        f"breaks the budget: {', '.join(words for _, words in broken)}"
        if broken
        else f"keeps the budget: {', '.join(words for *_, words in checks)}"
    )
    if over_cap:
        detail += (
            f"; but the allocator reserved {item.reserved_mb:.2f} MiB, which exceeds the cap, "
            "so a device of that size may still run out of memory"
        )
    return Evaluation(
        name=item.name,
        status="rejected" if broken else "feasible",
        reasons=tuple(code for code, _ in broken),
        detail=detail,
        reserved_over_cap=over_cap,
    )


def reason_of(summary: Mapping[str, Any], rules: RuleSet, strategies: frozenset[str]) -> str:
    """The code for a summary; ``strategies`` are the names that count as memory strategies.

    Raises:
        ValueError: a field is missing or of the wrong kind.
    """
    if number(summary, "feasible_count", "summary") == 0:
        return "no_strategy_meets_budget_and_quality"
    best = summary.get("best_candidate")
    if not isinstance(best, str):
        raise ValueError(f"summary: best_candidate is {best!r}; give the name of the feasible best")
    saving = settled(number(summary, "memory_saving_mb", "summary"))
    ratio = optional_number(summary, "throughput_ratio", "summary")
    limits = {
        "min_memory_saving_mb": MIN_MEMORY_SAVING_MB,
        "min_throughput_ratio": MIN_THROUGHPUT_RATIO,
        **{key: summary[key] for key in _DEFAULTED_KEYS if key in summary},
    }
    saves = saving >= limit(limits, "min_memory_saving_mb", "summary")
    keeps = ratio is None or settled(ratio) >= limit(limits, "min_throughput_ratio", "summary")
    if best in strategies and saves and keeps:
        return rules.accepted
    if number(summary, "quality_failed_count", "summary") > 0:
        return rules.quality
    if not saves:
        return "memory_saving_below_meaningful_threshold"
    if not keeps:
        return "throughput_loss_exceeds_budget"
    return "baseline_still_best_under_current_budget"


def decide_summary(summary: Mapping[str, Any], rules: RuleSet) -> dict[str, str]:
    """``decision``, ``reason`` and ``next_action`` for a summary."""
    reason = reason_of(summary, rules, MEMORY_STRATEGIES)
    return {
        "decision": REASONS[reason].decision,
        "reason": reason,
        "next_action": rules.next_action(reason),
    }
