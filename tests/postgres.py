"""A PostgreSQL server of our own for the tests that need a real one."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import pytest

PASSWORD = "p@ss/word"  # noqa: S105 - needs quoting in a URI, on purpose
QUOTED_PASSWORD = "p%40ss%2Fword"  # noqa: S105


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@contextmanager
def postgres_uri() -> Iterator[str]:
    """The URI of an empty database on a fresh server that asks for a password.

    Skips the test where the server's programs are missing, and fails it in CI.
    """
    programs = _programs()
    with tempfile.TemporaryDirectory(prefix="trainperf-pg-") as folder:
        # The server refuses to run as root: another account owns the folder.
        user = _account()
        if user:
            os.chown(folder, user["user"], user["group"])
        data, port = Path(folder) / "data", free_port()
        secret = Path(folder) / "secret"
        secret.write_text(PASSWORD)
        secret.chmod(0o644)

        def run(program: str, *arguments: str) -> None:
            subprocess.run(
                [programs / program, *arguments],
                check=True,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                **user,
            )

        run(
            "initdb",
            *("-D", str(data), "-U", "tester", "-A", "scram-sha-256"),
            *("--pwfile", str(secret), "--no-sync", "-E", "UTF8"),
        )
        options = f"-h 127.0.0.1 -p {port} -k {folder} -c fsync=off"
        run("pg_ctl", "-D", str(data), "-w", "-l", f"{folder}/log", "-o", options, "start")
        try:
            yield f"postgresql://tester:{QUOTED_PASSWORD}@127.0.0.1:{port}/postgres"
        finally:
            run("pg_ctl", "-D", str(data), "-m", "immediate", "-w", "stop")


def _programs() -> Path:
    on_path = shutil.which("initdb")
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if not on_path and not found:
        _missing("no PostgreSQL server here (initdb is neither on PATH nor installed)")
    return (Path(on_path).resolve() if on_path else found[-1]).parent


def _account() -> dict[str, Any]:
    if os.geteuid() != 0:
        return {}
    accounts = [entry for entry in pwd.getpwall() if entry.pw_name in ("postgres", "nobody")]
    if not accounts:
        _missing("PostgreSQL does not run as root, and there is no other account")
    chosen = max(accounts, key=lambda entry: entry.pw_name)
    return {"user": chosen.pw_uid, "group": chosen.pw_gid, "extra_groups": []}


def _missing(reason: str) -> NoReturn:
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)
