"""docs/paddle-cases.md lists every published Paddle row once, with a complete configuration, and no machine's paths."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from helpers.plan.baseline_files import BASELINES
from helpers.plan.published import load_published
from helpers.trainers.contract.frameworks import Framework

ROOT = Path(__file__).resolve().parents[1]
TEXT = (ROOT / "docs" / "paddle-cases.md").read_text(encoding="utf-8")
ROWS = [line for line in TEXT.splitlines() if line.startswith("| `paddle-")]


@pytest.mark.parametrize("target", ["v100", "a100"])
def test_every_published_figure_stands_in_its_case_s_row(target: str) -> None:
    figures = [
        figure
        for figure in load_published(BASELINES / "published" / f"{target}.json").figures
        if figure.case.framework is Framework.PADDLE
    ]
    assert figures
    for figure in figures:
        begins = f"| `{figure.case.id}` | {target} | {figure.samples_per_s} ({figure.status.value}) | complete |"
        assert [row for row in ROWS if row.startswith(begins)] != [], begins


def test_there_are_the_54_rows_and_no_other() -> None:
    assert len(ROWS) == 54


def test_every_footnote_that_is_used_is_there() -> None:
    used = set(re.findall(r"\[(\d+)\]", "\n".join(ROWS)))
    assert used == set(re.findall(r"^- \[(\d+)\] ", TEXT, re.MULTILINE))


def test_the_command_stands_beside_the_table_and_no_folder_of_a_machine() -> None:
    assert "perfgate cases --framework paddle --published --build" in TEXT
    assert re.search(r"(?<![\w.])/(?:root|home|tmp|work)/", TEXT) is None
