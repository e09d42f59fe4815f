"""What a person sees of a study in MLflow's pages: a real browser on a real server.

The server is that of ``trainperf ui``, on sqlite and on PostgreSQL; what no store has a part
in is seen on sqlite alone. From the page of all studies everything is two clicks away. A
variable, see ``browser.SCREENSHOTS``, names a folder for pictures of what was seen.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
from browser import Visit, chromium, visit
from command import COMMAND, environment
from made_traces import one_step, write_trace
from playwright.sync_api import Browser, Page, expect
from postgres import free_port, postgres_uri
from recorded_studies import a_repeat, a_store, a_study

from trainperf_mlflow.api.annotating import annotate, note_of
from trainperf_mlflow.api.pages import attach_report
from trainperf_mlflow.api.picturing import measured_pictures
from trainperf_mlflow.decisions.study import decide_study
from trainperf_mlflow.results.comparison import Comparison
from trainperf_mlflow.results.repeats import Block, Repeat
from trainperf_mlflow.results.study import Variant
from trainperf_mlflow.tracking.recorder import Recorder
from trainperf_mlflow.tracking.store import Store, open_store
from trainperf_mlflow.tracking.views import VIEWS

HOSTILE = "<img src=x onerror=alert(1)> \"'`|&amp; \u202eאבג 🚀 " + "x" * 250
CHANGES = {"bf16": ("precision", 0.8, 100.0), "checkpoint": ("checkpoint", 1.3, 60.0)}
REPEATS = 3
sqlite_only = pytest.mark.parametrize("shown", ["sqlite"], indirect=True)


@dataclass(frozen=True)
class Shown:
    """A store with two studies, and the MLflow that shows it."""

    kind: str  # sqlite or postgresql
    url: str  # of all studies
    address: str
    comparison: Comparison


@pytest.fixture(scope="module")
def pictures() -> dict[str, bytes]:
    """Drawn once: those of the same study in another store are the same."""
    return {}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def shown(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    browser: Browser,
    pictures: dict[str, bytes],
) -> Iterator[Shown]:
    # A short path: PostgreSQL keeps 200 characters of an artifact's.
    folder = tmp_path_factory.mktemp("ui")
    with ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.chdir(folder)
        for name in list(os.environ):
            if name.startswith("MLFLOW_") or name == "TRAINPERF_HOME":
                patch.delenv(name)
        if request.param == "sqlite":
            store = a_store(folder)
        else:
            store = open_store(stack.enter_context(postgres_uri()))
        _record(store, HOSTILE, folder, None)
        comparison = _record(store, "does bf16 pay", folder, pictures)
        with _ui(store, folder) as url:
            address = url.partition("/#")[0]
            yield Shown(request.param, url, address, comparison)


class _ui:  # noqa: N801 - used like a function
    """``trainperf ui`` as a user starts and ends it."""

    def __init__(self, store: Store, folder: Path) -> None:
        self._port = free_port()
        self._process = subprocess.Popen(
            [*COMMAND, "ui", "--port", str(self._port), "--format", "json"],
            cwd=folder,
            env=environment(MLFLOW_TRACKING_URI=store.tracking_uri),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> str:
        assert self._process.stdout is not None
        told = self._process.stdout.readline()
        if not told:
            raise RuntimeError(self._process.communicate()[1])
        return str(json.loads(told)["url"])

    def __exit__(self, *exception: object) -> None:
        self._process.send_signal(signal.SIGINT)
        output, errors = self._process.communicate(timeout=60)
        assert self._process.returncode == 130
        assert output == ""
        assert "Traceback" not in errors
        with socket.socket() as client:  # nobody is left behind the port
            assert client.connect_ex(("127.0.0.1", self._port)) != 0


def _record(store: Store, name: str, folder: Path, pictures: dict[str, bytes] | None) -> Comparison:
    """A study of three variants and three rounds as ``trainperf measure`` would record it.

    Args:
        pictures: the study's, drawn where there are none yet; None for a study without.
    """
    hostile = name == HOSTILE
    baseline = {"model": "tiny", "precision": "fp32", "checkpoint": False}
    names = {change: HOSTILE if hostile and change == "bf16" else change for change in CHANGES}
    variants = (
        Variant(name="baseline", role="baseline", config=baseline),
        *(
            Variant(
                name=names[change],
                role="candidate",
                config={**baseline, key: change},
                changed={key: change},
                changed_variable=key,
            )
            for change, (key, *_) in CHANGES.items()
        ),
    )
    asked = a_study(
        name, variants=variants, goal="step_time", policy="goal", created_at=time.time()
    )
    recorder = Recorder.start(store, asked)
    for index in range(REPEATS):
        for variant in variants:
            change = next((c for c, given in names.items() if given == variant.name), None)
            recorder.record_repeat(_repeat(recorder.study_id, variant.name, change, index))
    values = recorder.values()
    comparison = decide_study(recorder.study, values)
    complaints: list[str] = []
    if pictures == {}:
        pictures |= measured_pictures(
            recorder.study, values, comparison, recorder.repeats, complaints.append
        )
    assert recorder.finish_study(comparison, note_of(store, comparison), pictures or {})
    attach_report(store, comparison, complaints.append, pictures)
    assert complaints == []
    trace = write_trace(folder / "trace.json.gz", one_step())
    store.client.log_artifact(recorder.variant_runs["baseline"], str(trace), "profile")
    annotate(store, comparison)
    return comparison


def _repeat(study_id: str, variant: str, change: str | None, index: int) -> Repeat:
    _, factor, memory = CHANGES[change] if change else ("", 1.0, 100.0)
    began = time.time()
    step_ms = [50.0 * factor * (1 + 0.01 * ((7 * index + 3 * step) % 5)) for step in range(20)]
    blocks = tuple(
        Block(
            index=number,
            started_at=began + number,
            wall_ms=sum(part),
            step_ms=tuple(part),
            losses=tuple(3.0 - 0.05 * (number * 5 + step) for step in range(len(part))),
        )
        for number, part in enumerate(step_ms[at : at + 5] for at in range(0, 20, 5))
    )
    return a_repeat(
        study_id,
        variant,
        index,
        blocks=blocks,
        started_at=began,
        ended_at=began + 4,
        peak_mem_mb=memory,
        loss=2.05,
        eval_loss=2.4,
        quality_checked=True,
    )


# --- what is done and seen ---------------------------------------------------------------------


@pytest.fixture(scope="module")
def visitor(browser: Browser, shown: Shown) -> Iterator[Visit]:
    """One visitor for all tests: MLflow's program is loaded once."""
    with visit(browser, shown.address, width=1600, height=1000) as found:
        # MLflow greets whoever comes first with a panel that covers a quarter of the page.
        found.page.context.add_init_script(
            "try { localStorage['mlflow.assistant.fab.autoOpenedOnFirstLoad_v1'] = 'true';"
            "localStorage['mlflow.assistant.panelOpen_v1'] = 'false' } catch { /* a preview */ }"
        )
        yield found


@pytest.fixture
def studies(visitor: Visit, shown: Shown) -> Page:
    """The page of all studies, where each test begins."""
    for page in visitor.page.context.pages[1:]:
        page.close()
    visitor.page.goto(shown.url)
    expect(visitor.page.get_by_role("link", name="does bf16 pay")).to_be_visible()
    return visitor.page


def expect_in_row(page: Page, name: str, text: str) -> None:
    # A run's name stands in a part of the table that does not scroll, its cells in another.
    pinned = page.get_by_role("row").filter(has=page.get_by_role("link", name=name)).first
    index = pinned.get_attribute("row-index")
    cells = page.locator(f'[role=row][row-index="{index}"]').filter(has_text=text)
    expect(cells.first).to_be_visible()


def expect_picture(page: Page) -> None:
    page.wait_for_function(
        "[...document.images].some(i => i.naturalWidth > 1000 && i.getClientRects().length)"
    )


def study(studies: Page, name: str = "does bf16 pay") -> Page:
    """One click."""
    studies.get_by_role("link", name=name).first.click()
    expect(studies.get_by_role("tab", name="Artifacts")).to_be_visible()
    return studies


def follow(page: Page, link: str) -> Page:
    """One click on a link of the note, which opens a tab."""
    with page.context.expect_page() as opened:
        page.get_by_role("link", name=link, exact=True).first.click()
    return opened.value


def look(visitor: Visit, shown: Shown, page: Page, name: str) -> None:
    """No error is on the page, and nothing was asked of another host."""
    visitor.picture(f"{shown.kind}-{name}", page)
    body = page.locator("body").inner_text()
    for words in ("Error loading", "Something went wrong", "Page Not Found", "Failed to"):
        assert words not in body
    assert visitor.outside == []
    assert visitor.errors == []
    assert visitor.dialogs == []


def test_the_first_page_tells_what_was_decided_about_each_study(
    studies: Page, visitor: Visit, shown: Shown
) -> None:
    for name in ("does bf16 pay", "<img src=x onerror=alert(1)>"):
        for text in ("accept", "confirmed"):
            expect_in_row(studies, name, text)
    delta = shown.comparison.candidates[0].delta
    expect_in_row(studies, "does bf16 pay", f"{delta['speedup']:.2f}")
    studies.get_by_test_id("saved-views-trigger").click()
    for view in VIEWS:
        expect(studies.get_by_role("menu").get_by_text(view.title)).to_be_visible()
    look(visitor, shown, studies, "1-studies")
    studies.get_by_role("menu").get_by_text("Variants of a study").click()
    for name in ("baseline", "candidate bf16", "candidate checkpoint"):
        expect(studies.get_by_role("link", name=name, exact=True).first).to_be_visible()
    expect_in_row(studies, "candidate checkpoint", "reject")
    look(visitor, shown, studies, "2-variants")


def test_the_decision_is_one_click_away_and_the_table_a_second_one(
    studies: Page, visitor: Visit, shown: Shown
) -> None:
    page = study(studies)
    expect(page.get_by_text("accept: bf16")).to_be_visible()
    expect(page.get_by_text("keep_change").first).to_be_visible()
    expect(page.get_by_role("link", name="candidate checkpoint")).to_be_visible()
    look(visitor, shown, page, "3-study")
    page.get_by_text("Show more", exact=True).click()
    table = page.get_by_role("table").filter(has_text="step time ms").first
    metrics = shown.comparison.candidates[0].metrics
    expect(table.get_by_role("row").filter(has_text="bf16")).to_contain_text(
        f"{metrics['step_time_ms']:.2f} (saves"
    )
    look(visitor, shown, page, "4-table")


def test_a_picture_is_two_clicks_away(studies: Page, visitor: Visit, shown: Shown) -> None:
    page = follow(study(studies), "pictures")
    expect_picture(page)
    for name in ("loss.png", "steps.png", "ratios.png", "time_memory.png"):
        expect(page.get_by_role("listitem").filter(has_text=name).last).to_be_visible()
    look(visitor, shown, page, "5-picture")


def test_a_trace_is_two_clicks_away_and_can_be_downloaded(
    studies: Page, visitor: Visit, shown: Shown
) -> None:
    page = follow(study(studies), "trace")
    expect(page.get_by_text("profile/trace.json.gz").first).to_be_visible()
    look(visitor, shown, page, "6-trace")


def test_the_report_is_two_clicks_away(studies: Page, visitor: Visit, shown: Shown) -> None:
    page = follow(study(studies), "report")
    shown_report = page.frame_locator("iframe")
    expect(shown_report.get_by_role("heading", level=1)).to_be_visible()
    expect(shown_report.locator("body")).to_contain_text("bf16")
    assert shown_report.locator("img").count() + shown_report.locator("svg").count() > 0
    look(visitor, shown, page, "7-report")


def test_the_step_times_of_all_repeats_lie_over_each_other_two_clicks_away(
    studies: Page, visitor: Visit, shown: Shown
) -> None:
    page = follow(study(studies), "step times of all repeats")
    rows = page.get_by_role("row")
    for name in ("baseline #1", "bf16 #1", "bf16 #3", "checkpoint #2"):
        expect(rows.filter(has_text=name)).to_be_visible()
    expect(rows.filter(has_text="bf16 #1")).to_contain_text("(step=20)")
    expect(page.locator(".plotly svg .trace").first).to_be_visible()
    look(visitor, shown, page, "8-curves")


def test_the_variants_stand_side_by_side_two_clicks_away(
    studies: Page, visitor: Visit, shown: Shown
) -> None:
    page = follow(study(studies), "variants side by side")
    expect(page.get_by_text("Comparing 3 Runs from 1 Experiment").first).to_be_visible()
    expect(page.get_by_text("candidate bf16").first).to_be_visible()
    expect(page.locator(".js-plotly-plot svg").first).to_be_visible()
    look(visitor, shown, page, "9-compare")


@sqlite_only
def test_names_of_a_hostile_author_are_text_on_every_page(
    studies: Page, visitor: Visit, shown: Shown
) -> None:
    page = study(studies, "<img src=x onerror=alert(1)>")
    expect(page.get_by_text("accept: <img src=x onerror=alert(1)>")).to_be_visible()
    look(visitor, shown, page, "10-hostile-study")
    # No character of the name turns what stands beside it.
    heading = page.get_by_text("<img src=x onerror=alert(1)>").first.inner_text()
    assert "\\u202e" in heading
    assert "\u202e" not in heading
    report = follow(page, "report")
    expect(report.frame_locator("iframe").locator("body")).to_contain_text("onerror=alert(1)")
    look(visitor, shown, report, "11-hostile-report")
    # No name became an element: the only pictures are MLflow's and ours.
    for seen in (page, *report.frames):
        assert seen.locator("img[src='x']").count() == 0


@sqlite_only
def test_an_artifact_in_json_is_previewed(studies: Page, visitor: Visit, shown: Shown) -> None:
    page = study(studies)
    page.get_by_role("tab", name="Artifacts").click()
    page.get_by_text("comparison.json", exact=True).click()
    expect(page.get_by_text('"trainperf-comparison/v1"')).to_be_visible()
    look(visitor, shown, page, "12-json")
