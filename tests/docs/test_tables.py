"""The tables of the pages are those of the code, and the table of statuses says what the policy does."""

from __future__ import annotations

import re

import pytest

from helpers.judging.case.verdict import Status
from helpers.session.gate import Gated, Needs, effect
from tests.docs.blocks import ROOT
from tests.docs.tables import TABLES, filled, names_in

PAGES = {path: path.read_text(encoding="utf-8") for path in sorted((ROOT / "docs").rglob("*.md"))}
REFERENCE = PAGES[ROOT / "docs/reference.md"]
ROWS = re.findall(r"^\| ([A-Z_]+|not run) \| .* \| (\w+) \| (\w+) \|$", REFERENCE, re.MULTILINE)


def test_the_tables_are_those_of_the_code() -> None:
    other = [str(path.relative_to(ROOT)) for path, text in PAGES.items() if filled(text) != text]
    assert other == [], "write them: python -m tests.docs.tables"


def test_every_table_stands_in_a_page() -> None:
    assert {name for text in PAGES.values() for name in names_in(text)} == set(TABLES)


@pytest.mark.parametrize("status", list(Status))
def test_the_reference_says_what_a_status_does(status: Status) -> None:
    gated = Gated(Needs.RECORDED, has_published=False)
    assert (status.value, effect(status).value, effect(status, gated).value) in ROWS
