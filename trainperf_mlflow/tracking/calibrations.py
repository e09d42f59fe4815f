"""Which calibration of this machine a study can stand on."""

from __future__ import annotations

from dataclasses import replace

from mlflow.entities import Run

from trainperf_mlflow.results.comparison import Comparison
from trainperf_mlflow.results.study import Calibration
from trainperf_mlflow.tracking import names
from trainperf_mlflow.tracking.queries import load_comparison
from trainperf_mlflow.tracking.search import search_runs
from trainperf_mlflow.tracking.store import Store, refusals


def find_calibration(
    store: Store, machine_digest: str, baseline_digest: str, device: str
) -> Calibration | None:
    """The newest calibration of this machine with the same baseline, else with another workload
    on the same device, in any experiment; None where there is none.

    Raises:
        StoreError: the store cannot be read, or the calibration's record is gone.
    """
    condition = (
        f"tags.`{names.KIND}` = 'calibration' AND tags.`{names.REASON}` = 'calibrated'"
        f" AND tags.`{names.MACHINE_DIGEST}` = '{machine_digest}'"
    )
    with refusals(store.tracking_uri):
        found = search_runs(replace(store, experiment_id=""), condition)
    same = [run for run in found if run.data.tags.get(names.BASELINE_DIGEST) == baseline_digest]
    near = [run for run in found if run.data.params.get("workload.device") == device]
    best: Run | None = next(iter((*same, *near)), None)
    if best is None:
        return None
    comparison: Comparison = load_comparison(store, best.info.run_id)
    if comparison.calibration is None:
        return None
    return comparison.calibration.model_copy(update={"same_workload": bool(same)})
