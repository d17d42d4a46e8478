"""The pictures of the README: ``.venv/bin/python docs/pictures/make.py FOLDER`` writes them beside this file.

In FOLDER it trains three short CPU cases with real Paddle: a session that records them, five nights of the same build
and one of a build whose optimizer is slower in one case. It takes the last night's page (``--html``) and its table,
as a terminal shows it, in Chromium. A session that FOLDER has already is not made again. Half an hour on two cores.
"""

from __future__ import annotations

import argparse
import html
import os
import re
import shlex
import shutil
import site
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any

import yaml
from playwright.sync_api import Page, sync_playwright

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
BROWSERS = ("chromium", "google-chrome", "chromium-browser")
NIGHTS = 5
SLOW_CASE = "paddle-resnet50v1.5-fp32-bs1-1x1-synthetic-dynamic"
# Every Python of tonight's environment loads it: each optimizer step computes for 8% of the time since the last one.
SLOW = f"""
import importlib.abc, importlib.util, sys, time


class Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name != "paddle.optimizer.momentum":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        load = spec.loader.exec_module

        def exec_module(module):
            load(module)
            inner, last = module.Momentum.step, []

            def step(self):
                inner(self)
                if last:
                    end = time.process_time() + 0.08 * (time.process_time() - last.pop())
                    while time.process_time() < end:
                        pass
                last.append(time.process_time())

            module.Momentum.step = step

        spec.loader.exec_module = exec_module
        return spec


if "{SLOW_CASE}" in " ".join(sys.orig_argv):
    sys.meta_path.insert(0, Finder())
"""
BLOCK = {
    "framework": "paddle",
    "model": "resnet50v1.5",
    "batch_size_per_card": 1,
    "cards": 1,
    "protocol": "cpu",
}
CASES = (
    {**BLOCK, "precision": "fp32", "data": ["synthetic", "dali"], "execution": "dynamic"},
    {**BLOCK, "precision": "amp_o1", "data": "synthetic", "execution": "to_static"},
)
WIDTH = 84
COLOURS = {"31": "#ff7b72", "32": "#7ee787", "33": "#e3b341", "36": "#79c0ff"}


def prepare(folder: Path) -> None:
    """perf.yaml, baselines, and two environments with this one's packages."""
    config: dict[str, Any] = yaml.safe_load((ROOT / "perf.yaml").read_text(encoding="utf-8"))
    config |= {"matrix": {"cpu": list(CASES)}, "short": []}
    config["protocols"]["cpu"] |= {"window_steps": 12}
    # The spread of a machine that others use too is part of the picture.
    config["contention"] = {"max_foreign_share": 0.99}
    config["machines"] = {
        "here": {"host": "*", "gate": [{"target": "cpu", "cases": "*bs1-1x1*", "needs": "recorded"}]},
    }
    config["owners"] = [{"pattern": "*", "owner": "vision team"}]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "perf.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    recorded = folder / "baselines/recorded"
    if not recorded.exists():
        shutil.copytree(ROOT / "baselines/published", folder / "baselines/published")
        recorded.mkdir()
        shutil.copy(ROOT / "baselines/recorded/schema.json", recorded)
    for name in ("good", "tonight"):
        if (folder / name).exists():
            continue
        venv.create(folder / name, symlinks=True)
        (packages,) = (folder / name).glob("lib/python*/site-packages")
        (packages / "ours.pth").write_text("\n".join(site.getsitepackages()) + "\n", encoding="utf-8")
        if name == "tonight":
            (packages / "made_slow.py").write_text(SLOW, encoding="utf-8")
            (packages / "made_slow.pth").write_text("import made_slow\n", encoding="utf-8")


def session(folder: Path, name: str, *options: str) -> Path:
    """Train the cases in a session called ``name``; the file that holds what a terminal showed of it."""
    shown = folder / f"{name}.txt"
    if shown.exists():
        return shown
    argv = [sys.executable, "-m", "pytest", "perf_tests", "--color=yes", "-q"]
    argv += ["-m", "cpu", "--perf-config", str(folder / "perf.yaml"), "--baselines-dir", str(folder / "baselines")]
    argv += ["--runs-dir", str(folder / "runs"), "--session", name, "--html", str(folder / f"{name}.html"), *options]
    environment = {**os.environ, "COLUMNS": str(WIDTH)}
    done = subprocess.run(argv, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode not in (0, 1, 6):
        sys.exit(f"{shlex.join(argv)}: exit status {done.returncode}\n{done.stdout[-2000:]}")
    shown.write_text(done.stdout, encoding="utf-8")
    return shown


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


def take(folder: Path, night: str) -> None:
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    if program is None:
        sys.exit(f"no browser: none of {', '.join(BROWSERS)} is installed (apt-get install chromium)")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1100, "height": 860})
        page.goto((folder / f"{night}.html").as_uri())
        page.screenshot(path=HERE / "page.png")
        _take_table(browser.new_page(), table_of((folder / f"{night}.txt").read_text(encoding="utf-8")))
        browser.close()


def _take_table(page: Page, table: str) -> None:
    style = "display:inline-block;margin:0;padding:16px;background:#0d1117;color:#e6edf3;font:14px/1.35 monospace"
    page.set_content(f'<pre style="{style}">{spans(table)}</pre>')
    page.locator("pre").screenshot(path=HERE / "table.png")


def main() -> None:
    parser = argparse.ArgumentParser(description="Train some nights and take the pictures of the README.")
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="Keep the sessions in FOLDER")
    folder = parser.parse_args().folder.absolute()
    prepare(folder)
    good, tonight = f"{folder / 'good'}", f"{folder / 'tonight'}"
    accepted = ("--accept-regression", "paddle-resnet50v1.5-*-bs1-1x1-*=the machine has other work, too")
    session(folder, "recorded", "--build", good, "--update-baselines", *accepted)
    for number in range(1, NIGHTS + 1):
        session(folder, f"night{number}", "--build", good)
    session(folder, "tonight", "--gate", "--build", tonight, "--reference-build", good)
    take(folder, "tonight")


if __name__ == "__main__":
    main()
