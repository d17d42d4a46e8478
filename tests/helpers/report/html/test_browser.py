"""The page in a real Chromium: it shows, sorts, filters and answers without a request and without an error.

The browser is the distribution's; ``PERFGATE_TEST_BROWSER`` names another one, and then it has to be there (.ci/run).
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from benchmarks.made_sessions import session_of
from benchmarks.page import BROWSERS, WIDE
from helpers.report.html.page import night_page
from tests.hostile_strings import TEXTS

pytestmark = pytest.mark.slow

_NAMED = "PERFGATE_TEST_BROWSER"
PHONE = {"width": 390, "height": 844}
LEAST_CONTRAST = 4.5

# The smallest contrast of a shown text with what is behind it, and that text (WCAG 2.2, "Contrast (Minimum)").
CONTRAST = """() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgba = (text) => {
    canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = text; canvas.fillRect(0, 0, 1, 1);
    return canvas.getImageData(0, 0, 1, 1).data;
  };
  const light = ([r, g, b]) => {
    const linear = (c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    const [x, y, z] = [r, g, b].map((c) => linear(c / 255));
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const behind = (element) => {
    for (let each = element; each; each = each.parentElement) {
      const found = rgba(getComputedStyle(each).backgroundColor);
      if (found[3] === 255) return found;
    }
    return [255, 255, 255];
  };
  let worst = [21, ""];
  for (const element of document.querySelectorAll("body *:not(script)")) {
    if (![...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim())) continue;
    if (!element.checkVisibility()) continue;
    const style = getComputedStyle(element), drawn = element instanceof SVGElement;
    const [one, other] = [light(rgba(drawn ? style.fill : style.color)), light(behind(element))];
    const contrast = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
    if (contrast < worst[0]) worst = [contrast, element.textContent.trim().slice(0, 60)];
  }
  return worst;
}"""


@dataclass
class Shown:
    """A page in the browser, and what it asked for and complained of."""

    page: Any
    requests: list[str] = field(default_factory=list)
    messages: list[str] = field(default_factory=list)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    named = os.environ.get(_NAMED)
    program = named or next(filter(None, map(shutil.which, BROWSERS)), None)
    if program is None:
        pytest.skip(f"no browser: none of {', '.join(BROWSERS)} is installed (apt-get install chromium)")
    if named is None:
        pytest.importorskip("playwright.sync_api", reason="playwright of requirements/dev.txt is not installed")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # As root, and in a container, Chromium has no sandbox; it opens files of this test alone.
        launched = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield launched
        launched.close()


def opened(browser: Any, file: Path, **options: Any) -> Shown:
    shown = Shown(browser.new_context(**{"viewport": WIDE, **options}).new_page())
    shown.page.on("request", lambda request: shown.requests.append(request.url))
    shown.page.on("console", lambda message: shown.messages.append(message.text))
    shown.page.on("pageerror", lambda error: shown.messages.append(str(error)))
    shown.page.on("dialog", lambda dialog: shown.messages.append(f"dialog: {dialog.message}"))
    shown.page.goto(file.as_uri())
    return shown


def missed_by_axe(page: Any) -> list[tuple[str, str]]:
    """What a keyboard or a screen reader would miss, each with the first element."""
    if os.environ.get(_NAMED) is None:
        pytest.importorskip("axe_playwright_python", reason="axe of requirements/dev.txt is not installed")
    from axe_playwright_python.sync_playwright import Axe

    violations = Axe().run(page).response["violations"]
    return [(each["id"], each["nodes"][0]["html"]) for each in violations]


# A4 with margins of a centimetre, at 96 dots an inch.
PAPER = {"width": 718, "height": 1047}


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path: Path = tmp_path_factory.mktemp("page") / "night.html"
    path.write_text(night_page(session_of(24, 30)), encoding="utf-8")
    return path


@pytest.fixture
def shown(browser: Any, file: Path) -> Iterator[Shown]:
    found = opened(browser, file)
    yield found
    found.page.context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("viewport", [WIDE, PHONE], ids=["wide", "phone"])
def test_nothing_is_asked_for_nothing_fails_and_nothing_runs_out_of_the_side(
    browser: Any, file: Path, viewport: dict[str, int], scheme: str
) -> None:
    found = opened(browser, file, viewport=viewport, color_scheme=scheme)
    assert (found.requests, found.messages) == ([file.as_uri()], [])
    assert found.page.evaluate("document.documentElement.scrollWidth") <= viewport["width"]
    top = found.page.locator("h1").bounding_box()
    assert top["y"] < 100 and found.page.locator(".card").first.bounding_box()["y"] < viewport["height"] / 2
    contrast, text = found.page.evaluate(CONTRAST)
    assert contrast >= LEAST_CONTRAST, text
    found.page.context.close()


@pytest.mark.parametrize("viewport", [WIDE, PHONE], ids=["wide", "phone"])
def test_axe_misses_nothing_for_keyboards_and_screen_readers(
    browser: Any, tmp_path: Path, viewport: dict[str, int]
) -> None:
    # One case of each status, of few nights: axe looks at each element.
    file = tmp_path / "night.html"
    file.write_text(night_page(session_of(12, 5, steps=5)), encoding="utf-8")
    found = opened(browser, file, viewport=viewport)
    assert missed_by_axe(found.page) == []
    found.page.context.close()


def rows_of(page: Any) -> list[str]:
    """The status of each shown row of the table."""
    return [each.get_attribute("data-status") for each in page.locator("#all tbody tr").all() if each.is_visible()]


def rates_of(page: Any) -> list[float]:
    texts = page.locator("#all tbody tr td:nth-child(4)").all_inner_texts()
    return [float(text.split()[0]) for text in texts if text != "-"]


def test_a_heading_sorts_up_then_down_by_pointer_and_keyboard(shown: Shown) -> None:
    page = shown.page
    unsorted, heading = rates_of(page), page.locator("#all th", has_text="tonight")
    heading.get_by_role("button").click()
    assert rates_of(page) == sorted(unsorted) != unsorted and heading.get_attribute("aria-sort") == "ascending"
    heading.get_by_role("button").focus()
    page.keyboard.press("Enter")
    assert rates_of(page) == sorted(unsorted, reverse=True) and heading.get_attribute("aria-sort") == "descending"
    # What has no figure is last both ways.
    assert page.locator("#all tbody tr td:nth-child(4)").last.inner_text() == "-"
    page.locator("#all th", has_text="status").get_by_role("button").click()
    assert rows_of(page)[:3] == ["REGRESSION", "REGRESSION", "SLOWER"] and heading.get_attribute("aria-sort") is None


def test_the_filter_finds_by_words_and_by_status_and_counts(shown: Shown) -> None:
    page = shown.page
    words, counted = page.get_by_role("searchbox"), page.locator("#filter output")
    assert counted.inner_text() == "24 of 24"
    words.fill("dynamic improvement")
    assert rows_of(page) == ["IMPROVEMENT"] and counted.inner_text() == "1 of 24"
    words.fill("")
    page.locator("#filter select").select_option("REGRESSION")
    assert rows_of(page) == ["REGRESSION"] * 2 and counted.inner_text() == "2 of 24"
    words.fill("no such case")
    assert rows_of(page) == [] and counted.inner_text() == "0 of 24"


def test_a_night_tells_its_values_to_the_pointer_and_to_the_arrow_keys(shown: Shown) -> None:
    page = shown.page
    chart, tip = page.locator("#case-1 svg[data-count]"), page.locator("#tip")
    chart.scroll_into_view_if_needed()
    chart.hover()
    assert re.search(r"date: 2026-\d\d-\d\d", tip.inner_text())
    chart.focus()
    page.keyboard.press("End")
    newest = page.locator("#case-1 table.nights tbody tr").last.locator("td").all_text_contents()
    assert f"date: {newest[0].strip()}" in tip.inner_text() and f"images/s: {newest[3].strip()}" in tip.inner_text()
    page.keyboard.press("ArrowLeft")
    assert f"date: {newest[0].strip()}" not in tip.inner_text()
    page.keyboard.press("Escape")
    assert not tip.is_visible()


def test_a_case_is_reached_from_its_card_and_from_the_table(shown: Shown) -> None:
    page = shown.page
    page.locator(".card h3 a").first.click()
    assert page.url.endswith("#case-1")
    page.locator("#all tbody tr").nth(4).get_by_role("link").click()
    assert page.url.endswith("#case-5") and page.locator("#case-5 h2").is_visible()


def test_without_javascript_everything_can_be_read(browser: Any, file: Path) -> None:
    found = opened(browser, file, java_script_enabled=False)
    page = found.page
    assert page.locator("h1").is_visible() and len(rows_of(page)) == 24 and not page.locator("#filter").is_visible()
    page.locator("#case-1 summary", has_text="30 nights as a table").click()
    assert page.locator("#case-1 table.nights tbody tr").first.is_visible()
    page.context.close()


def test_what_is_folded_in_a_case_that_needs_someone_is_printed_and_what_is_to_be_clicked_is_not(shown: Shown) -> None:
    page = shown.page
    page.emulate_media(media="print", color_scheme="dark")
    page.set_viewport_size(PAPER)
    assert not page.locator("#filter").is_visible()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate("document.documentElement.scrollWidth") <= PAPER["width"]
    assert page.locator("#case-1 table.nights tbody tr").first.is_visible()
    assert not page.locator("#case-2 table.nights tbody tr").first.is_visible()
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.locator("details[open]").count() == page.locator("details[open] > pre").count()


@pytest.mark.parametrize("viewport", [WIDE, PHONE], ids=["wide", "phone"])
def test_text_from_outside_neither_runs_nor_breaks_the_page(
    browser: Any, tmp_path: Path, viewport: dict[str, int]
) -> None:
    hostile = "".join(TEXTS.values()) + "x" * 10_000
    file = tmp_path / "hostile.html"
    file.write_text(night_page(session_of(3, 5, steps=5, hostile=hostile)), encoding="utf-8")
    found = opened(browser, file, viewport=viewport)
    assert (found.requests, found.messages) == ([file.as_uri()], [])
    assert found.page.evaluate("document.documentElement.scrollWidth") <= viewport["width"]
    assert "<script>alert(1)</script>" in found.page.locator(".verdicts .long > span").first.text_content()
    found.page.context.close()
