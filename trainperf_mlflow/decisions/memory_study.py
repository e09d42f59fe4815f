"""A study's variants under a memory budget: each candidate's decision, and the best of all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from trainperf_mlflow.analysis.compare import measured
from trainperf_mlflow.decisions.case import Case, Choice
from trainperf_mlflow.decisions.memory import (
    BASELINE,
    MAX_VAL_LOSS_RATIO,
    MEMORY_STRATEGIES,
    MIN_MEMORY_SAVING_MB,
    MIN_THROUGHPUT_RATIO,
    MemoryBudget,
    MemorySummary,
    RuleSet,
    reason_of,
    summarize,
)
from trainperf_mlflow.decisions.outcomes import has_ok_repeat
from trainperf_mlflow.decisions.reasons import REASONS, conclude
from trainperf_mlflow.results.decision import Decision, Evaluation
from trainperf_mlflow.results.record import Status
from trainperf_mlflow.results.values import VariantValues

OPTIONAL_THRESHOLDS = ("max_val_loss",)
# The settings by which a variant is a memory strategy, whatever its name.
_STRATEGY_KEYS = {"checkpoint", "offload"}


def thresholds(memory_cap_mb: float, min_samples_per_s: float) -> MappingProxyType[str, float]:
    """The thresholds of a rule set, with the published budget as the default."""
    return MappingProxyType(
        {
            "memory_cap_mb": memory_cap_mb,
            "min_samples_per_s": min_samples_per_s,
            "max_val_loss_ratio": MAX_VAL_LOSS_RATIO,
            "min_memory_saving_mb": MIN_MEMORY_SAVING_MB,
            "min_throughput_ratio": MIN_THROUGHPUT_RATIO,
        }
    )


def decide_candidate(case: Case, rules: RuleSet) -> Decision:
    """One candidate, as if it were the only one: it breaks the budget, or what its gain is worth.

    The study's decision is ``choose``'s, in which all variants compete.
    """
    budget, unjudged = _budget(case), _unjudged([case])
    candidate = _entry(case.candidate, case)
    summary = summarize([candidate], budget, unjudged)
    evaluation = Evaluation.model_validate(summary["evaluations"][0])
    if evaluation.status in ("invalid", "oom"):
        reason = "budget_not_measured"
    elif evaluation.status == "rejected":
        reason = "candidate_over_budget"
    else:
        alone = {**summary, **_against_baseline(case)}
        reason = reason_of(alone, rules, _strategies([case]))
    numbers = _numbers(budget, _against_baseline(case))
    why = evaluation.detail if evaluation.status != "feasible" else _alone(reason, rules)
    if evaluation.reserved_over_cap:
        why += " (its reserved memory exceeds the cap although the allocated fits)"
    text = f"{why}{_gain(case)}{_quality([case])}"
    return conclude(
        reason, text, rules.policy, next_action=rules.next_action(reason), numbers=numbers
    )


def choose(cases: Sequence[Case], rules: RuleSet) -> Choice:
    """The rule on a study's variants, baseline included."""
    budget = _budget(cases[0])
    entries = [_entry(cases[0].baseline), *(_entry(case.candidate, case) for case in cases)]
    summary = summarize(entries, budget, _unjudged(cases))
    reason = reason_of(summary, rules, _strategies(cases))
    decision = conclude(
        reason,
        f"{REASONS[reason].en}: {_summary_text(summary)}{_quality(cases)}",
        rules.policy,
        next_action=rules.next_action(reason),
        numbers=_numbers(budget, summary),
    )
    evaluations = [Evaluation.model_validate(item) for item in summary["evaluations"]]
    # The entry of the baseline bears its role's name, whatever the variant's own is.
    names = [cases[0].baseline.name, *(case.candidate.name for case in cases)]
    named = {
        name: evaluation.model_copy(update={"name": name})
        for name, evaluation in zip(names, evaluations, strict=True)
    }
    best = summary["best_candidate"]
    return Choice(cases[0].baseline.name if best == BASELINE else best, decision, named)


def _budget(case: Case) -> MemoryBudget:
    limits, base_loss = case.thresholds, measured(case.baseline.metrics, "eval_loss")
    max_val_loss = limits.get("max_val_loss")
    if max_val_loss is None and base_loss is not None:
        max_val_loss = base_loss * limits["max_val_loss_ratio"]
    return MemoryBudget(
        memory_cap_mb=limits["memory_cap_mb"],
        min_samples_per_s=limits["min_samples_per_s"],
        max_val_loss=max_val_loss,
        min_memory_saving_mb=limits["min_memory_saving_mb"],
        min_throughput_ratio=limits["min_throughput_ratio"],
    )


def _unjudged(cases: Sequence[Case]) -> set[str]:
    """Candidates whose quality is not judged.

    A limit that was asked for is kept whatever the loss was taken on; one that
    derives from the baseline's says nothing unless both read the same real text.
    """
    if "max_val_loss" in cases[0].thresholds:
        return set()
    return {case.candidate.name for case in cases if case.difference.quality_gap is not None}


def _quality(cases: Sequence[Case]) -> str:
    """What to say where losses are no proof of quality."""
    gaps = dict.fromkeys(
        case.difference.quality_gap
        for case in cases
        if case.difference.quality_gap and has_ok_repeat(case.candidate)
    )
    return "".join(f"; quality was not checked, because {gap}" for gap in gaps)


def _entry(variant: VariantValues, case: Case | None = None) -> dict[str, Any]:
    """A variant as the rule reads it; means are rounded to 3 decimals, as in the source."""
    entry: dict[str, Any] = {"name": variant.name if case else BASELINE}
    why = _unfit(variant, case)
    if why is not None:
        oom = variant.status is Status.OOM and not has_ok_repeat(variant)
        return entry | {"status": "oom" if oom else "failed", "why": why}
    for key, metric in (
        ("peak_memory_mb", "peak_mem_mb"),
        ("samples_per_s", "samples_per_s"),
        ("peak_reserved_mb", "peak_reserved_mb"),
    ):
        value = measured(variant.metrics, metric)
        if value is not None:
            entry[key] = _rounded(value)
    return entry | {"eval_loss": measured(variant.metrics, "eval_loss")}


def _rounded(value: float) -> float:
    # A rate of steps that take many minutes must not become 0.
    return round(value, 3) or value


def _unfit(variant: VariantValues, case: Case | None) -> str | None:
    """Why a variant does not compete, or None."""
    if not has_ok_repeat(variant):
        return f"it did not succeed (status {variant.status.value})"
    if variant.effect_verified is False:
        return "the change was not in effect"
    if any(key in variant.metrics and measured(variant.metrics, key) is None for key in _LOSSES):
        return "its loss is NaN or infinite"
    if case is not None and variant.peak_mem_source != case.baseline.peak_mem_source:
        return case.difference.memory_gap or "its memory was measured in another way"
    return None


_LOSSES = ("loss", "eval_loss")


def _strategies(cases: Sequence[Case]) -> frozenset[str]:
    """The candidates that are memory strategies, by their name or by what they change."""
    return MEMORY_STRATEGIES | {
        case.candidate.name
        for case in cases
        if (changed := _changed(case)) and changed <= _STRATEGY_KEYS
    }


def _changed(case: Case) -> set[str]:
    before, after = case.baseline.config, case.candidate.config
    return {key for key in before.keys() | after.keys() if before.get(key) != after.get(key)}


def _against_baseline(case: Case) -> dict[str, Any]:
    """Saving (MiB) and throughput ratio of this candidate, whether feasible or not."""
    saving, ratio = 0.0, None
    before, after = case.baseline.metrics, case.candidate.metrics
    if case.difference.memory_gap is None:
        saving = _rounded(before["peak_mem_mb"]) - _rounded(after["peak_mem_mb"])
    rates = measured(before, "samples_per_s"), measured(after, "samples_per_s")
    if rates[0] and rates[1]:
        ratio = _rounded(rates[1]) / _rounded(rates[0])
    return {"memory_saving_mb": saving, "throughput_ratio": ratio}


def _numbers(budget: MemoryBudget, summary: Mapping[str, Any]) -> dict[str, float]:
    values = {
        "memory_saving_mb": summary["memory_saving_mb"],
        "throughput_ratio": summary["throughput_ratio"],
        **budget.model_dump(),
    }
    return {key: value for key, value in values.items() if value is not None}


def _alone(reason: str, rules: RuleSet) -> str:
    """A reason in words where it is about one candidate, which need not be the best one."""
    if reason == "baseline_still_best_under_current_budget":
        return "it keeps the budget, but is no memory strategy"
    if reason == rules.accepted:
        return "it is a memory strategy within the budget, and worth its cost"
    return REASONS[reason].en


def _gain(case: Case) -> str:
    gains, limits = _against_baseline(case), case.thresholds
    words = []
    if case.difference.memory_gap is None:
        words.append(
            f"saves {gains['memory_saving_mb']:.2f} MiB "
            f"(at least {limits['min_memory_saving_mb']:g} wanted)"
        )
    if gains["throughput_ratio"] is not None:
        words.append(
            f"keeps {gains['throughput_ratio']:.1%} of the throughput "
            f"(at least {limits['min_throughput_ratio']:.0%} wanted)"
        )
    return "".join(f"; {item}" for item in words)


def _summary_text(summary: MemorySummary) -> str:
    counts = f"{summary['feasible_count']} of {summary['candidate_count']} variants"
    parts = [f"{counts} keep the budget"]
    if summary["best_candidate"] is not None:
        parts.append(f"best is {summary['best_candidate']}")
    if summary["best_candidate"] == BASELINE:
        parts[-1] += (
            ", so no other variant within the budget takes less memory and nothing is saved"
        )
    if summary["best_candidate"] not in (None, BASELINE):
        parts[-1] += (
            f", which saves {summary['memory_saving_mb']:.2f} MiB "
            f"(at least {summary['min_memory_saving_mb']:g} wanted)"
        )
        if summary["throughput_ratio"] is not None:
            parts[-1] += (
                f" and keeps {summary['throughput_ratio']:.1%} of the throughput "
                f"(at least {summary['min_throughput_ratio']:.0%} wanted)"
            )
    for count, words in (
        (summary["quality_failed_count"], "exceed the limit of the eval loss"),
        (summary["oom_count"], "ran out of memory"),
        (summary["invalid_count"], "cannot be judged"),
    ):
        if count:
            parts.append(f"{count} {words}")
    best = next((i for i in summary["evaluations"] if i["name"] == summary["best_candidate"]), None)
    if best and best["reserved_over_cap"]:
        parts.append("its reserved memory exceeds the cap although the allocated fits")
    return "; ".join(parts)
