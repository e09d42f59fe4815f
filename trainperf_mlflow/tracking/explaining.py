"""What explains a study goes to the runs that it has: metrics and files, never a tag that decides.

Every function may be called again: a later measurement replaces an earlier one.
"""

from __future__ import annotations

import json
import math
import shutil
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from mlflow.entities import Metric

from trainperf_mlflow.analysis.explanation import TRACE_FILE
from trainperf_mlflow.errors import EvidenceError, StoreError
from trainperf_mlflow.results import Study, VariantValues
from trainperf_mlflow.tracking import names, queries
from trainperf_mlflow.tracking.spool import Spool, write_whole
from trainperf_mlflow.tracking.store import Store, refusals

PHASES_FILE = "phases/phases.json"
PHASE_MEMORY_FILE = "phases/phase_memory.json"
PROFILE_FILE = "profile/summary.json"
TRACE_EVIDENCE_FILE = "profile/trace_evidence.json"


class Kept:
    """A folder that holds results until MLflow has them; it is left where sending fails."""

    def __init__(self, study_id: str, kind: str) -> None:
        spool = Spool()
        spool.prepare()
        self.path = Path(tempfile.mkdtemp(prefix=f"{kind}-{study_id[:12]}-", dir=spool.root))
        self._told = False

    def keep(self, name: str, text: str) -> str | None:
        """Write a file whole; what kept it from the disk, the first time that happens.

        What was measured is still in memory and goes to MLflow: a full disk ends nothing.
        """
        try:
            write_whole(self.path / name, text)
        except OSError as error:
            if not self._told:
                self._told = True
                return (
                    f"{str(self.path)!r} cannot be written ({error.strerror}): should MLflow not "
                    "take the results either, they are lost; free some space"
                )
        return None

    def remove(self) -> None:
        """MLflow has everything."""
        shutil.rmtree(self.path, ignore_errors=True)
        self.remove_empty()

    def remove_empty(self) -> None:
        for folder in (self.path, self.path.parent):
            with suppress(OSError):
                folder.rmdir()  # only where it is empty


def load_open_study(store: Store, study_id: str) -> tuple[Study, tuple[VariantValues, ...]]:
    """A study that may still be explained, and its variants as measured.

    Raises:
        EvidenceError: it is closed, so nothing may be added to its evidence.
        StoreError: it cannot be read.
    """
    with refusals(store.tracking_uri):
        label = store.client.get_run(study_id).data.tags.get(names.CLOSED)
    if label is not None:
        raise EvidenceError(
            f"study {study_id} is closed ({label!r}), and its evidence is final; "
            "measure a new study to look further"
        )
    return queries.load_study(store, study_id), queries.load_variants(store, study_id)


def send(
    store: Store,
    run_id: str,
    kept: Kept,
    files: Mapping[str, Mapping[str, Any]],
    metrics: Mapping[str, float] | None = None,
    trace: Path | None = None,
) -> None:
    """Attach objects as JSON by their artifact paths, metrics and a trace to a run.

    Raises:
        StoreError: the store refuses; what was measured stays in the kept folder.
    """
    now = int(time.time() * 1000)
    finite = {key: value for key, value in (metrics or {}).items() if math.isfinite(value)}
    try:
        with refusals(store.tracking_uri):
            if trace is not None:
                store.client.log_artifact(run_id, str(trace), TRACE_FILE.rpartition("/")[0])
            for name, content in files.items():
                store.client.log_text(run_id, json.dumps(content, indent=2), name)
            store.client.log_batch(
                run_id,
                metrics=[Metric(key, value, now, 0) for key, value in finite.items()],
                synchronous=True,
            )
    except StoreError as error:
        raise StoreError(
            f"{error}; what was measured is kept in {str(kept.path)!r}; run the command again "
            "when the store is back"
        ) from None
