"""docs/paddle-cases.md and docs/other-cases.md list every published row once, complete, and no machine's paths."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from helpers.plan.baseline_files import BASELINES
from helpers.plan.published import load_published
from helpers.trainers.contract.frameworks import Framework

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Page:
    """A page with the output of ``perfgate cases``."""

    name: str
    # Whose cases it lists.
    frameworks: tuple[Framework, ...]
    # The number of its cases; a case has two figures where two tables print it.
    cases: int

    @property
    def text(self) -> str:
        return (ROOT / "docs" / self.name).read_text(encoding="utf-8")

    @property
    def rows(self) -> list[str]:
        begins = tuple(f"| `{each.value}-" for each in self.frameworks)
        return [line for line in self.text.splitlines() if line.startswith(begins)]


PADDLE = Page("paddle-cases.md", (Framework.PADDLE,), 54)
OTHERS = Page("other-cases.md", (Framework.PYTORCH, Framework.TENSORFLOW, Framework.MXNET), 53)
PAGES = pytest.mark.parametrize("page", [PADDLE, OTHERS], ids=lambda page: page.name)


@PAGES
@pytest.mark.parametrize("target", ["v100", "a100"])
def test_every_published_figure_stands_in_its_case_s_row(page: Page, target: str) -> None:
    figures = [
        figure
        for figure in load_published(BASELINES / "published" / f"{target}.json").figures
        if figure.case.framework in page.frameworks
    ]
    assert figures
    for figure in figures:
        begins = f"| `{figure.case.id}` | {target} | "
        (row,) = [row for row in page.rows if row.startswith(begins)]
        published, configuration = row.split(" | ")[2:4]
        assert f"{figure.samples_per_s} ({figure.status.value})" in published.split(", ")
        assert configuration == "complete"


@PAGES
def test_there_are_the_published_rows_and_no_other(page: Page) -> None:
    assert len(page.rows) == page.cases
