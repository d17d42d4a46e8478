"""How large the page of a large night is, and how soon it can be used in Chromium: ``make bench``.

Makes the page of a night (60 cases of 90 nights unless told otherwise) and opens it several times in the Chromium that
is installed; each time it types a word into the filter and sorts by a column. Prints the page's bytes and the median
seconds; exit status 1 when a goal is missed.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.made_sessions import session_of
from helpers.report.html.page import night_page
from helpers.report.unforeseen import ended
from helpers.trainers.contract.errors import SuiteError

BROWSERS = ("chromium", "google-chrome", "chromium-browser")
MOST_BYTES = 3_000_000
MOST_SECONDS = 1.0
WIDE = {"width": 1280, "height": 900}


@dataclass(frozen=True)
class Use:
    """What it took until a page was loaded, and its filter and a heading had answered."""

    wall_seconds: float
    # Of the page's thread, which nobody else's work changes.
    processor_seconds: float
    # What the filter then counted, and how many nodes the page had.
    shown: str
    nodes: int


def main() -> int:
    parser = argparse.ArgumentParser(allow_abbrev=False, description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=60, help="Make so many cases, 108 at most")
    parser.add_argument("--nights", type=int, default=90, help="Of so many nights each")
    parser.add_argument("--times", type=int, default=5, help="Open the page so often")
    parser.add_argument("--browser", default="", help=f"Its program (else the first of {', '.join(BROWSERS)})")
    arguments = parser.parse_args()
    report = session_of(arguments.cases, arguments.nights)
    started = time.perf_counter()
    content = night_page(report).encode()
    small = len(content) < MOST_BYTES
    print(
        f"{arguments.cases} cases of {arguments.nights} nights: {len(content) / 1e6:.2f} MB, made in "
        f"{time.perf_counter() - started:.2f} s; goal under {MOST_BYTES / 1e6:g} MB{'' if small else ': MISSED'}"
    )
    before = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "night.html"
        file.write_bytes(content)
        version, uses = measured(arguments.browser or found_browser(), file, arguments.times)
    walls = sorted(each.wall_seconds for each in uses)
    wall = statistics.median(walls)
    processor = statistics.median(each.processor_seconds for each in uses)
    soon = wall < MOST_SECONDS
    print(
        f"Chromium {version}: opened, filtered and sorted in {wall:.2f} s by the clock, the median of {len(uses)} "
        f"({walls[0]:.2f} to {walls[-1]:.2f} s); goal under {MOST_SECONDS:g} s{'' if soon else ': MISSED'}"
    )
    print(
        f"the page's own thread worked {processor:.2f} s of it; the load before was {before:.1f} on "
        f"{os.cpu_count()} cores, and on cores that others use the clock says little"
    )
    return int(not (small and soon))


def found_browser() -> str:
    """Raises SuiteError where none is installed."""
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    if program is None:
        raise SuiteError(
            "browser", got="none on PATH", expected=" or ".join(BROWSERS), remedy="apt-get install chromium"
        )
    return program


def measured(program: str, file: Path, times: int) -> tuple[str, list[Use]]:
    """The browser's version, and what each of ``times`` openings took."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # As root, and in a container, Chromium has no sandbox; it opens files of this benchmark alone.
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        uses = [use(browser, file) for _ in range(times)]
        version = browser.version
        browser.close()
    return version, uses


def use(browser: Any, file: Path) -> Use:
    """Open the page in a fresh context, filter and sort."""
    # Otherwise the heading glides into view, and the clock would measure how long that is made to take.
    context = browser.new_context(viewport=WIDE, reduced_motion="reduce")
    page = context.new_page()
    page.goto("about:blank")
    watch = context.new_cdp_session(page)
    watch.send("Performance.enable", {"timeDomain": "threadTicks"})
    started = time.perf_counter()
    page.goto(file.as_uri())
    # By their places: to find them by role, Playwright would look at every node of the page in the page's thread.
    page.locator("#filter input").fill("vgg16")
    page.locator("#all th:nth-child(4) button").click()
    shown = page.locator("#filter output").inner_text()
    wall = time.perf_counter() - started
    found = {each["name"]: each["value"] for each in watch.send("Performance.getMetrics")["metrics"]}
    context.close()
    return Use(wall, found["TaskDuration"], shown, int(found["Nodes"]))


if __name__ == "__main__":
    sys.exit(ended(main, "page"))
