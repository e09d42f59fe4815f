"""The colours of runs in MLflow's table and charts: studies by decision, the rest by role.

Okabe and Ito, "Color Universal Design" (2008): told apart with every colour vision, and
the same as in a study's pictures.
"""

from __future__ import annotations

from trainperf_mlflow.results.study import Study

# The baseline's, and a study's that is not decided.
NEUTRAL = "#5A5A5A"
_CANDIDATES = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
_DECISIONS = {"accept": "#009E73", "tune": "#E69F00", "reject": "#D55E00", "measure": "#56B4E9"}


def of_decision(decision: str) -> str:
    """A study's colour: green, orange, vermilion, or blue for a probe."""
    return _DECISIONS.get(decision, NEUTRAL)


def of_variant(study: Study, name: str) -> str:
    """A variant's and its repeats': the baseline is grey, candidates go by the plan's order."""
    candidates = [variant.name for variant in study.variants if variant.role == "candidate"]
    if name not in candidates:
        return NEUTRAL
    return _CANDIDATES[candidates.index(name) % len(_CANDIDATES)]
