"""The one renderer of tables: columns are data, lines are theirs."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter

import pytest

from helpers.report.table import Align, Column, Table, markdown_text

NAME: Column[Sequence[str]] = Column("name", itemgetter(0))
RATE: Column[Sequence[str]] = Column("images/s", itemgetter(1), Align.RIGHT)
LAST: Column[Sequence[str]] = Column("", itemgetter(2), gap=" → ")
ROWS = (("a", "1.5", "why"), ("longer", "100", ""))


def test_a_column_is_as_wide_as_its_widest_cell_or_its_heading() -> None:
    grid = Table.of((NAME, RATE, LAST), ROWS).grid("  ")
    assert grid.heading == "  name    images/s →"
    assert grid.lines == ("  a            1.5 → why", "  longer       100 →")
    assert Table.of((NAME, RATE), ROWS[1:]).grid().text_width == 16


def test_markdown_has_the_alignment_below_the_heading_and_cells_as_they_are_shown() -> None:
    assert Table.of((NAME, RATE), ROWS[:1]).markdown(str.upper) == [
        "| name | images/s |",
        "| --- | ---: |",
        "| A | 1.5 |",
    ]


def test_padded_markdown_is_a_table_on_a_terminal_too() -> None:
    assert Table.of((NAME, RATE), ROWS).markdown(padded=True) == [
        "| name   | images/s |",
        "| ------ | -------: |",
        "| a      |      1.5 |",
        "| longer |      100 |",
    ]


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("*a* **b**", r"\*a\* \*\*b\*\*"),
        ("_a_ amp_o2", r"\_a_ amp_o2"),
        ("~~d~~", r"\~~d\~~"),
        ("&lt; & &#x1b;", "&amp;lt; & &amp;#x1b;"),
        ("## a # b", r"\## a # b"),
        ("> a", r"\> a"),
        ("- a-b", r"\- a-b"),
        ("a|`b`", r"a\|\`b\`"),
        ("<b>", "&lt;b>"),
        ("![x](y)", r"![x\](y)"),
    ],
)
def test_markdown_shows_a_text_unchanged(text: str, written: str) -> None:
    assert markdown_text(text) == written
