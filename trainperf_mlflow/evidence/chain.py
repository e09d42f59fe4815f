"""Manifest, closing report and handoff of a study as one chain: whole, begun, broken, or none."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

from trainperf_mlflow.errors import EvidenceError
from trainperf_mlflow.evidence.closing_report import ClosingReport
from trainperf_mlflow.evidence.handoff import Handoff
from trainperf_mlflow.evidence.manifest import Manifest, read_record, refuse

MANIFEST = "evidence/manifest.json"
CLOSING = "evidence/closing.json"
HANDOFF = "handoff/handoff.json"
FILES = (MANIFEST, CLOSING, HANDOFF)  # in the order in which they are written


@dataclass(frozen=True)
class Chain:
    """The three files of a close, read and checked against each other."""

    manifest: Manifest
    report: ClosingReport
    handoff: Handoff


def broken(study_id: str, files: Mapping[str, bytes], *, closed: bool) -> str | None:
    """What is wrong with which files of a close there are; None where all or none are there.

    Args:
        closed: whether the study is tagged as closed, which happens last of all.
    """
    missing = [path for path in FILES if path not in files]
    there = [path for path in FILES if path in files]
    if not there and not closed:
        return None
    if missing:
        found = f"has {' and '.join(there)}" if there else "is tagged as closed"
        return f"broken chain: study {study_id} {found}, but {' and '.join(missing)} is missing"
    if not closed:
        return (
            f"broken chain: study {study_id} has all files of a close, but is not tagged as "
            "closed: the close was interrupted"
        )
    return None


def read_chain(study_id: str, files: Mapping[str, bytes], recorded: Mapping[str, str]) -> Chain:
    """The chain of a closed study.

    Args:
        files: the three files' bytes, by their paths.
        recorded: the SHA-256 by path that the study was tagged with when it was closed.

    Raises:
        EvidenceError: a file is missing, was changed, does not keep its schema, or does not
            belong to the others; it is named.
    """
    problem = broken(study_id, files, closed=True)
    if problem is not None:
        raise EvidenceError(f"{problem}; get it back from where it went, or measure a new study")
    digests = {path: hashlib.sha256(data).hexdigest() for path, data in files.items()}
    refuse(
        [
            f"{path} of study {study_id} was changed: its SHA-256 is {digests[path]}, recorded "
            f"at the close was {recorded.get(path, 'none')}"
            for path in FILES
            if digests[path] != recorded.get(path)
        ]
    )
    chain = Chain(
        manifest=read_record(Manifest, files[MANIFEST], MANIFEST),
        report=read_record(ClosingReport, files[CLOSING], CLOSING),
        handoff=read_record(Handoff, files[HANDOFF], HANDOFF),
    )
    sources = chain.handoff.source_artifacts
    wanted = [
        (f"{CLOSING}: validation.manifest_sha256", chain.report.validation.manifest_sha256),
        (f"{HANDOFF}: source_artifacts.manifest", _digest(sources.get("manifest"))),
    ]
    refuse(
        [f"{what} is not that of {MANIFEST}" for what, d in wanted if d != digests[MANIFEST]]
        + [
            f"{HANDOFF}: source_artifacts.closure is not that of {CLOSING}"
            for digest in [_digest(sources.get("closure"))]
            if digest != digests[CLOSING]
        ]
        + [
            f"{path} is of study {found}, not of {study_id}"
            for path, found in (
                (MANIFEST, chain.manifest.study_id),
                (CLOSING, chain.report.study_id),
                (HANDOFF, chain.handoff.study_id),
            )
            if found != study_id
        ]
    )
    return chain


def _digest(entry: object) -> str | None:
    return getattr(entry, "sha256", None)
