"""The only room that imports mlflow: the store, the recorder, queries, links, recovery."""

from __future__ import annotations

import os

# MLflow reads these when it is imported or called; what the user set stays.
_DEFAULTS = {
    # Its own defaults keep a study waiting for minutes when the server is gone.
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "30",
    # Standard output holds results only, and MLflow's links open the wrong page.
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    # A thread that sends usage data has no place in a process that measures.
    "MLFLOW_DISABLE_TELEMETRY": "true",
}

for _name, _value in _DEFAULTS.items():
    os.environ.setdefault(_name, _value)
