"""docs/import.md is executed: its commands print what it shows, and its table has every rule."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.logs.figures.rules import RULES

ROOT = Path(__file__).parents[3]
TEXT = (ROOT / "docs" / "import.md").read_text(encoding="utf-8")
SHOWN = re.findall(r"^```\n\$ perfgate ([^\n]*)\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)


def test_the_document_shows_each_command() -> None:
    assert [shlex.split(command)[0] for command, _ in SHOWN] == ["import-log", "verify-published", "group-report"]


@pytest.mark.parametrize(("command", "output"), SHOWN, ids=[shlex.split(command)[0] for command, _ in SHOWN])
def test_a_command_prints_what_the_document_shows(command: str, output: str) -> None:
    argv = [sys.executable, "-m", "helpers.commands", *shlex.split(command)]
    # As wide as it is printed where nobody narrows it.
    environment = {**os.environ, "COLUMNS": "100"}
    done = subprocess.run(argv, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == output
    assert done.stderr == ""
    assert done.returncode == (1 if "DIFFERS" in output else 0)


def test_the_table_has_every_rule_and_no_other() -> None:
    rows = re.findall(r"^\| (`.*?) \| ", TEXT, re.MULTILINE)
    assert {name for row in rows for name in re.findall(r"`([^`]+)`", row)} == set(RULES)
