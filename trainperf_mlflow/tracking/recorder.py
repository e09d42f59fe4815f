"""Recording a study while it is measured: on disk first, then in MLflow, through outages.

What is to be written to MLflow are jobs in an order. A job that fails stays and is
tried again with the next one; each can be repeated without doubling anything.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial

from trainperf_mlflow.analysis.estimate import Prediction
from trainperf_mlflow.analysis.metrics import (
    effect_verdict,
    is_compiled,
    repeat_values,
    variant_values,
)
from trainperf_mlflow.results.comparison import Comparison
from trainperf_mlflow.results.record import Status
from trainperf_mlflow.results.repeats import Convergence, Repeat, StudyConvergence
from trainperf_mlflow.results.study import Study, Variant
from trainperf_mlflow.results.values import RepeatValues, VariantValues
from trainperf_mlflow.tracking import creating, names, writing
from trainperf_mlflow.tracking.blocks import send_blocks
from trainperf_mlflow.tracking.convergence import send_convergence, with_convergence
from trainperf_mlflow.tracking.pictures import send_pictures
from trainperf_mlflow.tracking.search import runs_of_study
from trainperf_mlflow.tracking.spool import Spool, SpoolError, StudyFolder, Target
from trainperf_mlflow.tracking.store import (
    Store,
    answers,
    impatient,
    raise_interruption,
    reason,
    refusals,
)
from trainperf_mlflow.tracking.uris import masked
from trainperf_mlflow.tracking.views import share_views

Key = tuple[str, int]  # a repeat: variant and index


class Recorder:
    """Records one study. Make it with ``start`` or, from what is on disk, ``resume``.

    After the start no method raises for a store or a disk that fails: they warn, keep
    the results, and try again. ``complete`` tells whether MLflow has everything.
    """

    def __init__(
        self,
        store: Store,
        study: Study,
        folder: StudyFolder,
        warn: Callable[[str], None],
        variant_runs: dict[str, str],
    ) -> None:
        self.store = store
        self.study = study
        self.folder = folder
        self.variant_runs = variant_runs
        self._warn = warn
        self._variants = {variant.name: variant for variant in study.variants}
        self._repeats: dict[Key, Repeat] = {}
        self._repeat_runs: dict[Key, str] = {}  # recorded
        self._uncertain: set[Key] = set()  # a run may exist from an attempt that failed
        self._left_runs: dict[Key, str] = {}  # such runs, found in the store
        self._terminal: dict[str, writing.RunStatus] = {}  # runs that had ended before a resume
        self._planned_ends: set[str] = set()
        self._blocks_planned = False
        self._convergence: dict[str, tuple[Convergence, ...]] = {}
        self._over = False
        self._problems: list[str] = []  # unreadable files: keep the folder
        self._jobs: dict[str, Callable[[], None]] = {}
        self._offline = False
        self._warned: set[str] = set()

    # --- beginning -----------------------------------------------------------------------------

    @classmethod
    def start(
        cls,
        store: Store,
        study: Study,
        *,
        spool: Spool | None = None,
        warn: Callable[[str], None] = lambda message: None,
    ) -> Recorder:
        """Make the runs of the study and of its variants, and its folder on disk.

        The ``study_id`` of the study given is ignored: the recorder's ``study`` has
        the real one, which is the run's id.

        Raises:
            StoreError: the store or the disk fails; no run is left running.
        """
        spool = spool or Spool()
        spool.prepare()
        with refusals(store.tracking_uri):
            run_id = creating.create_study_run(store, study)
        study = study.model_copy(update={"study_id": run_id})
        recorder = cls(store, study, spool.folder(run_id), warn, {})
        try:
            recorder.folder.acquire()
            recorder.folder.write_study(study)
            recorder._write_target()
            with refusals(store.tracking_uri):
                creating.describe_study(store, study)
                recorder._make_variant_runs()
            share_views(store)
        except BaseException as error:
            recorder._abandon(error)
            raise
        return recorder

    @classmethod
    def resume(cls, store: Store, folder: StudyFolder, warn: Callable[[str], None]) -> Recorder:
        """A recorder of what waits in a study's folder, which the caller has acquired.

        What is unreadable there is warned about and left as it is.

        Raises:
            StoreError: the study's description is unreadable, or the store fails.
        """
        study, target = folder.study(), folder.target()
        recorder = cls(store, study, folder, warn, dict(target.variant_runs))
        repeats, recorder._problems = folder.repeats()
        for problem in recorder._problems:
            warn(problem)
        try:
            recorder._convergence = dict(folder.convergence().variants)
        except SpoolError as error:
            recorder._problems.append(str(error))
            warn(str(error))
        with refusals(store.tracking_uri):
            recorder._adopt_runs()
            recorder._make_variant_runs()
        for repeat in repeats:
            key = (repeat.variant, repeat.index)
            recorder._repeats[key] = repeat
            run_id = folder.recorded_as(repeat)
            if run_id is not None:
                recorder._repeat_runs[key] = run_id
            else:
                recorder._jobs[f"repeat {key}"] = partial(recorder._send_repeat, key)
        return recorder

    # --- while measuring -----------------------------------------------------------------------

    @property
    def study_id(self) -> str:
        return self.study.study_id

    @property
    def complete(self) -> bool:
        """Whether MLflow has everything that was recorded so far."""
        return not self._jobs

    @property
    def waiting(self) -> int:
        """How many repeats MLflow does not have yet."""
        return len(self._repeats) - len(self._repeat_runs)

    @property
    def repeats(self) -> tuple[Repeat, ...]:
        """What was measured, as it is on disk, in the order of recording."""
        return tuple(self._repeats.values())

    def record_repeat(self, repeat: Repeat) -> None:
        """Keep a repeat on disk and send it to MLflow."""
        key = (repeat.variant, repeat.index)
        self._repeats[key] = repeat
        self._keep(lambda: self.folder.add(repeat))
        self._jobs[f"repeat {key}"] = partial(self._send_repeat, key)
        self._deliver()

    def record_prediction(self, prediction: Prediction) -> None:
        """Send what was predicted of a variant, beside what was measured of it."""
        run_id = self.variant_runs[prediction.variant]
        self._jobs[f"prediction ({prediction.variant})"] = lambda: writing.send_prediction(
            self.store, run_id, prediction
        )
        self._deliver()

    def finish_variant(self, name: str) -> None:
        """Means over the variant's repeats, its status, and the end of its run."""
        self._plan_variant_end(name)
        self._deliver()

    def record_blocks(self) -> None:
        """All blocks until now, so that what MLflow holds can be decided about."""
        self._plan_blocks()
        self._deliver()

    def keep_convergence(self, variant: str, run: Convergence) -> None:
        """Keep one longer training on disk; MLflow gets them all at once."""
        self._convergence[variant] = (*self._convergence.get(variant, ()), run)
        kept = StudyConvergence(variants=self._convergence)
        self._keep(lambda: self.folder.write_convergence(kept))

    def record_convergence(self) -> None:
        """All longer trainings until now, so that what MLflow holds can be decided about."""
        self._plan_convergence()
        self._deliver()

    def _plan_convergence(self) -> None:
        runs = dict(self._convergence)
        if runs:
            self._jobs["convergence"] = lambda: send_convergence(
                self.store, self.study_id, runs, self.variant_runs
            )

    def _plan_blocks(self) -> None:
        values, self._blocks_planned = self.values(), True
        self._jobs["blocks"] = lambda: send_blocks(self.store, self.study_id, values)

    def values(self) -> tuple[VariantValues, ...]:
        """All variants as measured, from memory: for a decision while the store is away."""
        values = [self._values(variant) for variant in self.study.variants]
        return with_convergence(values, self._convergence)

    # --- ending --------------------------------------------------------------------------------

    def finish_study(
        self, comparison: Comparison, note: str, pictures: Mapping[str, bytes] | None = None
    ) -> bool:
        """Record the comparison and end all runs; True where MLflow has everything.

        Args:
            note: Markdown for the study's page; the first 8000 characters are kept.
            pictures: PNG files by their artifact paths.
        """
        pictures = pictures or {}
        self._keep(lambda: self.folder.write_pictures(pictures))
        self._keep(lambda: self.folder.write_comparison(comparison, note))
        for name in self._variants:
            self._plan_variant_end(name)
        if not self._blocks_planned:
            self._plan_blocks()
            self._plan_convergence()
        self._jobs["comparison"] = lambda: writing.send_comparison(
            self.store, comparison, note, self.variant_runs
        )
        self._jobs["pictures"] = lambda: send_pictures(self.store, self.study_id, pictures)
        return self._end("FINISHED")

    def kill(self) -> bool:
        """End what still runs as KILLED, keeping what was measured; for SIGINT and SIGTERM."""
        return self._stop("KILLED", None)

    def fail(self, error: str) -> bool:
        """End what still runs as FAILED, keeping what was measured."""
        return self._stop("FAILED", error)

    def _stop(self, status: writing.RunStatus, error: str | None) -> bool:
        if self._over:
            return self.complete
        for name in self._variants:
            self._plan_variant_end(name, stopped=status)
        self._plan_blocks()
        self._plan_convergence()
        return self._end(self._terminal.get(self.study_id, status), error)

    def _end(self, status: writing.RunStatus, error: str | None = None) -> bool:
        self._jobs["end"] = lambda: writing.end_run(self.store, self.study_id, status, error)
        self._deliver()
        self._over = True
        if self.complete and not self._problems:
            self.folder.remove()
            return True
        self.folder.release()
        if not self.complete:
            self._warn(
                f"MLflow does not have everything of study {self.study_id} yet "
                f"({self.waiting} repeats missing); it is kept in {str(self.folder.path)!r}: "
                f"when the store is back, run 'trainperf recover {self.study_id}'"
            )
        return self.complete

    # --- jobs ----------------------------------------------------------------------------------

    def _deliver(self) -> None:
        """Do what is to be done, in order, until all is done or the store is gone."""
        if self._offline:
            if not answers(self.store, self.study_id):
                return
            self._offline = False
            self._warn("the MLflow store answers again; sending what was kept")
        for name, job in list(self._jobs.items()):
            try:
                job()
            except Exception as error:
                raise_interruption(error)
                self._report(name, error)
                if not answers(self.store, self.study_id):
                    self._offline = True
                    return
            else:
                del self._jobs[name]

    def _report(self, job: str, error: Exception) -> None:
        message = reason(error, self.store.tracking_uri)
        if message not in self._warned:
            self._warned.add(message)
            self._warn(
                f"MLflow did not take {job.partition(' (')[0]} ({message[:200]}); measuring goes "
                f"on, and the results are kept in {str(self.folder.path)!r}"
            )

    def _send_repeat(self, key: Key) -> None:
        repeat = self._repeats[key]
        if key in self._uncertain:
            self._adopt_runs()
        # From here on the store may have the run although we are told that it failed.
        self._uncertain.add(key)
        variant = self._variants[repeat.variant]
        parent = self.variant_runs[variant.name]
        left = self._left_runs.get(key)
        run_id = writing.send_repeat(self.store, self.study, variant, parent, repeat, left)
        self._repeat_runs[key] = run_id
        self._keep(lambda: self.folder.mark_recorded(repeat, run_id))

    def _plan_variant_end(self, name: str, stopped: writing.RunStatus | None = None) -> None:
        if name in self._planned_ends:
            return
        self._planned_ends.add(name)
        values = self._values(self._variants[name])
        measured: writing.RunStatus = "FINISHED" if values.status is Status.OK else "FAILED"
        # A variant that had ended in order before the study was stopped stays so.
        had_ended = self.variant_runs.get(name) in self._terminal
        status = measured if had_ended or stopped is None else stopped
        self._jobs[f"variant {name}"] = lambda: writing.send_variant(
            self.store, self.variant_runs[name], values, status
        )

    def _values(self, variant: Variant) -> VariantValues:
        repeats = [repeat for repeat in self._repeats.values() if repeat.variant == variant.name]
        verdicts = [effect_verdict(repeat.effects) for repeat in repeats if repeat.effects]
        values: list[RepeatValues] = [
            repeat_values(
                repeat,
                compiled=is_compiled(variant),
                run_id=self._repeat_runs.get((repeat.variant, repeat.index)),
            )
            for repeat in repeats
        ]
        return variant_values(
            variant,
            values,
            effects=[verified for verified, _ in verdicts],
            effect_detail="; ".join(dict.fromkeys(detail for _, detail in verdicts)),
            sources=[repeat.peak_mem_source for repeat in repeats if repeat.peak_mem_source],
            unsupported=self.study.workload.unsupported.get(variant.name),
            run_id=self.variant_runs.get(variant.name),
        )

    # --- the disk and the store ----------------------------------------------------------------

    def _keep(self, write: Callable[[], None]) -> None:
        try:
            write()
        except SpoolError as error:
            # In memory it is still there, and MLflow may take it.
            if str(error) not in self._warned:
                self._warned.add(str(error))
                self._warn(str(error))

    def _write_target(self) -> None:
        self.folder.write_target(
            Target(
                tracking_uri=masked(self.store.tracking_uri),
                experiment_id=self.store.experiment_id,
                variant_runs=self.variant_runs,
            )
        )

    def _make_variant_runs(self) -> None:
        """The runs of the variants that have none yet, and the note of them on disk."""
        for variant in self.study.variants:
            if variant.name not in self.variant_runs:
                created = creating.create_variant_run(self.store, self.study, variant)
                self.variant_runs[variant.name] = created
                creating.describe_variant(self.store, self.study, variant, created)
        self._write_target()

    def _adopt_runs(self) -> None:
        """Take over the runs that an interrupted attempt has left in the store."""
        for run in runs_of_study(self.store, self.study_id):
            tags, run_id = run.data.tags, run.info.run_id
            kind, variant = tags.get(names.KIND), tags.get(names.VARIANT, "")
            if run.info.status in ("FINISHED", "FAILED", "KILLED"):
                self._terminal[run_id] = run.info.status
            if kind == "variant":
                self.variant_runs.setdefault(variant, run_id)
            elif kind == "repeat":
                self._left_runs.setdefault((variant, int(tags[names.REPEAT])), run_id)

    def _abandon(self, error: BaseException) -> None:
        """Leave no run running when the start itself fails."""
        killed = not isinstance(error, Exception) or hasattr(error, "signum")
        status: writing.RunStatus = "KILLED" if killed else "FAILED"
        for run_id in (*self.variant_runs.values(), self.study_id):
            with suppress(Exception), impatient():
                writing.end_run(self.store, run_id, status, str(error))
        self.folder.remove()
