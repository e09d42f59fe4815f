"""Pictures go to a run whole folders at a time: a call each would cost a round trip each."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

from trainperf_mlflow.tracking.store import Store, refusals


def send_pictures(store: Store, run_id: str, pictures: Mapping[str, bytes]) -> None:
    """Attach pictures by their artifact paths, in place of earlier ones of the same path.

    Raises:
        StoreError: the store refuses.
    """
    if not pictures:
        return
    with tempfile.TemporaryDirectory(prefix="trainperf-") as folder:
        write_pictures(Path(folder), pictures)
        with refusals(store.tracking_uri):
            store.client.log_artifacts(run_id, folder)


def write_pictures(folder: Path, pictures: Mapping[str, bytes]) -> None:
    for name, data in pictures.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)


def read_pictures(folder: Path) -> dict[str, bytes]:
    """What ``write_pictures`` has left in a folder."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.glob("plots/*.png"))
    }
