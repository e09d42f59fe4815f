from __future__ import annotations

from trainperf_mlflow.decisions.case import Case
from trainperf_mlflow.results import Decision


def decide(case: Case) -> Decision:
    raise NotImplementedError
