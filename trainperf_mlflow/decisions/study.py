"""The decision on a study: each candidate's by the study's policy, the study's its best one's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from trainperf_mlflow.analysis.calibration import (
    between_processes,
    calibration_of,
    estimate_identical,
    margin_pct,
    unfit,
)
from trainperf_mlflow.analysis.compare import Difference, compare, describe, measured
from trainperf_mlflow.analysis.convergence import judged
from trainperf_mlflow.analysis.loss_curves import loss_curve
from trainperf_mlflow.analysis.metrics import break_even_steps
from trainperf_mlflow.analysis.noise import judge
from trainperf_mlflow.analysis.paired import estimate_time, interval_deltas, pairs_of
from trainperf_mlflow.analysis.sequential import level_per_look, looks_allowed
from trainperf_mlflow.analysis.side_by_side import contradiction
from trainperf_mlflow.analysis.trust import violations
from trainperf_mlflow.decisions.case import Case, Choice, Policy
from trainperf_mlflow.decisions.evidence import measured_in_blocks, with_evidence
from trainperf_mlflow.decisions.goal import goal_gain
from trainperf_mlflow.decisions.guards import (
    after_rule,
    before_rule,
    failed_repeats,
    first_error,
    has_ok_repeat,
)
from trainperf_mlflow.decisions.policies import GOALS, POLICIES
from trainperf_mlflow.decisions.quality import MAX_EVAL_LOSS_DELTA
from trainperf_mlflow.decisions.reasons import conclude
from trainperf_mlflow.errors import MeasurementError, PlanError
from trainperf_mlflow.results import (
    CandidateComparison,
    Comparison,
    ConvergenceCheck,
    Decision,
    Evaluation,
    LossCurve,
    PairedEstimate,
    Status,
    Study,
    VariantValues,
)

# Repeats of the same code that differ by more than this say that time is not to be trusted.
_SPREAD_WORTH_TELLING = 0.15
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
    times = [_time(study, baseline, candidate, len(candidates)) for candidate in candidates]
    cases = [
        _case(study, policy, baseline, candidate, time)
        for candidate, time in zip(candidates, times, strict=True)
    ]
    compared = [
        _decide_candidate(study, policy, case, time)
        for case, time in zip(cases, times, strict=True)
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
        warnings=(
            *_repeat_warnings(baseline),
            *_warnings(cases),
            *_reserved_warnings(evaluations.values()),
            *_contradiction_warnings(cases, times),
            *_disturbed_warnings(compared),
            *_loss_warnings(compared),
            # An interval says it better.
            *_spread_warnings([] if any(times) else [baseline, *candidates]),
        ),
        thresholds=_thresholds(study, policy),
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
    return choice


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
            f"no repeat of the baseline succeeded ({_outcome(baselines[0])}), so nothing can be "
            f"compared; {_remedy(baselines[0].status)}"
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


def _thresholds(study: Study, policy: Policy) -> dict[str, float]:
    """The policy's defaults, overridden by the study's values of the same names."""
    own = {key: study.thresholds.get(key, value) for key, value in policy.thresholds.items()}
    return own | {key: study.thresholds[key] for key in policy.optional if key in study.thresholds}


def _time(
    study: Study, baseline: VariantValues, candidate: VariantValues, candidates: int
) -> PairedEstimate | None:
    """What the pairs say about a candidate's time, at the level that the plan's looks leave."""
    adaptive = study.plan.get("blocks") == "auto" and study.plan.get("max_time") is not None
    repeats = study.plan.get("repeats")
    looks = len(looks_allowed(repeats if isinstance(repeats, int) else 3, adaptive))
    return estimate_time(
        pairs_of(baseline, candidate),
        device=study.workload.device,
        data_workers=_data_workers(baseline, candidate),
        level=level_per_look(looks, candidates),
        looks=looks,
        margin_pct=margin_pct(study.calibration),
        between=between_processes(study.calibration),
    )


def _data_workers(*variants: VariantValues) -> bool:
    return any(bool(variant.config.get("num_workers")) for variant in variants)


def _case(
    study: Study,
    policy: Policy,
    baseline: VariantValues,
    candidate: VariantValues,
    time: PairedEstimate | None,
) -> Case:
    difference = compare(baseline, candidate)
    return Case(
        baseline=baseline,
        candidate=candidate,
        difference=replace(
            difference, delta=difference.delta | interval_deltas(baseline, candidate, time)
        ),
        thresholds=_thresholds(study, policy),
        goal=GOALS[study.goal] if study.goal else None,
    )


def _decide(policy: Policy, case: Case, time: PairedEstimate | None) -> Decision:
    guarded = before_rule(
        case.baseline,
        case.candidate,
        case.difference,
        policy.name,
        reads_time=policy.reads_time,
    )
    if guarded is not None:
        return guarded
    margin = case.thresholds.get("max_eval_loss_delta", MAX_EVAL_LOSS_DELTA)
    decision = after_rule(policy.decide(case), case.candidate, case.difference, margin)
    # Imported runs were not paired: the bare rule decides about them.
    if not measured_in_blocks(case.candidate):
        return decision
    return with_evidence(decision, policy.decide, case, time)


def _decide_candidate(
    study: Study, policy: Policy, case: Case, time: PairedEstimate | None
) -> CandidateComparison:
    others = [
        other
        for name, other in POLICIES.items()
        if name != policy.name and other.aside and (study.goal or not other.needs_goal)
    ]
    made = _candidate(
        case.candidate,
        case.difference,
        decision=_decide(policy, case, time),
        others={
            other.name: _decide(
                other, _case(study, other, case.baseline, case.candidate, time), time
            )
            for other in others
        },
        time=time,
    )
    margin = case.thresholds.get("max_eval_loss_delta", MAX_EVAL_LOSS_DELTA)
    final = case.difference.final
    curve = loss_curve(case.baseline, case.candidate)
    check = None if final is None else judged(final, margin)
    return made.model_copy(
        update={
            "note": "; ".join((made.note, *_loss_words(curve, check))),
            "loss_curve": curve,
            "convergence": check,
        }
    )


def _loss_words(curve: LossCurve | None, check: ConvergenceCheck | None) -> Iterator[str]:
    if curve is not None and curve.verdict != "not_shown":
        yield (
            "training losses equal the baseline's"
            if curve.equal
            else "training losses within what seeds cause"
            if curve.verdict == "same"
            else "training losses differ by more than seeds cause"
        )
    if check is not None and check.verdict != "not_shown":
        yield f"eval loss after {check.steps} steps: {check.verdict}"


def _candidate(
    variant: VariantValues,
    difference: Difference | None,
    decision: Decision,
    others: Mapping[str, Decision],
    time: PairedEstimate | None = None,
) -> CandidateComparison:
    ran = has_ok_repeat(variant)
    metrics = dict(variant.metrics)
    compared = difference is not None and ran and variant.effect_verified is not False
    note = describe(difference) if difference and compared else decision.text
    if compared and difference and difference.step_time_ms and "compile_s" in metrics:
        before, after = difference.step_time_ms
        if time is not None:
            after = before * (1 - time.estimate_pct / 100)
        pays_after = break_even_steps(metrics["compile_s"], before, after)
        note += f"; compiling takes {metrics['compile_s']:.1f} s and "
        if pays_after is None:
            note += "never pays"
        else:
            metrics["break_even_steps"] = pays_after
            note += f"pays after {pays_after:.0f} steps"
    return CandidateComparison(
        variant=variant.name,
        status=variant.status,
        changed_variable=variant.changed_variable,
        delta=difference.delta if difference and ran else {},
        metrics=metrics,
        effect_verified=variant.effect_verified,
        decision=decision,
        other_decisions=dict(others),
        note=note,
        pairs=difference.pairs if difference else 0,
        time=time,
        run_id=variant.run_id,
    )


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


def _calibration(study: Study, variants: Sequence[VariantValues]) -> Comparison:
    """The baseline against itself: what identical code differs by here."""
    baseline, (twin, *_) = _roles(study, variants)
    time, between_pct = estimate_identical(
        pairs_of(baseline, twin), study.workload.device, _data_workers(baseline)
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
        candidates=(_candidate(twin, replace(difference, delta=deltas), decision, {}, time),),
        best_candidate=None,
        decision=decision,
        warnings=(*_repeat_warnings(baseline), *_repeat_warnings(twin)),
        thresholds=_thresholds(study, _known_policy(study)),
    )


def _probe(study: Study, variants: Sequence[VariantValues]) -> Comparison:
    if not any(has_ok_repeat(variant) for variant in variants):
        raise MeasurementError(
            f"no repeat of the probe succeeded "
            f"({'; '.join(f'{v.name}: {_outcome(v)}' for v in variants) or 'nothing ran'}); "
            f"{_remedy(variants[0].status if variants else Status.FAILED)}"
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
            _candidate(variant, None, decided[variant.name], {}) for variant in variants
        ),
        best_candidate=None,
        decision=conclude("nothing_to_compare", text, study.policy),
        warnings=(
            *(warning for variant in variants for warning in _repeat_warnings(variant)),
            *_spread_warnings(variants),
        ),
        thresholds=dict(study.thresholds),
    )


def _probe_text(variant: VariantValues) -> str:
    if has_ok_repeat(variant):
        return "measured without a baseline; there is nothing to compare"
    return f"nothing was measured ({_outcome(variant)})"


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


# --- what to know before trusting it -----------------------------------------------------------


def _warnings(cases: Sequence[Case]) -> Iterator[str]:
    for case in cases:
        name, difference = case.candidate.name, case.difference
        if not has_ok_repeat(case.candidate):
            continue
        yield from _repeat_warnings(case.candidate)
        counts = [_ok_repeats(variant) for variant in (case.baseline, case.candidate)]
        if counts[0] != counts[1]:
            yield f"the baseline has {counts[0]} ok repeats, {name} has {counts[1]}"
        if difference.per_sample:
            yield f"{name} has other samples per step: its time is compared per sample"
        if difference.memory_gap is not None:
            yield difference.memory_gap
        if case.candidate.effect_verified is None and case.candidate.changed_variable:
            yield f"{name}: whether the change is in effect could not be checked"
        if difference.quality_gap is not None:
            yield f"quality was not checked: {difference.quality_gap}"
    if cases and _ok_repeats(cases[0].baseline) == 1:
        yield "one repeat says nothing about how much repeats differ; measure at least three"


def _reserved_warnings(evaluations: Iterable[Evaluation]) -> Iterator[str]:
    over = [item.name for item in evaluations if item.reserved_over_cap]
    if over:
        yield (
            f"the allocator reserved more than memory_cap_mb ({', '.join(over)}), although what "
            "was allocated fits: a device of that size may run out of memory"
        )


def _repeat_warnings(variant: VariantValues) -> Iterator[str]:
    if failed_repeats(variant):
        yield f"{variant.name}: {_outcome(variant)}"


def _contradiction_warnings(
    cases: Sequence[Case], times: Sequence[PairedEstimate | None]
) -> Iterator[str]:
    for case, time in zip(cases, times, strict=True):
        said = contradiction(case.difference.step_time_ms, time)
        if said is not None and has_ok_repeat(case.candidate):
            yield f"{case.candidate.name}: {said}"


def _disturbed_warnings(compared: Sequence[CandidateComparison]) -> Iterator[str]:
    for item in compared:
        if item.time is not None and item.time.disturbed_pairs:
            yield (
                f"{item.variant}: other programs kept a core from the training in "
                f"{item.time.disturbed_pairs} of {item.time.pairs} pairs"
            )


def _loss_warnings(compared: Sequence[CandidateComparison]) -> Iterator[str]:
    for item in compared:
        if item.loss_curve is not None and item.loss_curve.verdict == "different":
            yield f"{item.variant}: {item.loss_curve.text}"
        check = item.convergence
        # Where it may still be better, but not worse, nothing is to be feared.
        if check is not None and (check.high is None or check.high > check.margin):
            yield f"{item.variant}: {check.text}"


def _spread_warnings(variants: Sequence[VariantValues]) -> Iterator[str]:
    spreads = []
    for variant in variants:
        times = [
            time
            for repeat in variant.repeats
            if repeat.status is Status.OK
            and (time := measured(repeat.metrics, "step_time_ms")) is not None
        ]
        if len(times) > 1 and max(times) > min(times) * (1 + _SPREAD_WORTH_TELLING):
            spreads.append(f"{variant.name} {min(times):.3g} to {max(times):.3g} ms a step")
    if spreads:
        yield (
            f"repeats of the same code differ ({', '.join(spreads)}), so differences in time of "
            "that size prove nothing; measure again on a quiet machine, with more repeats"
        )


def _ok_repeats(variant: VariantValues) -> int:
    return len(variant.repeats) - failed_repeats(variant)


def _outcome(variant: VariantValues) -> str:
    counts = Counter(repeat.status.value for repeat in variant.repeats)
    statuses = ", ".join(f"{count} {status}" for status, count in counts.items())
    error = first_error(variant)
    return (statuses or variant.status.value) + (f": {error}" if error else "")


def _remedy(status: Status) -> str:
    return {
        Status.OOM: "choose a smaller batch_size, seq_len or model",
        Status.UNSUPPORTED: "choose settings that this device supports",
        Status.TIMEOUT: "raise max_time or choose a smaller workload",
        Status.DIVERGED: "lower the learning_rate",
    }.get(status, "mend the error and measure again (trainperf doctor checks this machine)")
