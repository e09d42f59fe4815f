"""What it costs to ask a full store: ``decisions`` and ``compare`` beside plain MLflow calls.

Usage: .venv/bin/python scripts/bench_store.py [--runs 10000] [--repeats 100] [--short]

Makes an sqlite store in a temporary folder: a study of so many repeats and a small one
are recorded as a measurement would, and copies of the small one's rows fill the store.
``--short`` takes few runs, only to show that the script works.
"""

from __future__ import annotations

import argparse
import os
import sqlite3
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

# Rows of a run by its id; its artifacts are not copied.
TABLES = ("runs", "tags", "params", "metrics", "latest_metrics")
STEPS = 10


def record_study(store: Any, name: str, repeats: int) -> str:
    """A baseline and a faster candidate, recorded and decided as after a measurement."""
    from trainperf_mlflow.decisions.study import decide_study
    from trainperf_mlflow.results.record import Status
    from trainperf_mlflow.results.repeats import Block, Repeat
    from trainperf_mlflow.results.study import Study, Variant, Workload
    from trainperf_mlflow.tracking.recorder import Recorder

    base = {"model": "tiny", "precision": "fp32", "batch_size": 2, "seq_len": 64}
    variants = (
        Variant(name="baseline", role="baseline", config=base),
        Variant(
            name="bf16",
            role="candidate",
            config={**base, "precision": "bf16"},
            changed={"precision": "bf16"},
            changed_variable="precision",
        ),
    )
    study = Study(
        study_id="",
        name=name,
        plan={"repeats": repeats},
        policy="training",
        variants=variants,
        workload=Workload(
            digest="0" * 64, identity={"seed": 42}, device="cpu", name="quick", source="made up"
        ),
        command="",
        created_at=time.time(),
        toolkit_version="0",
    )
    recorder = Recorder.start(store, study)
    for index in range(repeats):
        for variant in variants:
            step_ms = (50.0 if variant.role == "baseline" else 35.0) + index % 3
            at = time.time()
            block = Block(
                index=0,
                started_at=at,
                wall_ms=STEPS * step_ms,
                step_ms=(step_ms,) * STEPS,
                losses=(2.0,) * STEPS,
            )
            recorder.record_repeat(
                Repeat(
                    study_id=recorder.study_id,
                    variant=variant.name,
                    index=index,
                    seed=index,
                    status=Status.OK,
                    started_at=at,
                    ended_at=at,
                    samples_per_step=2.0,
                    blocks=(block,),
                    peak_mem_mb=100.0,
                    peak_mem_source="tensor_tracker",
                    loss=2.0,
                )
            )
    recorder.finish_study(decide_study(recorder.study, recorder.values()), "made up")
    return recorder.study_id


def copy_study(path: Path, study_id: str, copies: int) -> int:
    """Copy a study's rows so many times, under new ids; the number of runs made."""
    with closing(sqlite3.connect(path)) as database, database:
        of_study = "SELECT run_uuid FROM tags WHERE key = 'trainperf.study_id' AND value = ?"
        ids = [row[0] for row in database.execute(of_study, (study_id,))]
        marks = ",".join("?" * len(ids))
        for table in TABLES:
            query = f"SELECT * FROM {table} WHERE run_uuid IN ({marks})"  # noqa: S608
            found = database.execute(query, ids)
            columns = len(found.description)
            rows = found.fetchall()
            into = f"INSERT INTO {table} VALUES ({','.join('?' * columns)})"  # noqa: S608
            for copy in range(copies):
                new = {old: uuid.uuid5(uuid.UUID(old), str(copy)).hex for old in ids}
                # Ids stand in the key, and in the tags that link a study's runs.
                database.executemany(
                    into,
                    [
                        [
                            new.get(value, value) if isinstance(value, str) else value
                            for value in row
                        ]
                        for row in rows
                    ],
                )
        return copies * len(ids)


@contextmanager
def counted_calls() -> Iterator[Counter[str]]:
    """How often MLflow's client is called, by the method."""
    from mlflow import MlflowClient

    counts: Counter[str] = Counter()
    methods = ("search_runs", "search_experiments", "get_run", "get_experiment", "list_artifacts",
               "download_artifacts", "log_batch", "log_text", "set_tag")  # fmt: skip
    originals = {name: getattr(MlflowClient, name) for name in methods}

    def counting(name: str) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            counts[name] += 1
            return originals[name](*arguments, **named)

        return call

    for name in methods:
        setattr(MlflowClient, name, counting(name))
    try:
        yield counts
    finally:
        for name, original in originals.items():
            setattr(MlflowClient, name, original)


def show(title: str, action: Callable[[], object]) -> None:
    """Time an action twice, of which the first also fills caches, and count its calls."""
    took = []
    for _ in range(2):
        with counted_calls() as counts:
            started = time.perf_counter()
            action()
            took.append(time.perf_counter() - started)
    calls = ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))
    print(f"{title:44}{took[0]:9.2f}{took[1]:9.2f}  {calls}")


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--repeats", type=int, default=100)
    parser.add_argument("--short", action="store_true")
    asked = parser.parse_args(words)
    runs, repeats = (60, 3) if asked.short else (asked.runs, asked.repeats)
    with tempfile.TemporaryDirectory(prefix="bench-store-") as folder:
        here = Path.cwd()
        os.chdir(folder)
        try:
            bench(Path(folder), runs, repeats)
        finally:
            os.chdir(here)


def bench(folder: Path, runs: int, repeats: int) -> None:
    import mlflow

    import trainperf_mlflow as tp
    from trainperf_mlflow.decisions.study import decide_study
    from trainperf_mlflow.tracking import queries
    from trainperf_mlflow.tracking.store import open_store

    path = folder / "mlflow.db"
    uri = f"sqlite:///{path}"
    store = open_store(uri)
    started = time.perf_counter()
    large, small = record_study(store, "large", repeats), record_study(store, "small", 3)
    of_small, of_large = 1 + 2 + 2 * 3, 1 + 2 + 2 * repeats
    copied = copy_study(path, small, max(0, (runs - of_large - of_small) // of_small))
    total = of_small + of_large + copied
    took, mib = time.perf_counter() - started, path.stat().st_size / 2**20
    print(f"{total} runs, one study of {repeats} repeats a side; {mib:.0f} MiB in {took:.1f} s")
    os.environ["MLFLOW_TRACKING_URI"] = uri
    experiments = [store.experiment_id]
    of_study = f"tags.`trainperf.study_id` = '{large}'"

    def searched(condition: str) -> Any:
        return mlflow.search_runs(experiments, condition, max_results=50_000)

    def means() -> object:
        return searched(of_study).groupby("tags.trainperf.variant")["metrics.step_time_ms"].mean()

    def decide() -> object:
        study = queries.load_study(store, large)
        return decide_study(study, queries.load_variants(store, large, study))

    print(f"{'seconds':44}{'first':>9}{'again':>9}  MLflow client calls")
    show("tp.decisions()", lambda: tp.decisions(tracking_uri=uri))
    show("  mlflow.search_runs(studies)", lambda: searched("tags.`trainperf.kind` = 'study'"))
    show("  mlflow.search_runs(), filtered in pandas",
         lambda: searched("")["tags.trainperf.kind"].eq("study").sum())  # fmt: skip
    show("tp.decisions(decision='accept')",
         lambda: tp.decisions(decision="accept", tracking_uri=uri))  # fmt: skip
    show(f"read and decide on {repeats} repeats", decide)
    show("  mlflow.search_runs(study), mean by pandas", means)
    ids = list(searched(of_study)["run_id"])
    show("  mlflow.get_run, one by one", lambda: [mlflow.get_run(run_id) for run_id in ids])
    show("tp.compare(): also tags, notes, pictures, report",
         lambda: tp.compare(large, tracking_uri=uri))  # fmt: skip
    print(f"load of the machine {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
