"""The longer training that a plan asks for: planned, run after the timed part, kept, decided by."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from made_studies import study, variant
from mlflow import MlflowClient
from recorded_studies import a_repeat, a_store, a_study

import trainperf_mlflow as tp
from trainperf_mlflow.cli.flags import plan_from_flags
from trainperf_mlflow.errors import PlanError
from trainperf_mlflow.measurement.conductor import Job
from trainperf_mlflow.measurement.converging import LOSSES_KEPT, train_further
from trainperf_mlflow.measurement.launcher import WorkerError
from trainperf_mlflow.measurement.protocol import Built, Trained
from trainperf_mlflow.measurement.worker import Repeat
from trainperf_mlflow.plan import make_plan
from trainperf_mlflow.results.comparison import Comparison
from trainperf_mlflow.results.record import Status
from trainperf_mlflow.results.repeats import Convergence, StudyConvergence
from trainperf_mlflow.results.study import Variant
from trainperf_mlflow.tracking.queries import load_variants
from trainperf_mlflow.tracking.recorder import Recorder
from trainperf_mlflow.tracking.recovery import recover
from trainperf_mlflow.tracking.spool import Spool
from trainperf_mlflow.workloads.task import CallableTask

pytestmark = pytest.mark.usefixtures("warm_servers")

# --- the plan ----------------------------------------------------------------------------------


def test_a_flag_and_a_plan_ask_for_the_same_steps_and_an_empty_one_for_none() -> None:
    given = plan_from_flags(None, {"candidate": ("bf16",), "convergence_steps": "20"})
    assert given == make_plan({"candidates": ["bf16"], "convergence_steps": 20})
    unset = plan_from_flags(None, {"candidate": ("bf16",), "convergence_steps": ""})
    assert unset.convergence_steps is None


@pytest.mark.parametrize("steps", [0, -1, 1.5, "many", True])
def test_steps_that_are_no_count_are_refused_with_the_value(steps: object) -> None:
    with pytest.raises(PlanError, match=r"convergence_steps.*give a whole number"):
        make_plan({"candidates": ["bf16"], "convergence_steps": steps})


def test_random_tokens_and_probes_are_refused_before_anything_is_measured() -> None:
    with pytest.raises(PlanError, match="set data=stdlib"):
        make_plan({"candidates": ["bf16"], "workload": "smoke", "convergence_steps": 5})
    with pytest.raises(PlanError, match="a probe compares nothing"):
        tp.measure({"probe": True, "convergence_steps": 5})


# --- which trainings, in which order -----------------------------------------------------------


class Trainer:
    """A worker that answers at once, and notes what it was asked for."""

    asked: list[tuple[Any, ...]]

    def __init__(self, asked: list[tuple[Any, ...]], broken: dict[tuple[str, int], Any]) -> None:
        self.asked, self.broken = asked, broken

    def __enter__(self) -> Trainer:
        return self

    def __exit__(self, *exception: object) -> None:
        self.asked.append(("end",))

    def ask(self, request: str, timeout: float | None = None, **arguments: Any) -> Any:
        if request == "build":
            self.key = (arguments["config"]["name"], arguments["seed"])
            self.asked.append((*self.key, arguments["data_seed"]))
            return Built(
                build_s=0.0,
                samples_per_step=1.0,
                tokens_per_step=None,
                quality_checked=True,
                environment={},
            )
        found = self.broken.get(self.key)
        if isinstance(found, Exception):
            raise found
        steps: int = arguments["steps"]
        return found or Trained(losses=tuple(map(float, range(steps))), eval_loss=2.0)


def runs_of(
    seeds: int, steps: int = 4, **broken: Any
) -> tuple[list[tuple[str, Convergence]], list[tuple[Any, ...]]]:
    variants = tuple(
        Variant(
            name=name,
            role="baseline" if name == "baseline" else "candidate",
            config={"name": name},
        )
        for name in ("baseline", "bf16")
    )
    job = Job(
        study_id="s",
        task="m:f",
        variants=variants,
        workload=study().workload,
        repeats=3,
        blocks=4,
        warmup_steps=1,
        steps_per_block=1,
        seed=42,
        isolation="auto",
    )
    asked: list[tuple[Any, ...]] = []
    by_key = {
        (name.split("_")[0], int(name.split("_")[1])): value for name, value in broken.items()
    }
    found = list(train_further(job, variants, seeds, steps, lambda: Trainer(asked, by_key)))
    return found, asked


def test_each_seed_trains_all_variants_in_processes_of_their_own_on_the_same_data() -> None:
    found, asked = runs_of(3)
    assert asked == [
        call
        for seed in (42, 43, 44)
        for name in ("baseline", "bf16")
        for call in ((name, seed, 42), ("end",))
    ]
    assert [(name, run.index, run.seed) for name, run in found][:3] == [
        ("baseline", 0, 42),
        ("bf16", 0, 42),
        ("baseline", 1, 43),
    ]


def test_a_diverged_candidate_is_left_out_and_a_failed_baseline_ends_it() -> None:
    nan = Trained(losses=(1.0,), eval_loss=None, diverged="the loss became nan in step 2")
    found, _ = runs_of(3, bf16_43=nan)
    assert [run.status.value for name, run in found if name == "bf16"] == ["ok", "diverged"]
    assert len([run for name, run in found if name == "baseline"]) == 3
    found, _ = runs_of(3, baseline_43=WorkerError(Status.OOM, "no memory"))
    assert [(name, run.status.value, run.error) for name, run in found][-2:] == [
        ("baseline", "oom", "no memory"),
        ("bf16", "ok", None),
    ]


def test_of_a_long_training_evenly_chosen_losses_are_kept() -> None:
    (_, run), *_ = runs_of(1, steps=1001)[0]
    assert run.every == 3
    assert len(run.losses) <= LOSSES_KEPT
    assert run.losses[:3] == (0.0, 3.0, 6.0)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_training_ends_where_its_loss_is_no_number(bad: float) -> None:
    losses = iter([2.0, 1.0, bad, *[1.0] * 200])
    worker = Repeat()
    worker._task = CallableTask(lambda: next(losses))
    trained = worker.train(150)
    assert (trained.losses, trained.eval_loss) == ((2.0, 1.0), None)
    assert trained.diverged == f"the loss became {bad} in step 3"


# --- what an interruption leaves ---------------------------------------------------------------


def test_trainings_wait_on_disk_and_a_damaged_file_is_told(tmp_path: Path) -> None:
    folder = Spool(tmp_path).folder("abc")
    folder.acquire()
    run = Convergence(index=0, seed=42, status=Status.OK, steps=5, losses=(3.0,), eval_loss=3.0)
    kept = StudyConvergence(variants={"baseline": (run,)})
    assert folder.convergence().variants == {}
    folder.write_convergence(kept)
    assert folder.convergence() == kept
    (folder.path / "convergence.json").write_text("{")
    with pytest.raises(tp.StoreError, match="damaged"):
        folder.convergence()
    folder.release()


def test_what_was_trained_before_an_interruption_is_sent_and_decided_by(tmp_path: Path) -> None:
    store = a_store(tmp_path)
    spool = Spool(tmp_path / "spool")
    asked = a_study()
    asked = asked.model_copy(update={"plan": {**asked.plan, "convergence_steps": 5}})
    recorder = Recorder.start(store, asked, spool=spool)
    name = asked.variants[0].name
    recorder.record_repeat(a_repeat(recorder.study_id, name))
    run = Convergence(index=0, seed=42, status=Status.OK, steps=5, losses=(3.0,), eval_loss=2.5)
    recorder.keep_convergence(name, run)
    # The command is killed here; another one finds the folder.
    recorder.folder.release()
    recover(recorder.study_id, tracking_uri=store.tracking_uri, spool=spool)
    loaded = {v.name: v for v in load_variants(store, recorder.study_id)}
    assert loaded[name].convergence == (run,)
    metrics = store.client.get_run(loaded[name].run_id or "").data.metrics
    assert metrics["convergence/eval_loss"] == 2.5


# --- a real study ------------------------------------------------------------------------------


@dataclass(frozen=True)
class TrainedStudy:
    """A study of bf16 that trained some steps, and its store."""

    comparison: Comparison
    client: MlflowClient
    uri: str
    said: str


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TrainedStudy]:
    import io

    folder = tmp_path_factory.mktemp("convergence")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("OMP_NUM_THREADS", "1")
        uri = f"sqlite:///{folder}/mlflow.db"
        said = io.StringIO()
        comparison = tp.measure(
            {
                "candidates": ["bf16"],
                "set": {"batch_size": 1, "seq_len": 16},
                "repeats": 1,
                "blocks": 1,
                "iters": 2,
                "warmup": 1,
                "convergence_steps": 3,
            },
            tracking_uri=uri,
            progress=said,
        )
        yield TrainedStudy(comparison, MlflowClient(uri), uri, said.getvalue())


def test_bf16_ends_where_fp32_does_on_the_same_seeds(trained: TrainedStudy) -> None:
    candidate = trained.comparison.candidates[0]
    check = candidate.convergence
    assert check is not None
    # One round was measured; three seeds are the fewest that are trained.
    assert (check.verdict, check.seeds, check.steps) == ("same", 3, 3)
    assert check.method == "Student's t"
    assert check.difference == pytest.approx(candidate.delta["convergence_eval_loss"], abs=1e-8)
    assert check.text in candidate.decision.text
    assert candidate.loss_curve is not None
    # One seed does not tell what seeds alone cause; that the losses are not equal it does.
    assert (candidate.loss_curve.verdict, candidate.loss_curve.equal) == ("not_shown", False)
    assert "bf16: training 3 steps, seed 3 of 3" in trained.said


def test_mlflow_holds_the_curves_and_compare_comes_to_the_same_verdict(
    trained: TrainedStudy,
) -> None:
    study_id = trained.comparison.study_id
    client, candidate = trained.client, trained.comparison.candidates[0]
    run = client.get_run(candidate.run_id or "")
    series = client.get_metric_history(run.info.run_id, "convergence/loss")
    assert [point.step for point in series] == [1, 2, 3]
    path = Path(client.download_artifacts(study_id, "convergence.json"))
    kept = StudyConvergence.from_json(path.read_bytes())
    ends = [item.eval_loss for item in kept.variants["bf16"] if item.eval_loss is not None]
    assert run.data.metrics["convergence/eval_loss"] == pytest.approx(sum(ends) / 3)
    assert client.get_run(study_id).data.params["plan.convergence_steps"] == "3"
    again = tp.compare(study_id, tracking_uri=trained.uri)
    assert again.candidates[0].convergence == candidate.convergence
    assert again.candidates[0].loss_curve == candidate.loss_curve
    assert again.decision == trained.comparison.decision
    summary = json.loads(json.dumps(again.summary()))["candidates"][0]
    assert summary["convergence"]["verdict"] == "same"
    assert summary["loss_curve"]["verdict"] == "not_shown"


def test_the_measured_values_know_nothing_of_the_longer_training(trained: TrainedStudy) -> None:
    baseline = trained.comparison.baseline
    assert baseline is not None
    assert not [name for name in baseline.metrics if name.startswith("convergence")]
    assert len(baseline.repeats) == 1
    assert variant("baseline").convergence == ()
