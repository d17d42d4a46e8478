"""The README is short, and the reference's table of statuses is the policy's. tests/docs/ tries what the pages say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from helpers.judging.case.verdict import Status
from helpers.session.gate import effect

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
REFERENCE = (ROOT / "docs/reference.md").read_text(encoding="utf-8")
ROWS = dict(re.findall(r"^\| ([A-Z_]+|not run) \| .* \| (\w+) \| [\w', ]+ \|$", REFERENCE, re.MULTILINE))


@pytest.mark.parametrize("status", list(Status))
def test_the_reference_says_what_a_status_does(status: Status) -> None:
    assert ROWS[status.value] == effect(status).value
