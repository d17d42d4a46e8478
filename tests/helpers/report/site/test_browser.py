"""The site in a real Chromium, from disk and from a folder of a web server: nothing fails, and nothing is asked for
elsewhere."""

from __future__ import annotations

import functools
import http.server
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.page import WIDE
from helpers.history import open_history
from helpers.history.stored import Acknowledgement
from helpers.report.site.rendering import Look
from tests.helpers.history.made import moment
from tests.helpers.report.chromium import CONTRAST, LEAST_CONTRAST, PHONE, missed_by_axe, opened
from tests.helpers.report.chromium import browser as browser
from tests.helpers.report.site.made import SLOW, add_night, fill, published
from tests.hostile_strings import TEXTS

pytestmark = pytest.mark.slow

KINDS = ("index.html", "cases/*vgg16*.html", "nights/s12-*.html", "builds/p*.html", "machines/h0*.html",
         "nights/index.html", "builds/index.html")  # fmt: skip


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("site")
    url = f"sqlite:///{folder / 'h.sqlite'}"
    fill(url, range(1, 13))
    published(url, folder / "site")
    return folder / "site"


@pytest.fixture(scope="module")
def server(site: Path) -> Iterator[str]:
    """The address of a server that has the site in a folder."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    handler = functools.partial(Quiet, directory=str(site.parent))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as listening:
        thread = threading.Thread(target=listening.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{listening.server_port}"
        listening.shutdown()
        thread.join()


def one(site: Path, pattern: str) -> Path:
    return sorted(site.glob(pattern))[0]


@pytest.mark.parametrize(("viewport", "scheme"), [(WIDE, "light"), (PHONE, "dark")], ids=["wide", "phone"])
@pytest.mark.parametrize("pattern", KINDS)
def test_a_page_needs_the_sites_own_files_alone_and_keeps_within_the_screen(
    browser: Any, site: Path, pattern: str, viewport: dict[str, int], scheme: str
) -> None:
    found = opened(browser, one(site, pattern), viewport=viewport, color_scheme=scheme)
    assert found.messages == []
    assert {each for each in found.requests if not each.startswith(f"{site.as_uri()}/")} == set()
    assert found.page.evaluate("document.documentElement.scrollWidth") <= viewport["width"]
    # The stylesheet counts: the policy lets it in.
    assert found.page.evaluate("getComputedStyle(document.querySelector('.verdict')).borderLeftStyle") == "solid"
    contrast, text = found.page.evaluate(CONTRAST)
    assert contrast >= LEAST_CONTRAST, text
    found.page.context.close()


@pytest.mark.parametrize("pattern", KINDS)
def test_axe_misses_nothing_for_keyboards_and_screen_readers(browser: Any, site: Path, pattern: str) -> None:
    found = opened(browser, one(site, pattern))
    assert missed_by_axe(found.page) == []
    found.page.context.close()


def test_from_a_card_to_the_case_its_night_and_its_build_on_a_server(browser: Any, site: Path, server: str) -> None:
    page = browser.new_context(viewport=WIDE).new_page()
    asked: list[str] = []
    failed: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("response", lambda response: failed.append(response.url) if response.status >= 400 else None)
    page.on("console", lambda message: failed.append(message.text))
    page.goto(f"{server}/{site.name}/index.html")
    page.locator(".card h3 a").first.click()
    assert SLOW in page.locator("h1").inner_text()
    assert page.locator("img").evaluate("each => each.naturalWidth") > 100
    page.locator("table.nights tbody tr a").first.click()
    # The row of the case, on the page of its newest session.
    assert page.url.startswith(f"{server}/{site.name}/nights/s12-")
    assert SLOW in page.locator("tr:target").inner_text()
    page.locator("tr:target td:nth-child(7) a").click()
    assert "paddle 3.3.1" in page.locator("h1").inner_text()
    assert failed == [] and all(each.startswith(f"{server}/{site.name}/") for each in asked)
    page.context.close()


def test_the_first_page_sorts_and_filters(browser: Any, site: Path) -> None:
    found = opened(browser, site / "index.html")
    page = found.page
    rows = page.locator("#all tbody tr")
    page.get_by_role("searchbox").fill("resnet h1")
    assert page.locator("#filter output").inner_text() == "1 of 3"
    page.get_by_role("searchbox").fill("")
    heading = page.locator("#all th", has_text="images/s")
    heading.get_by_role("button").click()
    assert SLOW in rows.first.inner_text() and heading.get_attribute("aria-sort") == "ascending"
    heading.get_by_role("button").click()
    assert SLOW in rows.last.inner_text()
    page.context.close()


def test_a_picture_tells_the_night_that_stands_in_the_table(browser: Any, site: Path) -> None:
    found = opened(browser, one(site, "cases/*vgg16*.html"))
    page = found.page
    chart, tip = page.locator("svg[data-count]"), page.locator("#tip")
    chart.focus()
    page.keyboard.press("End")
    newest = page.locator("table.nights tbody tr").first.locator("td").all_text_contents()
    assert f"date: {newest[0]}" in tip.inner_text() and "REGRESSION" in tip.inner_text()
    page.keyboard.press("Home")
    oldest = page.locator("table.nights tbody tr").last.locator("td").first.text_content()
    assert f"date: {oldest}" in tip.inner_text()
    page.context.close()


def test_without_javascript_everything_can_be_read(browser: Any, site: Path) -> None:
    found = opened(browser, site / "index.html", java_script_enabled=False)
    assert found.page.locator("#all tbody tr").count() == 3 and not found.page.locator("#filter").is_visible()
    assert found.page.locator(".card").is_visible() and found.messages == []
    found.page.context.close()


@pytest.mark.parametrize("viewport", [WIDE, PHONE], ids=["wide", "phone"])
def test_text_from_outside_neither_runs_nor_breaks_a_page(
    browser: Any, tmp_path: Path, viewport: dict[str, int]
) -> None:
    texts = "".join(text for text in TEXTS.values() if len(text) < 1000).replace("\x00", "")
    hostile = texts.encode("utf-8", "replace").decode() + "x" * 10_000
    url = f"sqlite:///{tmp_path / 'h.sqlite'}"
    with open_history(url) as history:
        for day in (1, 2):
            add_night(
                history,
                day,
                status="REGRESSION",
                case_id=hostile,
                host=hostile,
                session=hostile,
                reason=hostile,
                build=dict.fromkeys(("framework", "version", "commit"), hostile),
                run_uuids=(),
            )
        history.acknowledge(Acknowledgement("*", "2024-01-03", "", hostile, hostile, hostile, moment(3)))
    published(url, tmp_path / "site", Look(hostile, ""))
    pages = sorted((tmp_path / "site").rglob("*.html"))
    assert len(pages) == 7
    for path in pages:
        found = opened(browser, path, viewport=viewport)
        assert found.messages == [] and all(each.startswith("file://") for each in found.requests), path
        assert found.page.evaluate("document.documentElement.scrollWidth") <= viewport["width"], path
        found.page.context.close()
