"""The decision on a study: each candidate's by the study's policy, the study's its best one's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from trainperf_mlflow.analysis.calibration import calibration_of, estimate_identical, unfit
from trainperf_mlflow.analysis.compare import compare
from trainperf_mlflow.analysis.noise import judge
from trainperf_mlflow.analysis.paired import interval_deltas, pairs_of
from trainperf_mlflow.analysis.trust import violations
from trainperf_mlflow.decisions.candidate import (
    candidate_record,
    case_of,
    data_workers,
    decide_candidate,
    estimated_time,
    thresholds_of,
)
from trainperf_mlflow.decisions.case import Case, Choice, Policy
from trainperf_mlflow.decisions.cautions import repeat_warnings, spread_warnings, study_warnings
from trainperf_mlflow.decisions.goal import goal_gain
from trainperf_mlflow.decisions.outcomes import has_ok_repeat, outcome, remedy
from trainperf_mlflow.decisions.policies import GOALS, POLICIES
from trainperf_mlflow.decisions.reasons import conclude
from trainperf_mlflow.errors import MeasurementError, PlanError
from trainperf_mlflow.results.comparison import CandidateComparison, Comparison
from trainperf_mlflow.results.decision import SURENESS, Decision, Evaluation
from trainperf_mlflow.results.record import Status
from trainperf_mlflow.results.study import Study
from trainperf_mlflow.results.values import VariantValues

_RANK = {"accept": 0, "tune": 1, "reject": 2}


def decide_study(study: Study, variants: Sequence[VariantValues]) -> Comparison:
    """Compare and decide from the values that were measured.

    Args:
        study: what was asked for: policy, thresholds, goal, and whether it is a probe.
        variants: the values of its variants, in any order.

    Raises:
        MeasurementError: no repeat of the baseline (of a probe: of any variant) succeeded.
        PlanError: the study has two baselines or no candidate, or an unknown policy or goal.
    """
    planned = {variant.name: place for place, variant in enumerate(study.variants)}
    ordered = sorted(variants, key=lambda v: (planned.get(v.name, len(planned)), v.name))
    if study.kind == "calibration":
        return _calibration(study, ordered)
    if study.plan.get("probe") is True:
        return _probe(study, ordered)
    baseline, candidates = _roles(study, ordered)
    policy = _known_policy(study)
    times = [
        estimated_time(study, baseline, candidate, len(candidates)) for candidate in candidates
    ]
    cases = [
        case_of(study, policy, baseline, candidate, time)
        for candidate, time in zip(candidates, times, strict=True)
    ]
    compared = [
        decide_candidate(study, policy, case, time) for case, time in zip(cases, times, strict=True)
    ]
    best, decision, evaluations = _choose(policy, cases, compared)
    compared = [
        item.model_copy(update={"evaluation": evaluations.get(item.variant)}) for item in compared
    ]
    return _comparison(
        study,
        ordered,
        baseline=baseline,
        baseline_evaluation=evaluations.get(baseline.name),
        candidates=tuple(compared),
        best_candidate=best,
        decision=decision,
        warnings=tuple(study_warnings(cases, times, compared, evaluations.values())),
        thresholds=thresholds_of(study, policy),
    )


def _choose(
    policy: Policy, cases: Sequence[Case], compared: Sequence[CandidateComparison]
) -> Choice:
    """The best candidate and its decision, or what the policy says on all variants at once."""
    if policy.choose is None:
        _, best = min(zip(cases, compared, strict=True), key=lambda pair: _order(*pair))
        return Choice(best.variant, best.decision, {})
    choice = policy.choose(cases)
    # What keeps its best candidate from being accepted by itself, as failed repeats, keeps it here.
    own = next((item.decision for item in compared if item.variant == choice.best), None)
    if choice.decision.decision == "accept" and own is not None and own.decision != "accept":
        return choice._replace(decision=own)
    # As sure as what it is about: the best candidate, else that none of them is better.
    about = [own] if own is not None else [item.decision for item in compared]
    least = min((one.confidence for one in about), key=SURENESS.index)
    return choice._replace(decision=choice.decision.model_copy(update={"confidence": least}))


def _order(case: Case, compared: CandidateComparison) -> tuple[int, float, str]:
    """Best decision first, then the larger gain, then the name."""
    delta = case.difference.delta
    if case.goal is not None:
        gain = goal_gain(case)
    else:
        gain = delta.get("step_time_pct", 0.0) + delta.get("peak_mem_pct", 0.0)
    if gain is None or not has_ok_repeat(case.candidate):
        gain = float("-inf")
    return _RANK[compared.decision.decision], -gain, case.candidate.name


def _roles(
    study: Study, variants: Sequence[VariantValues]
) -> tuple[VariantValues, list[VariantValues]]:
    baselines = [variant for variant in variants if variant.role == "baseline"]
    candidates = [variant for variant in variants if variant.role == "candidate"]
    if len(baselines) > 1:
        raise PlanError(
            f"study {study.name!r} has {len(baselines)} baselines; a comparison needs exactly one"
        )
    if not candidates:
        raise PlanError(
            f"study {study.name!r} has no candidate to compare; add one, or measure with --probe"
        )
    if not baselines:
        raise MeasurementError(
            f"study {study.name!r} has no measured baseline, so nothing can be compared; "
            "measure it again"
        )
    if not baselines[0].repeats:
        raise MeasurementError(
            f"no repeat of the baseline of study {study.name!r} was recorded, as when it was "
            "interrupted early, so nothing can be compared; measure it again"
        )
    if not has_ok_repeat(baselines[0]):
        raise MeasurementError(
            f"no repeat of the baseline succeeded ({outcome(baselines[0])}), so nothing can be "
            f"compared; {remedy(baselines[0].status)}"
        )
    return baselines[0], candidates


def _known_policy(study: Study) -> Policy:
    if study.policy not in POLICIES:
        raise PlanError(f"unknown policy {study.policy!r}; known: {', '.join(POLICIES)}")
    if study.goal is not None and study.goal not in GOALS:
        raise PlanError(f"unknown goal {study.goal!r}; known: {', '.join(GOALS)}")
    policy = POLICIES[study.policy]
    if policy.needs_goal and study.goal is None:
        raise PlanError(f"the policy {policy.name!r} needs a goal; known: {', '.join(GOALS)}")
    return policy


def _calibration(study: Study, variants: Sequence[VariantValues]) -> Comparison:
    """The baseline against itself: what identical code differs by here."""
    baseline, (twin, *_) = _roles(study, variants)
    time, between_pct = estimate_identical(
        pairs_of(baseline, twin), study.workload.device, data_workers(baseline)
    )
    found = (
        None
        if time is None
        else calibration_of(
            time, between_pct, study.study_id, study.created_at, study.workload.name
        )
    )
    why = unfit(time, found)
    decision = conclude(
        "calibration_unfit" if why else "calibrated",
        why or "what identical code differs by is known, and later studies here stand on it",
        study.policy,
    )
    decision = decision.model_copy(update={"confidence": "unfit" if why else "confirmed"})
    difference = compare(baseline, twin)
    deltas = difference.delta | interval_deltas(baseline, twin, time)
    return _comparison(
        study.model_copy(update={"calibration": found}),
        variants,
        baseline=baseline,
        candidates=(candidate_record(twin, replace(difference, delta=deltas), decision, {}, time),),
        best_candidate=None,
        decision=decision,
        warnings=(*repeat_warnings(baseline), *repeat_warnings(twin)),
        thresholds=thresholds_of(study, _known_policy(study)),
    )


def _probe(study: Study, variants: Sequence[VariantValues]) -> Comparison:
    if not any(has_ok_repeat(variant) for variant in variants):
        raise MeasurementError(
            f"no repeat of the probe succeeded "
            f"({'; '.join(f'{v.name}: {outcome(v)}' for v in variants) or 'nothing ran'}); "
            f"{remedy(variants[0].status if variants else Status.FAILED)}"
        )
    decided = {
        variant.name: conclude("nothing_to_compare", _probe_text(variant), study.policy)
        for variant in variants
    }
    text = "a probe measures without a baseline, so there is nothing to compare and to decide"
    return _comparison(
        study,
        variants,
        baseline=None,
        candidates=tuple(
            candidate_record(variant, None, decided[variant.name], {}) for variant in variants
        ),
        best_candidate=None,
        decision=conclude("nothing_to_compare", text, study.policy),
        warnings=(
            *(warning for variant in variants for warning in repeat_warnings(variant)),
            *spread_warnings(variants),
        ),
        thresholds=dict(study.thresholds),
    )


def _probe_text(variant: VariantValues) -> str:
    if has_ok_repeat(variant):
        return "measured without a baseline; there is nothing to compare"
    return f"nothing was measured ({outcome(variant)})"


def _comparison(
    study: Study,
    variants: Sequence[VariantValues],
    *,
    baseline: VariantValues | None,
    baseline_evaluation: Evaluation | None = None,
    candidates: tuple[CandidateComparison, ...],
    best_candidate: str | None,
    decision: Decision,
    warnings: Sequence[str],
    thresholds: dict[str, float],
) -> Comparison:
    return Comparison(
        study_id=study.study_id,
        study=study.name,
        workload=study.workload.name,
        workload_digest=study.workload.digest,
        goal=study.goal,
        hypothesis=study.hypothesis,
        policy=study.policy,
        thresholds=thresholds,
        baseline=baseline,
        baseline_evaluation=baseline_evaluation,
        candidates=candidates,
        best_candidate=best_candidate,
        decision=decision,
        warnings=tuple(dict.fromkeys((*violations(variants), *warnings))),
        noise=judge(variants, decision.text if decision.confidence == "unfit" else None),
        calibration=study.calibration,
    )
