"""The report as a person sees it, from disk: on a phone, on a desk, in the dark, on paper.

A variable, see ``browser.SCREENSHOTS``, names a folder for pictures of what was seen.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import report_materials as made
from browser import chromium, visit
from made_pictures import repeats
from playwright.sync_api import Browser
from test_report import HOSTILE, html

from trainperf_mlflow.api.picturing import measured_pictures

WIDTHS = (360, 800, 1400)
# WCAG 2.1, 1.4.3, for text of any size.
LEAST_CONTRAST = 4.5

# Every element that holds text of its own, with the contrast of that text against the first
# background below it that is not transparent.
CONTRASTS = """() => {
  const channels = (css) => css.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b]
    .map((c) => c / 255)
    .map((c) => (c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const found = channels(getComputedStyle(at).backgroundColor);
      if (found.length < 4 || found[3] > 0) return found;
    }
    return [255, 255, 255];
  };
  const own = (element) => [...element.childNodes].some(
    (node) => node.nodeType === Node.TEXT_NODE && node.textContent.trim());
  return [...document.querySelectorAll('body *')].filter(own).map((element) => {
    const pair = [light(channels(getComputedStyle(element).color)), light(behind(element))];
    return [(Math.max(...pair) + 0.05) / (Math.min(...pair) + 0.05),
            element.tagName + ' ' + element.textContent.trim().slice(0, 40)];
  });
}"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("report")
    whole = made.whole()
    complaints: list[str] = []
    pictures = measured_pictures(
        whole.study, whole.variants, whole.comparison, repeats(), complaints.append
    )
    assert complaints == []
    hostile = made.bare(("baseline", *HOSTILE[1:]), name=HOSTILE[2], label=HOSTILE[0])
    texts = {
        "whole": html(replace(whole, pictures=pictures)),
        "chinese": html(replace(whole, pictures=pictures), "zh"),
        "hostile": html(hostile),
    }
    for name, text in texts.items():
        (folder / f"{name}.html").write_text(text, "utf-8")
    return {name: folder / f"{name}.html" for name in texts}


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("name", ["whole", "chinese", "hostile"])
def test_the_report_fits_every_width_and_can_be_read(
    browser: Browser, reports: dict[str, Path], name: str, dark: bool
) -> None:
    with visit(browser, "", dark=dark) as seen:
        seen.page.goto(reports[name].as_uri())
        for width in WIDTHS:
            seen.page.set_viewport_size({"width": width, "height": 900})
            wide, there = seen.page.evaluate(
                "[document.documentElement.scrollWidth, document.documentElement.clientWidth]"
            )
            assert wide <= there, f"{name} is {wide} pixels wide on a screen of {width}"
            seen.picture(f"report-{name}-{width}-{'dark' if dark else 'light'}")
        # The pictures are drawn on white, which glares in the dark.
        dimmed = seen.page.evaluate("[...document.images].map((i) => getComputedStyle(i).filter)")
        assert {each != "none" for each in dimmed} <= {dark}
        contrasts = seen.page.evaluate(CONTRASTS)
        assert len(contrasts) > 100
        assert [found for found in contrasts if found[0] < LEAST_CONTRAST] == []
        assert seen.console == []


def test_the_verdict_is_seen_without_scrolling_and_all_pictures_are_drawn(
    browser: Browser, reports: dict[str, Path]
) -> None:
    with visit(browser, "", width=1280, height=800) as seen:
        seen.page.goto(reports["whole"].as_uri())
        box = seen.page.locator(".verdict").bounding_box()
        assert box is not None
        assert box["y"] + box["height"] <= 800
        widths = seen.page.evaluate("[...document.images].map((image) => image.naturalWidth)")
        assert len(widths) == 4
        assert min(widths) > 600


def test_a_phone_shows_each_decision_without_scrolling(
    browser: Browser, reports: dict[str, Path]
) -> None:
    with visit(browser, "", width=390, height=844) as seen:
        for name in ("whole", "chinese"):
            seen.page.goto(reports[name].as_uri())
            ends = seen.page.evaluate(
                "[...document.querySelectorAll('#results tr > :nth-child(2)')]"
                ".map((cell) => cell.getBoundingClientRect().right)"
            )
            assert len(ends) == 4
            assert max(ends) <= 390


def test_it_prints_on_a4_with_what_was_folded(browser: Browser, reports: dict[str, Path]) -> None:
    with visit(browser, "", dark=True) as seen:
        seen.page.goto(reports["whole"].as_uri())
        seen.page.emulate_media(media="print")
        paper = seen.page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert paper == "rgb(255, 255, 255)"
        assert seen.page.evaluate("getComputedStyle(document.images[0]).filter") == "none"
        seen.page.set_viewport_size({"width": 680, "height": 960})  # A4 without its margins
        wide = seen.page.evaluate("document.documentElement.scrollWidth")
        assert wide <= 680
        assert seen.page.locator("details td").first.is_visible()
        assert seen.page.pdf(format="A4", prefer_css_page_size=True).startswith(b"%PDF")
