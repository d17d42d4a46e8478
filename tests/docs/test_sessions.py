"""The sessions that the pages show: with a stand-in for the trainer, and one page's with real training."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.docs.blocks import ROOT, Command, Mode, all_blocks
from tests.docs.conftest import RECORD_ALL, Story
from tests.docs.shape import difference
from tests.docs.stand_in import checkout


def commands(mode: Mode) -> list[pytest.param]:  # type: ignore[valid-type]
    found = [(block, command) for block in all_blocks() if block.mode is mode for command in block.commands]
    return [pytest.param(command, id=block.place) for block, command in found]


@pytest.mark.slow
def test_a_gate_that_records_says_so(story: Story) -> None:
    """As docs/gate.md says of it."""
    ((code, printed),) = [ended for words, ended in story.sessions.items() if list(words[1:]) == RECORD_ALL]
    assert (code, printed.splitlines()[-1]) == (6, "GATE RECORDED: 3 of 3")


@pytest.mark.slow
@pytest.mark.parametrize("command", commands(Mode.STAND_IN))
def test_a_session_ends_as_the_page_shows(command: Command, story: Story) -> None:
    code, printed = story.sessions[command.words]
    assert code == (1 if "GATE FAILED" in command.output else 0), printed
    shortened = printed.replace(f"{story.folder}/", "").replace(f"{story.folder.parent}/", "../")
    assert difference(command.output, shortened) == "", shortened


@pytest.mark.training
@pytest.mark.untimed
@pytest.mark.parametrize("command", commands(Mode.TRAINING))
def test_a_session_with_real_training_prints_what_is_shown(command: Command, tmp_path: Path) -> None:
    folder = checkout(tmp_path)
    config = folder / "perf.yaml"
    # Few steps: the figures are worth nothing, and the words are those of any session.
    own = yaml.safe_load(config.read_text(encoding="utf-8"))
    own["protocols"]["cpu"] = {"warmup_steps": 1, "window_steps": 2, "runs": 1}
    # Nor does it matter who else is on the cores.
    own["contention"] = {"max_foreign_share": 0.99}
    config.write_text(yaml.safe_dump(own), encoding="utf-8")
    options = [f"--perf-config={config}", f"--baselines-dir={folder / 'baselines'}", f"--runs-dir={folder / 'runs'}"]
    variables = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *command.arguments, *options],
        cwd=ROOT,
        # With locks of its own it takes no turn among sessions that measure.
        env={**variables, "COLUMNS": "80", "XDG_CACHE_HOME": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
        timeout=800,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert difference(command.output, done.stdout) == "", done.stdout
