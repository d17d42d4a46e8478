"""The README's commands exist, and its table of statuses is the policy's."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.judging.verdict import Status
from helpers.plan.matrix import TARGETS
from helpers.session.policy import effect

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^\.venv/bin/python -m (pytest perf_tests[^#\n]*)", README, re.MULTILINE)
ROWS = dict(re.findall(r"^\| ([A-Z_]+|not run) \| .* \| (\w+) \| [\w' ]+ \|$", README, re.MULTILINE))


def test_the_readme_shows_commands() -> None:
    assert len(COMMANDS) >= 5


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_of_the_readme_selects_cases(command: str, tmp_path: Path) -> None:
    words = [word for word in shlex.split(command) if word != "results.json"]
    words = [f"--results={tmp_path / 'results.json'}" if word == "--results" else word for word in words]
    argv = [sys.executable, "-m", *words, "--collect-only", "-q"]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert any(f"test_{target}[" in done.stdout for target in TARGETS)


@pytest.mark.parametrize("status", list(Status))
def test_the_readme_says_what_a_status_does(status: Status) -> None:
    assert ROWS[status.value] == effect(status).value
