"""The README is short, the pages' commands select cases, and the reference's table of statuses is the policy's."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.judging.verdict import Status
from helpers.plan.matrix import TARGETS
from helpers.session.gate import effect

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
MOST_LINES = 250
REFERENCE = (ROOT / "docs/reference.md").read_text(encoding="utf-8")
PAGES = README + "".join((ROOT / f"docs/{name}.md").read_text(encoding="utf-8") for name in ("run", "record"))
COMMANDS = re.findall(r"^\.venv/bin/python -m (pytest perf_tests[^#\n]*)", PAGES, re.MULTILINE)
ROWS = dict(re.findall(r"^\| ([A-Z_]+|not run) \| .* \| (\w+) \| [\w', ]+ \|$", REFERENCE, re.MULTILINE))


# Lists the cases of each command line of standard input: one process for all, which imports the suite once.
LISTS = """
import contextlib, io, json, sys, pytest
for words in json.load(sys.stdin):
    with contextlib.redirect_stdout(io.StringIO()) as output:
        code = pytest.main([*words, "--collect-only", "-q", "-p", "no:cacheprovider"])
    print(json.dumps([int(code), output.getvalue()]))
"""


@pytest.mark.slow
def test_the_commands_of_the_pages_select_cases(tmp_path: Path) -> None:
    assert len(COMMANDS) >= 5
    lines = [shlex.split(command.replace(" results.json", f" {tmp_path / 'results.json'}")) for command in COMMANDS]
    argv = [sys.executable, "-c", LISTS]
    given = json.dumps([words[1:] for words in lines])
    done = subprocess.run(argv, cwd=ROOT, input=given, capture_output=True, text=True, timeout=120, check=True)
    for command, answer in zip(COMMANDS, done.stdout.splitlines(), strict=True):
        code, listed = json.loads(answer)
        assert code == 0, f"{command}: {listed}"
        assert any(f"test_{target}[" in listed for target in TARGETS), command


def test_the_readme_is_short() -> None:
    assert len(README.splitlines()) <= MOST_LINES


@pytest.mark.parametrize("status", list(Status))
def test_the_reference_says_what_a_status_does(status: Status) -> None:
    assert ROWS[status.value] == effect(status).value
