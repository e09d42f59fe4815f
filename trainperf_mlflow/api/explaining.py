"""What phases and traces of an existing study have in common: find it, check it, go through it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from trainperf_mlflow.api.annotating import note_of
from trainperf_mlflow.api.assessing import assessed
from trainperf_mlflow.api.measuring import describe
from trainperf_mlflow.api.pages import attach_report
from trainperf_mlflow.api.picturing import Warn, teller
from trainperf_mlflow.api.reading import find
from trainperf_mlflow.attribution import Attempt
from trainperf_mlflow.errors import EvidenceError, MeasurementError
from trainperf_mlflow.measurement.conductor import AnyWorker
from trainperf_mlflow.measurement.explaining import ExplainingJob, explain
from trainperf_mlflow.measurement.launcher import Launcher
from trainperf_mlflow.plan import Plan, make_plan
from trainperf_mlflow.reporting.progress import Progress
from trainperf_mlflow.results.assessment import Assessment
from trainperf_mlflow.results.record import Status
from trainperf_mlflow.results.study import Study, Workload
from trainperf_mlflow.results.values import VariantValues
from trainperf_mlflow.signals import interruptible

if TYPE_CHECKING:
    from trainperf_mlflow.tracking.store import Store
    from trainperf_mlflow.tracking.waiting import Kept, Parcel

Look = Callable[[AnyWorker, Any, float], dict[str, Any]]


@dataclass(frozen=True)
class Opened:
    """An existing study, ready to be looked at again."""

    store: Store
    study: Study
    plan: Plan
    variants: tuple[VariantValues, ...]  # as measured
    launcher: Launcher
    kept: Kept
    progress: TextIO | None

    @property
    def variant_runs(self) -> dict[str, str | None]:
        return {variant.name: variant.run_id for variant in self.variants}

    def put(self, parcels: Sequence[Parcel]) -> None:
        """Have results wait on disk until the store has them; a full disk is told."""
        problem = self.kept.put(self.store, parcels)
        if problem is not None:
            teller(self.progress)(problem)

    def attempts(
        self,
        rounds: int,
        look: Look,
        detail: Callable[[Attempt], str],
        prepare: Callable[[AnyWorker], Any] = lambda worker: None,
    ) -> Iterator[Attempt]:
        """Go through all variants, telling the progress and keeping each attempt on disk."""
        job = ExplainingJob(
            task=self.plan.task,
            variants=self.study.variants,
            workload=self.study.workload,
            rounds=rounds,
            warmup_steps=self.plan.warmup_steps,
            seed=self.plan.seed,
        )
        with ExitStack() as stack:
            teller, told = None, set[str]()
            if self.progress is not None:
                teller = stack.enter_context(
                    Progress(rounds * len(self.study.variants), self.progress)
                )

            def announce(variant: str, index: int) -> None:
                if teller is not None:
                    teller.running(variant, index, rounds)

            for attempt in explain(job, self.launcher.worker, look, announce, prepare):
                name = f"{file_name(attempt.variant)}-{attempt.index:04d}.json"
                problem = self.kept.keep(name, attempt.to_json())
                if problem is not None and teller is not None:
                    teller.say(problem)
                if teller is not None:
                    said = detail(attempt) if attempt.status is Status.OK else attempt.error
                    if said is not None and attempt.status is not Status.OK:
                        said, told = ("as before" if said in told else said), {*told, said}
                    teller.advance(
                        attempt.variant, attempt.index, rounds, attempt.status.value, said or ""
                    )
                yield attempt


@contextmanager
def opened(
    study: str,
    kind: str,
    tracking_uri: str | None,
    experiment: str | None,
    progress: TextIO | None,
) -> Iterator[Opened]:
    """Find a study and check that what would run here is the workload that it measured.

    Raises:
        PlanError: there is no such study, or its plan can no longer be run.
        EvidenceError: the study is closed, or the workload differs here.
        MeasurementError: its device is not on this machine.
        StoreError: the store cannot be read.
    """
    with ExitStack() as stack:
        stack.enter_context(interruptible())
        # The server imports torch while this process imports mlflow.
        launcher = stack.enter_context(Launcher())
        from trainperf_mlflow.tracking.explaining import load_open_study
        from trainperf_mlflow.tracking.store import refuse_read_only
        from trainperf_mlflow.tracking.waiting import Kept

        store, study_id = find(study, tracking_uri, experiment)
        refuse_read_only(store)
        found, variants = load_open_study(store, study_id)
        plan = make_plan(found.plan, where=f"the plan of study {study_id}")
        here = describe(plan, launcher, found.variants, found.workload.device)
        _refuse_another_workload(found.workload, here, study_id)
        kept = Kept(study_id, kind, found.name)
        try:
            yield Opened(store, found, plan, variants, launcher, kept, progress)
        finally:
            kept.leave()


def refuse_nothing_measured(attempts: list[Attempt], what: str) -> None:
    """Raise a MeasurementError where no attempt succeeded, with each variant's reason."""
    if any(attempt.status is Status.OK for attempt in attempts):
        return
    stopped: dict[str, dict[str, None]] = {}
    for attempt in attempts:
        why = f"{attempt.status.value}, {attempt.error}"
        stopped.setdefault(why, {})[attempt.variant] = None
    reasons = "; ".join(f"{', '.join(names)}: {why}" for why, names in stopped.items())
    raise MeasurementError(f"{what} could be measured of no variant: {reasons}")


def with_assessment(found: Opened, report: dict[str, Any]) -> dict[str, Any]:
    """The report for who asked for it; on the run the assessment is a file of its own."""
    made = assess_again(found.store, found.study.study_id, found.variants, teller(found.progress))
    return {**report, "assessment": None if made is None else made.model_dump(mode="json")}


def assess_again(
    store: Store, study_id: str, variants: Sequence[VariantValues], warn: Warn
) -> Assessment | None:
    """Refresh the assessment and the report on the study's run; None where the study has no
    comparison yet.

    The decision stays as it was recorded.

    Raises:
        EvidenceError: the study was closed meanwhile.
        StoreError: the store cannot be read or written.
    """
    from trainperf_mlflow.tracking import names, queries
    from trainperf_mlflow.tracking.explaining import send_assessment, study_files

    files = study_files(store, study_id)
    if names.COMPARISON_FILE not in files:
        return None
    comparison = assessed(store, queries.load_comparison(store, study_id), variants, files)
    send_assessment(store, comparison, note_of(store, comparison))
    attach_report(store, comparison, warn)
    return comparison.assessment


def file_name(variant: str) -> str:
    """A variant's name as a file name that no other variant has.

    >>> file_name("a/b")
    'a_b-c14cddc0'
    """
    slug = re.sub(r"[^A-Za-z0-9_-]+", "_", variant)[:40]
    return f"{slug}-{hashlib.sha256(variant.encode()).hexdigest()[:8]}"


def trace_path(kept: Path, variant: str) -> Path:
    folder = kept / file_name(variant)
    folder.mkdir(exist_ok=True)
    return folder / "trace.json.gz"


def _refuse_another_workload(measured: Workload, here: Workload, study_id: str) -> None:
    if here.digest == measured.digest:
        return
    keys = sorted({*measured.identity, *here.identity})
    different = [k for k in keys if measured.identity.get(k) != here.identity.get(k)]
    shown = "; ".join(
        f"{key} was {str(measured.identity.get(key))[:120]}, is {str(here.identity.get(key))[:120]}"
        for key in different
    )
    raise EvidenceError(
        f"what would run here is not what study {study_id} measured ({shown}); run this on the "
        "same machine with the same model and data, or measure a new study"
    )
