"""A study of ours as the published formats show it: means, repeats, configuration, decision."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from trainperf_mlflow.decisions.policies import POLICIES
from trainperf_mlflow.decisions.study import decide_study
from trainperf_mlflow.errors import PlanError
from trainperf_mlflow.evidence.imported import PRECISIONS
from trainperf_mlflow.evidence.reading import Json
from trainperf_mlflow.results.comparison import Comparison
from trainperf_mlflow.results.decision import Decision
from trainperf_mlflow.results.record import Status
from trainperf_mlflow.results.study import Study
from trainperf_mlflow.results.values import VariantValues
from trainperf_mlflow.workloads.presets import PRESETS

_DTYPES = {ours: theirs for theirs, ours in PRECISIONS.items()}
_OPTIMIZERS = {"adamw": "AdamW", "adam": "Adam", "sgd": "SGD", "adafactor": "Adafactor"}
# As the source rounds means.
_MEAN_DIGITS = 3


@dataclass(frozen=True)
class Exported:
    """A study with what was measured and decided; ``environment`` is a repeat's."""

    study: Study
    variants: tuple[VariantValues, ...]
    comparison: Comparison
    environment: Mapping[str, Any] = field(default_factory=dict)

    def pair(self) -> tuple[VariantValues, VariantValues]:
        """The baseline and the best candidate.

        Raises:
            PlanError: there is no baseline, or no candidate that was measured.
        """
        baseline = next((v for v in self.variants if v.role == "baseline"), None)
        candidates = [v for v in self.variants if v.role == "candidate"]
        by_name = {variant.name: variant for variant in candidates}
        best = by_name.get(self.comparison.best_candidate or "")
        best = best or next((v for v in candidates if v.status is Status.OK), None)
        if baseline is None or best is None or not (baseline.metrics and best.metrics):
            raise PlanError(
                f"study {self.study.name!r} has no measured baseline and candidate, which this "
                "format compares; choose another --format"
            )
        return baseline, best

    def comparison_by(self, policy: str) -> Comparison:
        """What this rule says of the study: the comparison itself where it decided by it.

        Raises:
            PlanError: the study has no baseline to compare with.
        """
        return self.comparison if self.comparison.policy == policy else self._decided(policy)

    def decision(self, policy: str, candidate: str | None = None) -> Json:
        """A rule's decision on the study, or on one candidate, and on its point values alone.

        A report holds no blocks, so whoever reads it can only follow the bare rule.
        """
        weighed = _decision(self.comparison_by(policy), candidate)
        bare = _decision(self._decided(policy, bare=True), candidate)
        item: Json = {**_item(weighed), "text": weighed.text}
        return item if _item(bare) == _item(weighed) else {**item, "by_point_values": _item(bare)}

    def _decided(self, policy: str, *, bare: bool = False) -> Comparison:
        own = self.comparison.policy == policy
        limits = self.study.thresholds if own else dict(POLICIES[policy].thresholds)
        study = self.study.model_copy(update={"policy": policy, "thresholds": limits})
        if not own and self.comparison.baseline is None:
            raise PlanError(
                f"study {self.study.name!r} is a probe without a baseline, but this format "
                "compares; measure it with one"
            )
        return decide_study(study, [_bare(v) for v in self.variants] if bare else self.variants)

    def config(self) -> Json:
        """The workload by the source's names; what it has no word for is absent."""
        first = next((v for v in self.study.variants if v.role == "baseline"), None)
        base = (first or self.study.variants[0]).config
        packages = self.environment.get("packages")
        optimizer = str(base.get("optimizer"))
        plan = self.study.plan
        preset = PRESETS.get(self.study.workload.name)
        known: Json = {
            "model_id": base.get("model"),
            "batch_size": base.get("batch_size"),
            "seq_len": base.get("seq_len"),
            "dtype": _DTYPES.get(str(base.get("precision"))),
            "optimizer": _OPTIMIZERS.get(optimizer),
            "optimizer_momentum": base.get("momentum") if optimizer == "sgd" else None,
            "workload": self.study.workload.name,
            "warmup": _count(plan.get("warmup"), preset and preset.warmup),
            "iters": _count(plan.get("iters"), preset and preset.iters),
            "torch": packages.get("torch") if isinstance(packages, Mapping) else None,
            "torch_cuda": self.environment.get("torch_cuda"),
            "device": self.environment.get("device_name") or self.study.workload.device,
            "seed": plan.get("seed"),
            "repeats": max((len(v.repeats) for v in self.variants), default=0),
        }
        return {key: value for key, value in known.items() if value is not None}


def _bare(variant: VariantValues) -> VariantValues:
    repeats = (repeat.model_copy(update={"blocks": ()}) for repeat in variant.repeats)
    return variant.model_copy(update={"repeats": tuple(repeats)})


def _decision(comparison: Comparison, candidate: str | None) -> Decision:
    if candidate is None:
        return comparison.decision
    return next(c.decision for c in comparison.candidates if c.variant == candidate)


def _item(decision: Decision) -> Json:
    return decision.model_dump(include={"decision", "reason", "next_action"})


def candidate_item(variant: VariantValues, memory_key: str) -> Json:
    """A variant with its rounded means and its repeats as they were measured.

    Args:
        memory_key: the format's name for peak memory.
    """
    item: Json = {"name": variant.name, "status": variant.status.value}
    if variant.error is not None:
        item["error"] = variant.error
    item |= _renamed(rounded_means(variant), memory_key)
    item["runs"] = []
    for repeat in variant.repeats:
        run: Json = {"repeat": repeat.index + 1, "status": repeat.status.value}
        if repeat.error is not None:
            run["error"] = repeat.error
        run["quality_checked"] = repeat.quality_checked
        item["runs"].append(run | _renamed(repeat.metrics, memory_key))
    return item


def rounded_means(variant: VariantValues) -> dict[str, float]:
    """Means over the repeats, rounded as in the source."""
    return {key: round(value, _MEAN_DIGITS) for key, value in variant.metrics.items()}


def _renamed(metrics: Mapping[str, float], memory_key: str) -> Json:
    return {memory_key if key == "peak_mem_mb" else key: v for key, v in metrics.items()}


def _count(value: Any, automatic: int | None) -> int | None:
    if value == "auto":
        return automatic
    return value if isinstance(value, int) and not isinstance(value, bool) else None
