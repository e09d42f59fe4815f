"""What a study's report needs of MLflow, and the report itself as a file of the study."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from trainperf_mlflow.errors import StoreError
from trainperf_mlflow.results.record import Status
from trainperf_mlflow.results.values import VariantValues
from trainperf_mlflow.tracking import names
from trainperf_mlflow.tracking.importing import load_file
from trainperf_mlflow.tracking.pictures import read_pictures
from trainperf_mlflow.tracking.search import runs_of_study
from trainperf_mlflow.tracking.store import Store, refusals

# Drawn from the evidence, and drawn anew at any time.
_VIEWS = (names.REPORT_FILE, names.MARKDOWN_FILE, names.PICTURES_FOLDER)


class Listed(NamedTuple):
    """A file of the evidence: its path, whose run has it (None: the study's), its digest."""

    path: str
    of: str | None
    sha256: str | None


def load_pictures(store: Store, files: Iterable[str], study_id: str) -> dict[str, bytes]:
    """The study's pictures by their artifact paths.

    Args:
        files: the study's, as ``queries.artifacts`` lists them.

    Raises:
        StoreError: the store cannot be read.
    """
    if not any(path.startswith(f"{names.PICTURES_FOLDER}/") for path in files):
        return {}
    with refusals(store.tracking_uri), tempfile.TemporaryDirectory(prefix="trainperf-") as folder:
        store.client.download_artifacts(study_id, names.PICTURES_FOLDER, folder)
        return read_pictures(Path(folder))


def load_evidence(
    store: Store, files: Iterable[str], study_id: str
) -> tuple[tuple[Listed, ...], bool]:
    """The files that the decision stands on, and whether a manifest lists them.

    Without a manifest they are the study's files, and those of variants and repeats whose
    digest was recorded.

    Raises:
        StoreError: the store cannot be read.
    """
    manifest = (
        load_file(store, study_id, names.MANIFEST_FILE) if names.MANIFEST_FILE in files else None
    )
    with refusals(store.tracking_uri):
        tags = {run.info.run_id: run.data.tags for run in runs_of_study(store, study_id)}
    owners = {run_id: _owner(found) for run_id, found in tags.items()}
    if manifest is not None:
        return _manifested(manifest, owners, study_id), True
    own = tags.get(study_id, {})
    listed = [
        Listed(path, None, own.get(f"{names.SHA256_PREFIX}{path}"))
        for path in files
        if path.partition("/")[0] not in _VIEWS
    ]
    below = [
        Listed(key.removeprefix(names.SHA256_PREFIX), owners[run_id], digest)
        for run_id, found in tags.items()
        if run_id != study_id
        for key, digest in found.items()
        if key.startswith(names.SHA256_PREFIX)
    ]
    below.sort(key=lambda item: (item.of or "", item.path))
    return (*listed, *below), False


def _owner(tags: Mapping[str, str]) -> str | None:
    """The variant of a run, with the repeat's number where it is one."""
    variant, repeat = tags.get(names.VARIANT), tags.get(names.REPEAT)
    return variant if variant is None or repeat is None else f"{variant} #{int(repeat) + 1}"


def _manifested(data: bytes, owners: Mapping[str, str | None], study_id: str) -> tuple[Listed, ...]:
    try:
        return tuple(
            Listed(item["path"], owners.get(item["run_id"]), item["sha256"])
            for item in json.loads(data)["artifacts"]
        )
    except (ValueError, KeyError, TypeError) as error:
        raise StoreError(
            f"{names.MANIFEST_FILE} of study {study_id} is damaged ({error}); close the study again"
        ) from None


def load_environment(store: Store, variants: Sequence[VariantValues]) -> dict[str, Any]:
    """That of the first repeat that succeeded, the baseline's where there is one.

    Raises:
        StoreError: the store cannot be read.
    """
    ordered = sorted(variants, key=lambda variant: variant.role)
    repeats = (r for v in ordered for r in v.repeats if r.status is Status.OK and r.run_id)
    first = next(repeats, None)
    data = load_file(store, str(first.run_id), names.ENVIRONMENT_FILE) if first else None
    environment = json.loads(data) if data else {}
    return environment if isinstance(environment, dict) else {}


def send_report(store: Store, study_id: str, pages: Mapping[str, str]) -> None:
    """Attach the report's pages by their artifact paths, in place of earlier ones.

    Raises:
        StoreError: the store refuses.
    """
    with refusals(store.tracking_uri), tempfile.TemporaryDirectory(prefix="trainperf-") as folder:
        for path, text in pages.items():
            (Path(folder) / path).write_bytes(text.encode())
        store.client.log_artifacts(study_id, folder)
