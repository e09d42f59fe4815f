"""How a study was closed, as whoever reads the study is told."""

from __future__ import annotations

from trainperf_mlflow.evidence.closing import decision_of, decision_on
from trainperf_mlflow.evidence.closing_report import ClosingReport
from trainperf_mlflow.results.comparison import Comparison
from trainperf_mlflow.results.decision import Closed


def closed_as(report: ClosingReport, comparison: Comparison) -> Closed:
    """What a closing report decided on the study and on each candidate.

    Args:
        comparison: as it was measured; the close rests on its confidence.
    """
    accepted = [record for record in report.candidates if record.decision == "accept"]
    best = max(accepted, key=lambda r: (r.memory_saving_mb or 0.0, r.name), default=None)
    return Closed(
        label=report.run_label,
        **decision_of(report, comparison.decision.confidence).model_dump(),
        best_candidate=best.name if best else comparison.best_candidate,
        candidates={r.name: decision_on(r, report, comparison) for r in report.candidates},
    )
