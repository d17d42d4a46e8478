"""The pictures of the README: ``.venv/bin/python -m docs.pictures.make`` in the checkout writes them beside this file.

A stand-in trains (tests/docs/stand_in.py), so the speeds are drawn and not measured. Everything else is the suite: 25
nights of a gate are judged and kept, and the last night's build is slower where ResNet50 reads images. Chromium takes
the page of that night as ``--results`` writes it, and its table as a terminal shows it. A minute on two cores.

``--sample FOLDER`` writes that page and the published site of these nights into FOLDER instead.
"""

from __future__ import annotations

import argparse
import datetime
import html
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import yaml
from PIL import Image
from playwright.sync_api import Page, sync_playwright

from helpers.trainers.contract import ROOT
from tests.docs.stand_in import GOOD, SLOW, checkout, environment, played

HERE = Path(__file__).parent
BROWSERS = ("chromium", "google-chrome", "chromium-browser")
NIGHTS = 25
TONIGHT = datetime.date(2026, 11, 21)
CASES = (
    "paddle-resnet50v1.5-fp32-bs4-1x1-dali-dynamic",
    "paddle-resnet50v1.5-fp32-bs4-1x1-synthetic-dynamic",
    "paddle-resnet50v1.5-amp_o1-bs4-1x2-dali-to_static",
    "paddle-vgg16-fp32-bs1-1x1-dali-dynamic",
    "paddle-vgg16-amp_o1-bs1-1x1-native-static",
)
SECTIONS = {
    "machines": {
        "ci-1": {"host": "*", "gate": [{"target": "cpu", "cases": case, "needs": "recorded"} for case in CASES]}
    },
    "owners": [
        {"pattern": "paddle-resnet50v1.5-*", "owner": "vision team"},
        {"pattern": "paddle-vgg16-*", "owner": "@ada"},
    ],
}
DRAWN = "A sample: these speeds are drawn"
COLOURS = {"31": "#ff7b72", "32": "#7ee787", "33": "#e3b341", "36": "#79c0ff"}


def nights(folder: Path) -> tuple[Path, str]:
    """The page of the last night, and what a terminal showed of it."""
    here = checkout(folder)
    config = here / "perf.yaml"
    config.write_text(yaml.safe_dump({**yaml.safe_load(config.read_text(encoding="utf-8")), **SECTIONS}))
    good = environment(folder / GOOD)
    made = [["perf_tests", "--gate", "--update-baselines", f"--build={good}", _session(NIGHTS)]]
    for days in range(NIGHTS - 1, -1, -1):
        build = environment(folder / (f"night-{days}" if days else SLOW))
        made.append(["perf_tests", "--gate", f"--build={build}", f"--reference-build={good}", _session(days)])
    page = folder / "night.html"
    made[-1] += [f"--results={page}", "--color=yes"]
    return page, played(here, made)[-1][1]


def _session(days_ago: int) -> str:
    return f"--session={TONIGHT - datetime.timedelta(days=days_ago):%Y%m%d}-020000-{days_ago:04x}"


def table_of(shown: str) -> str:
    """From the table's heading to the line that counts the cases."""
    lines = shown.splitlines()
    plain = [re.sub(r"\x1b\[[\d;]*m", "", line) for line in lines]
    first = plain.index("case")
    last = next(at for at, line in enumerate(plain) if at > first and re.match(r"\d+ cases?: ", line))
    return "\n".join(lines[first : last + 1])


def spans(text: str) -> str:
    """A terminal's colours as HTML."""
    parts = re.split(r"\x1b\[([\d;]*)m", text)
    shown = [html.escape(parts[0])]
    for codes, words in zip(parts[1::2], parts[2::2], strict=True):
        style = "".join(
            "font-weight:bold;" if code == "1" else f"color:{COLOURS[code]};"
            for code in codes.split(";")
            if code == "1" or code in COLOURS
        )
        shown.append(f'<span style="{style}">{html.escape(words)}</span>')
    return "".join(shown)


def take(page_file: Path, table: str) -> None:
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    if program is None:
        sys.exit(f"no browser: none of {', '.join(BROWSERS)} is installed (apt-get install chromium)")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1240, "height": 912})
        page.goto(page_file.as_uri())
        page.screenshot(path=HERE / "page.png")
        _take_table(browser.new_page(), table)
        browser.close()
    for picture in (HERE / "page.png", HERE / "table.png"):
        # A third of the size, and no difference to be seen.
        Image.open(picture).convert("RGB").quantize(256, Image.Quantize.MAXCOVERAGE).save(picture, optimize=True)


def _take_table(page: Page, table: str) -> None:
    style = "display:inline-block;margin:0;padding:16px;background:#0d1117;color:#e6edf3;font:14px/1.35 monospace"
    page.set_content(f'<pre style="{style}">{spans(table)}</pre>')
    page.locator("pre").screenshot(path=HERE / "table.png")


def sample(checkout: Path, page: Path, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    shown = page.read_text(encoding="utf-8").replace("<body>", f"<body>\n<p><b>{DRAWN}</b></p>", 1)
    (folder / "night.html").write_text(shown, encoding="utf-8")
    places = ("--config", "perf.yaml", "--baselines", "baselines", "--runs-dir", "runs")
    words = ("publish", str(folder.absolute() / "published"), *places, "--title", DRAWN)
    subprocess.run(
        [sys.executable, "-m", "helpers.commands", *words],
        cwd=checkout,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--sample", type=Path, metavar="FOLDER")
    into = parser.parse_args().sample
    with tempfile.TemporaryDirectory() as name:
        page_file, shown = nights(Path(name))
        page_file.write_text(page_file.read_text(encoding="utf-8").replace(f"{name}/", "../"), encoding="utf-8")
        if into is None:
            take(page_file, table_of(shown.replace(f"{name}/", "../")))
        else:
            sample(Path(name) / "checkout", page_file, into)


if __name__ == "__main__":
    main()
