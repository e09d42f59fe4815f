"""Which studies a study stands on, and which stand on it."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from trainperf_mlflow.api.reading import find
from trainperf_mlflow.results.record import Record

if TYPE_CHECKING:
    from mlflow.entities import Run

MAX_STUDIES = 200


class LineageStudy(Record):
    """A study of the chain, as its run is tagged."""

    study_id: str
    name: str
    kind: str  # study, regression, scope, ...
    decision: str | None
    policy: str | None
    closed: str | None  # the label
    handoff: str | None  # the artifact's path
    # The published report that it was imported from.
    source_file: str | None
    source_sha256: str | None


class LineageLink(Record):
    """One study names another: ``study_id`` stands on ``on``."""

    study_id: str
    # scope_study, pressure_study, regressions, primary_study, adjacent_studies.
    relation: str
    on: str


class Lineage(Record):
    """The chain of studies around one, that one first."""

    study_id: str
    studies: tuple[LineageStudy, ...]
    links: tuple[LineageLink, ...]

    def __str__(self) -> str:
        names = {study.study_id: study.name for study in self.studies}
        lines = [_line(study) for study in self.studies]
        lines += [
            f"{names.get(link.study_id, link.study_id)} -> {link.relation} -> "
            f"{names.get(link.on, link.on)}"
            for link in self.links
        ]
        return "\n".join(lines)


def lineage(
    study: str, *, tracking_uri: str | None = None, experiment: str | None = None
) -> Lineage:
    """The chain of linked studies: scope, pressure, regressions, sources of imports.

    Links are followed in both directions, through at most 200 studies.

    Args:
        study: a run id, a unique prefix of one, or a study's name (the newest of it).

    Raises:
        PlanError: there is no such study.
        StoreError: the store cannot be read.
    """
    from trainperf_mlflow.tracking.closing import get_study, linking_to, links_from

    store, study_id = find(study, tracking_uri, experiment)
    runs: dict[str, Run] = {study_id: get_study(store, study_id)}
    links: dict[tuple[str, str, str], None] = {}
    waiting = deque([study_id])
    while waiting:
        here = waiting.popleft()
        near = linking_to(store, here)
        outward = links_from(runs[here])
        for relation, other in outward:
            links[here, relation, other] = None
        for run in near:
            links |= {
                (str(run.info.run_id), relation, here): None
                for relation, other in links_from(run)
                if other == here
            }
        for run in (*near, *(get_study(store, o) for _, o in outward if o not in runs)):
            other = str(run.info.run_id)
            if other not in runs and len(runs) < MAX_STUDIES:
                runs[other] = run
                waiting.append(other)
    return Lineage(
        study_id=study_id,
        studies=tuple(_study(run) for run in runs.values()),
        links=tuple(LineageLink(study_id=a, relation=r, on=b) for a, r, b in links),
    )


def _study(run: Run) -> LineageStudy:
    from trainperf_mlflow.tracking import names

    tags = run.data.tags
    return LineageStudy(
        study_id=str(run.info.run_id),
        name=str(run.info.run_name),
        kind=tags.get(names.KIND, ""),
        decision=tags.get(names.DECISION),
        policy=tags.get(names.POLICY),
        closed=tags.get(names.CLOSED),
        handoff=tags.get(names.HANDOFF),
        source_file=tags.get(names.SOURCE_FILE),
        source_sha256=tags.get(names.SOURCE_SHA256),
    )


def _line(study: LineageStudy) -> str:
    words = [f"{study.kind} {study.name} ({study.study_id})"]
    if study.decision:
        words.append(f"{study.decision} by {study.policy}")
    if study.closed:
        words.append(f"closed as {study.closed}")
    if study.source_file:
        words.append(f"imported from {study.source_file}")
    return ", ".join(words)
