"""A closed study against what is in the store now: files, values, tags."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from trainperf_mlflow.api.gathering import Gathered, Links
from trainperf_mlflow.errors import EvidenceError
from trainperf_mlflow.evidence.chain import CLOSING, Chain, read_chain
from trainperf_mlflow.evidence.closed import closed_as
from trainperf_mlflow.evidence.manifest import differences, refuse
from trainperf_mlflow.messages import shown
from trainperf_mlflow.results.decision import Closed, Decision


def verified(found: Gathered, files: Mapping[str, bytes]) -> Chain:
    """A closed study's files, after all that they stand on was hashed again.

    Raises:
        EvidenceError: a file, a value or a tag is missing or was changed; it is named.
        StoreError: the store cannot be read.
    """
    chain = read_chain(found.main.study_id, files, found.recorded)
    if chain.report.run_label != found.closed:
        raise EvidenceError(
            f"study {found.main.study_id} is tagged as closed as {shown(found.closed)}, but "
            f"{CLOSING} says {shown(chain.report.run_label)}"
        )
    now = found.manifest(chain.manifest.run_label, Links.of(chain.manifest.linked))
    refuse(differences(chain.manifest, now))
    closed = closed_as(chain.report, found.closable().exported.comparison)
    refuse(list(_other_tags(found, closed)))
    return chain


def _other_tags(found: Gathered, closed: Closed) -> Iterator[str]:
    """The tags, which are all that lists read, where they say another decision than the close."""
    from trainperf_mlflow.tracking import names

    yield from _against("", found.main.tags, closed)
    for run in found.main.runs:
        tags = dict(run.data.tags)
        decided = closed.candidates.get(tags.get(names.VARIANT, ""))
        if tags.get(names.KIND) == "variant" and decided is not None:
            yield from _against(f" of {tags[names.VARIANT]}", tags, decided)


def _against(whose: str, tags: Mapping[str, str], decision: Decision) -> Iterator[str]:
    from trainperf_mlflow.tracking.writing import decision_tags

    for key, value in decision_tags(decision).items():
        if value is not None and tags.get(key) != value:
            found = shown(tags.get(key))
            yield f"the tag {key}{whose} is {found}, but {CLOSING} says {shown(value)}"
