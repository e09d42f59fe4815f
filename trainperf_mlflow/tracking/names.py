"""The names that the toolkit uses in MLflow, and values cut to what every store takes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

from trainperf_mlflow.messages import plain
from trainperf_mlflow.results.record import Setting

# Tags of runs (the MLflow contract: other programs read them).
KIND = "trainperf.kind"
STUDY_ID = "trainperf.study_id"
STUDY = "trainperf.study"  # its name, on its descendants
ROLE = "trainperf.role"
VARIANT = "trainperf.variant"
CHANGED_VARIABLE = "trainperf.changed_variable"
WORKLOAD_DIGEST = "trainperf.workload_digest"
MACHINE_DIGEST = "trainperf.machine_digest"
BASELINE_DIGEST = "trainperf.baseline_digest"  # of the baseline's whole configuration
SCHEMA = "trainperf.schema"
DECISION = "trainperf.decision"
REASON = "trainperf.reason"
NEXT_ACTION = "trainperf.next_action"
ROLLBACK = "trainperf.rollback"
CONFIDENCE = "trainperf.confidence"
DIRECTION = "trainperf.direction"
POLICY = "trainperf.policy"
GOAL = "trainperf.goal"
HYPOTHESIS = "trainperf.hypothesis"
BEST_CANDIDATE = "trainperf.best_candidate"
PRIMARY_STUDY = "trainperf.primary_study"  # of a regression: the id
ADJACENT_STUDIES = "trainperf.adjacent_studies"  # of a regression: the ids, by commas
CANDIDATE_BOTTLENECK = "trainperf.candidate_bottleneck"
SCOPE_STUDIES = "trainperf.scope_studies"  # of a scope: the ids, the shortest length first
CLOSED = "trainperf.closed"  # the label
CLAIM_PREFIX = "trainperf.closing/"  # and a unique id: who is closing the study now
MEASURED_DECISION = "trainperf.measured_decision"  # what stood before the close
HANDOFF = "trainperf.handoff"  # the artifact's path
# Links to other studies: ids, separated by commas where there may be several.
SCOPE_STUDY = "trainperf.scope_study"
PRESSURE_STUDY = "trainperf.pressure_study"
REGRESSIONS = "trainperf.regressions"
# And the path of an artifact: its SHA-256 as it was written.
SHA256_PREFIX = "trainperf.sha256/"
IMPORTED = "trainperf.imported"  # the format of the report that the study was imported from
SOURCE_FILE = "trainperf.source_file"
SOURCE_SHA256 = "trainperf.source_sha256"
PUBLISHED_DECISION = "trainperf.published_decision"
STATUS = "trainperf.status"
ERROR = "trainperf.error"
REPEAT = "trainperf.repeat"
OK_REPEATS = "trainperf.ok_repeats"
QUALITY_CHECKED = "trainperf.quality_checked"
DATA_DIGEST = "trainperf.data_digest"  # of a repeat's first batch
EFFECT_VERIFIED = "trainperf.effect_verified"
EFFECT_DETAIL = "trainperf.effect_detail"
PREDICTION = "trainperf.prediction"  # the phase of the predicted peak, or why there is none
NOT_FINITE = "trainperf.not_finite"

SCHEMA_VERSION = "trainperf/v1"

# Artifacts.
STUDY_FILE = "study.json"
COMPARISON_FILE = "comparison.json"
CONVERGENCE_FILE = "convergence.json"
RESULT_FILE = "result.json"
ENVIRONMENT_FILE = "environment.json"
SOURCE_FOLDER = "evidence/source"
MANIFEST_FILE = "evidence/manifest.json"
CLOSING_FILE = "evidence/closing.json"
HANDOFF_FILE = "handoff/handoff.json"
REGRESSION_FILE = "regression.json"
LADDER_FILE = "scope.json"  # all of a ladder, on its run
SCOPE_FILE = "evidence/activation_scope.json"  # a ladder's report, in the source's form, on its run
REPORT_FILE = "report.html"
MARKDOWN_FILE = "report.md"
PICTURES_FOLDER = "plots"
FIRST_PICTURE = "plots/ratios.png"  # what the verdict rests on

# Params.
PEAK_MEM_SOURCE = "peak_mem_source"
WORKLOAD_NAME = "workload.name"

# Metrics of a calibration, in percent.
NOISE_FLOOR = "noise_floor_pct"
BETWEEN_PROCESS = "between_process_pct"
SMALLEST_DETECTABLE = "smallest_detectable_pct"

# Metrics of a variant that was measured on an accelerator.
PREDICTED_PEAK = "predicted_peak_mem_mb"
PREDICTION_ERROR = "prediction_error_pct"

# MLflow's own.
PARENT_RUN_ID = "mlflow.parentRunId"
NOTE = "mlflow.note.content"
RUN_COLOUR = "mlflow.runColor"

# Series of a repeat: one point per measured step.
SERIES_PREFIX = "steps/"
STEP_TIME_SERIES = "steps/step_time_ms"
LOSS_SERIES = "steps/loss"

# Of a variant: after the longer training, means over its seeds.
CONVERGENCE_EVAL_LOSS = "convergence/eval_loss"
CONVERGENCE_LOSS_SERIES = "convergence/loss"

# MLflow cuts longer values silently or refuses them, PostgreSQL refuses longer names.
MAX_NAME = 250
MAX_TAG = 8000
MAX_PARAM = 6000
MAX_ERROR = 2000
_CUT = " ... (cut)"


def cut(text: str, limit: int) -> str:
    """The text as every store takes it: no NUL, and visibly cut where it is too long.

    >>> cut("abcdefghijklmnop", 14)
    'abcd ... (cut)'
    """
    text = text.replace("\0", "")
    return text if len(text) <= limit else text[: limit - len(_CUT)] + _CUT


def run_name(text: str) -> str:
    """A run's name: on MLflow's pages no character may turn, hide or break what stands around it.

    >>> run_name("a\\u202eb\\n")
    'a\\\\u202eb\\\\n'
    """
    return cut(plain(text), MAX_NAME)


def param_text(value: Setting) -> str:
    """A setting as people read it: text as it is, anything else as JSON.

    >>> [param_text(value) for value in ("bf16", True, 4, None)]
    ['bf16', 'true', '4', 'null']
    """
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return cut(text, MAX_PARAM)


def tags(values: Mapping[str, str | None]) -> dict[str, str]:
    """The tags that have a value, cut to what MLflow keeps."""
    return {key: cut(value, MAX_TAG) for key, value in values.items() if value is not None}


def digest_tags(files: Mapping[str, str]) -> dict[str, str]:
    """The tags that fix what text files hold, by their artifact paths.

    >>> digest_tags({"a.json": ""})["trainperf.sha256/a.json"][:8]
    'e3b0c442'
    """
    return {
        f"{SHA256_PREFIX}{path}": hashlib.sha256(text.encode()).hexdigest()
        for path, text in files.items()
    }


def delta_metric(name: str) -> str:
    """The MLflow metric of one entry of a comparison's ``delta``.

    >>> delta_metric("step_time_ms"), delta_metric("speedup")
    ('delta/step_time_ms', 'speedup')
    """
    return name if name == "speedup" else f"delta/{name}"
