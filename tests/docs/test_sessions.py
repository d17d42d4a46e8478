"""The sessions that the pages show: with a stand-in for the trainer, and one page's with real training."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from helpers.commands.gate import words
from helpers.commands.main import parsed
from tests.docs.blocks import ROOT, Command, Mode, all_blocks
from tests.docs.shape import difference
from tests.docs.stand_in import checkout, played

README = "README.md:"


def change(config: Path, sections: Mapping[str, Any]) -> None:
    """Put sections into a perf.yaml, in the place of its own."""
    config.write_text(yaml.safe_dump({**yaml.safe_load(config.read_text(encoding="utf-8")), **sections}))


def in_folder(command: Command, folder: Path, name: str) -> list[str]:
    """pytest's arguments of a command that is called in ``folder``; ``name`` is the session's."""
    places = [f"--runs-dir={folder / 'runs'}", f"--session={name}"]
    if command.program == "pytest":
        return [*command.arguments, *places]
    gate, *options = command.arguments
    assert gate == "gate", command
    own = [f"--config={folder / 'perf.yaml'}", f"--baselines={folder / 'baselines'}", *places]
    # The gate's words begin with "-m pytest".
    return words(parsed([gate, *own, *options]), folder / "gate")[2:]


@pytest.mark.slow
def test_the_readme_s_sessions_print_what_it_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are made in the README's order, with its perf.yaml."""
    folder = checkout(tmp_path)
    monkeypatch.chdir(folder)
    (folder / ".venv").symlink_to(sys.prefix)
    venv.create(tmp_path / "tonight", symlinks=True)
    blocks = [block for block in all_blocks() if block.place.startswith(README)]
    (section,) = [block.text for block in blocks if block.mode is Mode.CONFIG]
    change(folder / "perf.yaml", yaml.safe_load(section))
    (folder / "gate").mkdir()

    judged, night = [block.commands[0] for block in blocks if block.mode is Mode.STAND_IN]
    record = Command((*judged.words, "--update-baselines"))
    record_all, _ = [command for block in blocks for command in block.commands if command.arguments[:1] == ["gate"]][:2]
    made = [in_folder(each, folder, f"s{at}") for at, each in enumerate([record, judged, record_all, night])]
    (recorded, _), (passed, shown), (first, told), (failed, gated) = played(folder, made)
    assert (recorded, passed, first, failed) == (0, 0, 6, 1), gated
    assert difference(judged.output, shown) == "", shown
    assert told.splitlines()[-1] == "GATE FAILED: 3 NO_BASELINE of 3"
    shortened = gated.replace(f"{folder}/", "").replace(f"{tmp_path}/", "../")
    assert difference(night.output, shortened) == "", shortened


QUICK = {"warmup_steps": 1, "window_steps": 2, "runs": 1}


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
    """In few steps: the figures are worth nothing, and the words are those of any session."""
    folder = checkout(tmp_path)
    config = folder / "perf.yaml"
    protocols = yaml.safe_load(config.read_text(encoding="utf-8"))["protocols"]
    change(config, {"protocols": {**protocols, "cpu": QUICK}})
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
