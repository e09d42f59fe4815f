"""Open MLflow's page on the right store at the right place."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from subprocess import Popen
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from trainperf_mlflow.tracking.store import Store


class Served(NamedTuple):
    """A page that answers."""

    url: str  # the study's page, or that of all studies
    links: dict[str, str]  # more pages of the study
    process: Popen[bytes] | None  # of the MLflow that was started; None: it ran already


@contextmanager
def ui(
    study: str | None = None,
    *,
    port: int | None = None,
    tracking_uri: str | None = None,
    experiment: str | None = None,
) -> Iterator[Served]:
    """MLflow's page of a study, or of all studies, for as long as the context lasts.

    A database is served by an MLflow of our own, which is ended afterwards; where the
    store is a server already, its page is given.

    Args:
        study: a run id, a unique prefix of one, or a study's name; by default all studies.
        port: for the MLflow that is started; by default 5000, or the next that is free.

    Raises:
        PlanError: there is no such study, or the port is taken.
        StoreError: there is no such store, or MLflow does not start.
    """
    from trainperf_mlflow.tracking.links import server_of
    from trainperf_mlflow.tracking.queries import find_study
    from trainperf_mlflow.tracking.serving import served
    from trainperf_mlflow.tracking.store import read_store

    store = read_store(tracking_uri, experiment)
    study_id = None if study is None else find_study(store, study)
    address = server_of(store)
    if address is not None:
        yield _page(store, study_id, address, None)
        return
    with served(store, port) as (address, process):
        yield _page(store, study_id, address, process)


def _page(store: Store, study_id: str | None, address: str, process: Popen[bytes] | None) -> Served:
    from trainperf_mlflow.tracking.links import studies_link, study_links

    if study_id is None:
        return Served(studies_link(store, address), {}, process)
    links = study_links(store, study_id, address)
    links.pop("command", None)
    return Served(links.pop("study"), links, process)
