"""A real tracking server that a test can kill in the middle and start again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path


class TrackingServer:
    """``mlflow server`` on sqlite in a folder, at a port that stays the same."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder, self.port = folder, port
        self.uri = f"http://127.0.0.1:{port}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [sys.executable, "-m", "mlflow", "server", "--workers", "1"]
        command += ["--host", "127.0.0.1", "--port", str(self.port)]
        command += ["--backend-store-uri", f"sqlite:///{self.folder}/mlflow.db"]
        command += ["--artifacts-destination", str(self.folder / "artifacts")]
        with (self.folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                command, stdout=log, stderr=log, cwd=self.folder, start_new_session=True
            )
        for _ in range(600):
            if self._process.poll() is not None:
                break
            try:
                urllib.request.urlopen(f"{self.uri}/health", timeout=5).close()  # noqa: S310
            except OSError:
                time.sleep(0.1)
            else:
                return
        raise RuntimeError((self.folder / "server.log").read_text())

    def kill(self) -> None:
        """Gone at once, with its workers."""
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None

    def __enter__(self) -> TrackingServer:
        self.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.kill()
