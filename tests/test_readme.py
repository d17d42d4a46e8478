"""The README is short, and the reference's table of statuses is the policy's. tests/docs/ tries what the pages say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from helpers.judging.verdict import Status
from helpers.session.gate import effect

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
MOST_LINES = 250
MOST_BYTES_OF_A_PICTURE = 150_000
REFERENCE = (ROOT / "docs/reference.md").read_text(encoding="utf-8")
ROWS = dict(re.findall(r"^\| ([A-Z_]+|not run) \| .* \| (\w+) \| [\w', ]+ \|$", REFERENCE, re.MULTILINE))


def test_the_readme_is_short() -> None:
    assert len(README.splitlines()) <= MOST_LINES


def test_the_pictures_are_small_and_each_is_shown() -> None:
    pictures = [path for path in (ROOT / "docs/pictures").iterdir() if path.suffix in (".png", ".svg")]
    shown = README + "".join(page.read_text(encoding="utf-8") for page in (ROOT / "docs").glob("*.md"))
    assert [path.name for path in pictures if path.stat().st_size > MOST_BYTES_OF_A_PICTURE] == []
    assert [path.name for path in pictures if f"pictures/{path.name})" not in shown] == []


@pytest.mark.parametrize("status", list(Status))
def test_the_reference_says_what_a_status_does(status: Status) -> None:
    assert ROWS[status.value] == effect(status).value
