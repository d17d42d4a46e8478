"""The sessions that the pages show: with a stand-in for the trainer, and one page's with real training."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.docs.blocks import ROOT, Command, Mode, all_blocks
from tests.docs.conftest import Story
from tests.docs.shape import difference
from tests.docs.stand_in import checkout


@pytest.mark.slow
def test_the_readme_s_case_is_judged_as_it_shows(story: Story) -> None:
    (recorded, printed), (passed, shown) = story.sessions[:2]
    assert recorded == 0, printed
    assert (passed, difference(story.judged.output, shown)) == (0, ""), shown


@pytest.mark.slow
def test_the_readme_s_gate_ends_as_it_shows(story: Story) -> None:
    (first, told), (failed, shown) = story.sessions[2:]
    assert (first, told.splitlines()[-1]) == (6, "GATE FAILED: 3 NO_BASELINE of 3")
    shortened = shown.replace(f"{story.folder}/", "").replace(f"{story.folder.parent}/", "../")
    assert (failed, difference(story.night.output, shortened)) == (1, ""), shown


@pytest.mark.training
@pytest.mark.parametrize(
    "command",
    [
        pytest.param(command, id=block.place)
        for block in all_blocks()
        if block.mode is Mode.TRAINING
        for command in block.commands
    ],
)
def test_a_session_with_real_training_prints_what_is_shown(command: Command, tmp_path: Path) -> None:
    folder = checkout(tmp_path)
    config = folder / "perf.yaml"
    # Few steps: the figures are worth nothing, and the words are those of any session.
    own = yaml.safe_load(config.read_text(encoding="utf-8"))
    own["protocols"]["cpu"] = {"warmup_steps": 1, "window_steps": 2, "runs": 1}
    config.write_text(yaml.safe_dump(own), encoding="utf-8")
    options = [f"--perf-config={config}", f"--baselines-dir={folder / 'baselines'}", f"--runs-dir={folder / 'runs'}"]
    variables = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *command.arguments, *options],
        cwd=ROOT,
        env={**variables, "COLUMNS": "80"},
        capture_output=True,
        text=True,
        timeout=800,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert difference(command.output, done.stdout) == "", done.stdout
