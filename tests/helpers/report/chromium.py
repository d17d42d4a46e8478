"""A real Chromium for the tests of pages, and what a page did in it.

The browser is the distribution's; ``PERFGATE_TEST_BROWSER`` names another one, and then it has to be there (.ci/run).
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from benchmarks.page import BROWSERS, WIDE

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
