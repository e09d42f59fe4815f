"""The JSON schemas of what a close writes, published in ``evidence/schemas`` for other programs.

They are generated from the models: ``python -m trainperf_mlflow.evidence.published`` writes them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from trainperf_mlflow.evidence.closing_report import ClosingReport
from trainperf_mlflow.evidence.handoff import Handoff
from trainperf_mlflow.evidence.manifest import Manifest
from trainperf_mlflow.results.record import Record

FOLDER = Path(__file__).parent / "schemas"
MODELS: Mapping[str, type[Record]] = MappingProxyType(
    {"manifest": Manifest, "closing": ClosingReport, "handoff": Handoff}
)


def schema_text(name: str) -> str:
    """The schema of manifest, closing or handoff, as its file holds it."""
    schema = MODELS[name].model_json_schema(mode="serialization")
    dialect = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    return json.dumps({**dialect, **schema}, indent=2, ensure_ascii=False) + "\n"


def write_schemas(folder: Path = FOLDER) -> None:
    folder.mkdir(exist_ok=True)
    for name in MODELS:
        (folder / f"{name}.json").write_text(schema_text(name), "utf-8")


if __name__ == "__main__":
    write_schemas()
