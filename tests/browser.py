"""A real Chromium that sees one server only, and what a person would see in it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import (
    Browser,
    ConsoleMessage,
    Dialog,
    Page,
    Route,
    expect,
    sync_playwright,
)

# Where to keep pictures of what the tests saw; unset, none are kept. Read now: no test
# sees the toolkit's own variables.
SCREENSHOTS = os.environ.get("TRAINPERF_SCREENSHOTS")
PATIENCE_MS = 40_000


@contextmanager
def chromium() -> Iterator[Browser]:
    """The system's Chromium without a window.

    Skips the test where there is none, and fails it in CI.
    """
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        _missing("no Chromium here (the program chromium is not on PATH)")
    # Its sandbox refuses to run as root; shared memory is small in containers.
    sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
    expect.set_options(timeout=PATIENCE_MS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=program,
            args=[
                *sandbox,
                "--disable-dev-shm-usage",
                "--disable-gpu",
                "--force-color-profile=srgb",
            ],
        )
        try:
            yield browser
        finally:
            browser.close()


class Visit:
    """One fresh visitor: a page, and what it must not do."""

    def __init__(self, page: Page, host: str) -> None:
        self.page, self._host = page, host
        self.outside: list[str] = []  # requests to other hosts, all of them blocked
        self.errors: list[str] = []  # exceptions that no script caught
        self.console: list[str] = []  # what pages complained about
        self.dialogs: list[str] = []  # alerts, as of a script in a name
        page.context.set_default_timeout(PATIENCE_MS)
        page.context.route("**/*", self._only_the_server)
        page.context.on("page", self._listen)
        self._listen(page)

    def _listen(self, page: Page) -> None:
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("console", self._heard)
        page.on("dialog", self._dismiss)

    def _dismiss(self, dialog: Dialog) -> None:
        self.dialogs.append(dialog.message)
        dialog.dismiss()

    def _only_the_server(self, route: Route) -> None:
        parts = urlsplit(route.request.url)
        if parts.scheme in ("http", "https", "ws", "wss") and parts.netloc != self._host:
            self.outside.append(route.request.url)
            route.abort()
        else:
            route.continue_()

    def _heard(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self.console.append(message.text)

    def picture(self, name: str, page: Page | None = None) -> None:
        """Keep what is seen now, where somebody wants to look at it."""
        if SCREENSHOTS:
            folder = Path(SCREENSHOTS)
            folder.mkdir(parents=True, exist_ok=True)
            (page or self.page).screenshot(path=folder / f"{name}.png")


@contextmanager
def visit(
    browser: Browser, server: str, *, width: int = 1280, height: int = 800, dark: bool = False
) -> Iterator[Visit]:
    """A visitor without cookies or history; no other host was asked for anything."""
    context = browser.new_context(
        viewport={"width": width, "height": height},
        color_scheme="dark" if dark else "light",
        locale="en-GB",
    )
    try:
        seen = Visit(context.new_page(), urlsplit(server).netloc)
        yield seen
        assert (seen.outside, seen.errors, seen.dialogs) == ([], [], [])
    finally:
        context.close()


def _missing(reason: str) -> NoReturn:
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)
