"""One candidate under one policy: the rule, the guards around it, and its part of a comparison."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from trainperf_mlflow.analysis.calibration import between_processes, margin_pct
from trainperf_mlflow.analysis.compare import Difference, compare, describe
from trainperf_mlflow.analysis.convergence import judged, with_divergence
from trainperf_mlflow.analysis.loss_curves import loss_curve
from trainperf_mlflow.analysis.metrics import break_even_steps
from trainperf_mlflow.analysis.paired import estimate_time, interval_deltas, pairs_of
from trainperf_mlflow.analysis.sequential import level_per_look, looks_allowed
from trainperf_mlflow.decisions.case import Case, Policy
from trainperf_mlflow.decisions.evidence import measured_in_blocks, with_evidence
from trainperf_mlflow.decisions.guards import after_rule, before_rule
from trainperf_mlflow.decisions.outcomes import has_ok_repeat
from trainperf_mlflow.decisions.policies import GOALS, POLICIES
from trainperf_mlflow.decisions.quality import MAX_EVAL_LOSS_DELTA
from trainperf_mlflow.results.comparison import CandidateComparison
from trainperf_mlflow.results.decision import Decision
from trainperf_mlflow.results.estimates import ConvergenceCheck, LossCurve, PairedEstimate
from trainperf_mlflow.results.study import Study
from trainperf_mlflow.results.values import VariantValues


def thresholds_of(study: Study, policy: Policy) -> dict[str, float]:
    """The policy's defaults, overridden by the study's values of the same names."""
    own = {key: study.thresholds.get(key, value) for key, value in policy.thresholds.items()}
    return own | {key: study.thresholds[key] for key in policy.optional if key in study.thresholds}


def estimated_time(
    study: Study, baseline: VariantValues, candidate: VariantValues, candidates: int
) -> PairedEstimate | None:
    """What the pairs say about a candidate's time, at the level that the plan's looks leave."""
    looks = len(planned_looks(study))
    return estimate_time(
        pairs_of(baseline, candidate),
        device=study.workload.device,
        data_workers=data_workers(baseline, candidate),
        level=level_per_look(looks, candidates),
        looks=looks,
        margin_pct=margin_pct(study.calibration),
        between=between_processes(study.calibration),
    )


def planned_looks(study: Study) -> tuple[int, ...]:
    """After how many rounds the study was to be looked at; the last one is its end."""
    adaptive = study.plan.get("blocks") == "auto" and study.plan.get("max_time") is not None
    repeats = study.plan.get("repeats")
    return looks_allowed(repeats if isinstance(repeats, int) else 3, adaptive)


def data_workers(*variants: VariantValues) -> bool:
    return any(bool(variant.config.get("num_workers")) for variant in variants)


def candidates_of(study: Study) -> int:
    """How many candidates share what chance may find."""
    return sum(variant.role == "candidate" for variant in study.variants)


def case_of(
    study: Study,
    policy: Policy,
    baseline: VariantValues,
    candidate: VariantValues,
    time: PairedEstimate | None,
) -> Case:
    """What the policy is asked; the deltas include the bounds that the pairs allow."""
    difference = compare(baseline, candidate, candidates_of(study))
    return Case(
        baseline=baseline,
        candidate=candidate,
        difference=replace(
            difference, delta=difference.delta | interval_deltas(baseline, candidate, time)
        ),
        thresholds=thresholds_of(study, policy),
        goal=GOALS[study.goal] if study.goal else None,
    )


def decide_candidate(
    study: Study, policy: Policy, case: Case, time: PairedEstimate | None
) -> CandidateComparison:
    """The decision by the study's policy, and beside it what the other policies would say."""
    others = [
        other
        for name, other in POLICIES.items()
        if name != policy.name and other.aside and (study.goal or not other.needs_goal)
    ]
    made = candidate_record(
        case.candidate,
        case.difference,
        decision=_decide(policy, case, time),
        others={
            other.name: _decide(
                other, case_of(study, other, case.baseline, case.candidate, time), time
            )
            for other in others
        },
        time=time,
    )
    margin = case.thresholds.get("max_eval_loss_delta", MAX_EVAL_LOSS_DELTA)
    final = case.difference.final
    curve = loss_curve(case.baseline, case.candidate)
    check = None
    if final is not None:
        check = with_divergence(judged(final, margin), case.baseline, case.candidate)
    return made.model_copy(
        update={
            "note": "; ".join((made.note, *_loss_words(curve, check))),
            "loss_curve": curve,
            "convergence": check,
        }
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


def candidate_record(
    variant: VariantValues,
    difference: Difference | None,
    decision: Decision,
    others: Mapping[str, Decision],
    time: PairedEstimate | None = None,
) -> CandidateComparison:
    """The candidate's part of a comparison; ``difference`` is None of a probe."""
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
