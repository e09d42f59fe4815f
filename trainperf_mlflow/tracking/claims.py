"""One close of a study at a time, on any store: whoever closes claims the study by a tag first.

MLflow has no compare-and-set, so a tag that all write would be won by the last one. Each claim is
a tag of its own instead: write it, then read all, and go on only when alone. No two can both be:
whichever reads last sees the other's. Where both do, the later one, by time and name, withdraws
and writes again only once it sees no other; the earlier one stays and waits, so that never both
give up.

A claim outlives a close that was killed. That of a process of this machine which has ended is
void at once, any other after ten minutes; on a closed study it tells that pages and notes may
still show what was before.
"""

from __future__ import annotations

import json
import os
import socket
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import suppress

from trainperf_mlflow.errors import EvidenceError, StoreError
from trainperf_mlflow.results.record import Record
from trainperf_mlflow.tracking import names
from trainperf_mlflow.tracking.closing import StudyRuns
from trainperf_mlflow.tracking.store import Store, refusals

_POLLS = 25
_WAIT_S = 0.2  # between two
_ABANDONED_S = 600.0
_held: set[str] = set()  # by this process


class _Claimant(Record):
    host: str
    pid: int
    at: float  # Unix seconds


class Claim:
    """A study that this command alone closes, once ``claim`` has returned it."""

    def __init__(self, study: StudyRuns) -> None:
        self._store, self._study_id = study.store, study.study_id
        self.at = 0.0
        self.key = ""  # of the tag, while it is written

    def write(self) -> None:
        """Let others see it.

        Raises:
            StoreError: the store fails.
        """
        mine = _Claimant(host=socket.gethostname(), pid=os.getpid(), at=time.time())
        self.at, self.key = mine.at, f"{names.CLAIM_PREFIX}{uuid.uuid4().hex}"
        _held.add(self.key)
        with refusals(self._store.tracking_uri):
            self._store.client.set_tag(self._study_id, self.key, mine.to_json(indent=None))

    def release(self) -> None:
        """Let others close; a store that does not answer leaves the claim to become void."""
        if self.key:
            _held.discard(self.key)
            drop_claims(self._store, self._study_id, (self.key,))
            self.key = ""


def claim(study: StudyRuns) -> Claim:
    """Claim a study that is open.

    Raises:
        EvidenceError: another command is closing it, or has just closed it.
        StoreError: the store fails.
    """
    mine = Claim(study)
    try:
        _wait_until_alone(study, mine)
    except BaseException:
        mine.release()
        raise
    return mine


def _wait_until_alone(study: StudyRuns, mine: Claim) -> None:
    store, study_id = study.store, study.study_id
    who = ""
    for _ in range(_POLLS):
        with refusals(store.tracking_uri):
            tags = store.client.get_run(study_id).data.tags
        if names.CLOSED in tags:
            raise EvidenceError(
                f"study {study_id} was closed as {tags[names.CLOSED]!r} by another command just "
                "now, and its evidence is final; 'trainperf close --check' verifies it"
            )
        others = {key: other for key, other in _claimants(tags) if key != mine.key}
        living = [(other.at, key) for key, other in others.items() if _lives(key, other)]
        if living:
            first = min(living)
            who = f" (process {others[first[1]].pid} on {others[first[1]].host})"
            if mine.key and first < (mine.at, mine.key):
                mine.release()
            time.sleep(_WAIT_S)
        elif mine.key in tags:
            drop_claims(store, study_id, others)
            return
        else:
            mine.write()
    raise EvidenceError(
        f"study {study_id} is being closed by another command{who}; wait for it, then look at "
        "the study"
    )


def claims_on(tags: Mapping[str, str]) -> tuple[str, ...]:
    """The claims on a study, void or not, by their tags."""
    return tuple(key for key in tags if key.startswith(names.CLAIM_PREFIX))


def drop_claims(store: Store, study_id: str, keys: Mapping[str, object] | tuple[str, ...]) -> None:
    """Remove claims; one that is gone, or a store that fails, is no error."""
    for key in keys:
        with suppress(StoreError), refusals(store.tracking_uri):
            store.client.delete_tag(study_id, key)


def _claimants(tags: Mapping[str, str]) -> Iterator[tuple[str, _Claimant]]:
    for key in claims_on(tags):
        try:
            yield key, _Claimant.model_validate(json.loads(tags[key]))
        except ValueError:
            yield key, _Claimant(host="", pid=0, at=0.0)  # not ours: void


def _lives(key: str, claimant: _Claimant) -> bool:
    if time.time() - claimant.at > _ABANDONED_S:
        return False
    if claimant.host != socket.gethostname():
        return True
    if claimant.pid == os.getpid():
        return key in _held
    try:
        os.kill(claimant.pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # it is another user's
        return True
    return True
