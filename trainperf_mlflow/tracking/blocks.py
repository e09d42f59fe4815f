"""The blocks of a study as a comparison reads them: one small file, so that whoever decides again
comes to the same verdict without a download for each repeat."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from pathlib import Path

from mlflow.exceptions import MlflowException

from trainperf_mlflow.errors import StoreError
from trainperf_mlflow.results.values import BlockValues, RepeatValues, StudyBlocks, VariantValues
from trainperf_mlflow.tracking.store import Store, reason, refusals

BLOCKS_FILE = "blocks.json"

Key = tuple[str, int]  # a repeat: variant and index


def send_blocks(store: Store, study_id: str, variants: Iterable[VariantValues]) -> None:
    """Write the blocks of all repeats; a study without any gets no file."""
    blocks = {
        variant.name: {repeat.index: repeat.blocks for repeat in variant.repeats if repeat.blocks}
        for variant in variants
    }
    if any(blocks.values()):
        text = StudyBlocks(variants=blocks).to_json(indent=None)
        store.client.log_text(study_id, text, BLOCKS_FILE)


def load_blocks(store: Store, study_id: str) -> dict[Key, tuple[BlockValues, ...]]:
    """The blocks of each repeat; empty where the study has none.

    Raises:
        StoreError: the store cannot be read, or the file is damaged.
    """
    with refusals(store.tracking_uri):
        if BLOCKS_FILE not in {item.path for item in store.client.list_artifacts(study_id)}:
            return {}
    with tempfile.TemporaryDirectory(prefix="trainperf-") as folder:
        try:
            path = store.client.download_artifacts(study_id, BLOCKS_FILE, folder)
            known = StudyBlocks.from_json(Path(path).read_bytes())
        except (MlflowException, OSError, ValueError) as error:
            raise StoreError(
                f"study {study_id} has no readable {BLOCKS_FILE} "
                f"({reason(error, store.tracking_uri)[:200]}), without which its interval is lost; "
                "try again, or measure it again"
            ) from None
    return {
        (name, index): blocks
        for name, repeats in known.variants.items()
        for index, blocks in repeats.items()
    }


def with_blocks(
    repeat: RepeatValues, variant: str, blocks: dict[Key, tuple[BlockValues, ...]]
) -> RepeatValues:
    return repeat.model_copy(update={"blocks": blocks.get((variant, repeat.index), ())})
