"""The tests' own servers."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path

from warm_servers import Mother


def sockets(pid: int) -> set[str]:
    links = set()
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        try:
            links.add(str(fd.readlink()))
        except OSError:  # closed meanwhile
            continue
    return {link for link in links if link.startswith("socket:")}


def test_a_server_does_not_hold_the_mothers_connection_open(mother: Mother, tmp_path: Path) -> None:
    """Or whoever asks a dead mother for another server would wait for ever."""
    ours, theirs = socket.socketpair()
    with ours, (tmp_path / "log").open("wb") as log:
        with theirs:
            server = mother.fork(theirs.fileno(), log.fileno(), dict(os.environ))
        deadline = time.monotonic() + 60
        while sockets(server.pid) & sockets(mother.pid):
            assert time.monotonic() < deadline, "the server holds it"
            time.sleep(0.01)
        assert server.poll() is None
    server.wait(60)
