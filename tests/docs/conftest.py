"""The sessions that the pages tell of, made once by a stand-in for the trainer."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from helpers.commands.gate import words
from helpers.commands.main import parsed
from tests.docs.blocks import Command, Mode, all_blocks
from tests.docs.stand_in import GOOD, SLOW, checkout, environment, played

RECORD_ALL = ["gate", "--", "--update-baselines"]
# Nights whose sessions docs/history.md names.
FIRST, *LATER = "20261119-020000-9f0e", "20261120-020000-0a1b", "20261121-020000-1a2b"


@dataclass(frozen=True)
class Story:
    """The README's sessions in their order: a case is recorded and judged, and a gate is recorded and has its night."""

    # It stands for the checkout that the pages are read in.
    folder: Path
    # Exit code and output of each, by its command's words.
    sessions: dict[tuple[str, ...], tuple[int, str]]


@pytest.fixture(scope="session")
def story(tmp_path_factory: pytest.TempPathFactory) -> Story:
    """Made with the first perf.yaml of docs/gate.md, and some more nights of README's first case."""
    folder = checkout(tmp_path_factory.mktemp("pages"))
    (folder / GOOD).symlink_to(sys.prefix)
    environment(folder.parent / SLOW)
    (folder / "gate").mkdir()
    of_gate = [block for block in all_blocks() if block.place.startswith("docs/gate.md:")]
    section, *_ = [block.text for block in of_gate if block.mode is Mode.CONFIG]
    blocks = [block for block in all_blocks() if block.place.startswith("README.md:")]
    change(folder / "perf.yaml", section)
    judged, night = [block.commands[0] for block in blocks if block.mode is Mode.STAND_IN]
    record = Command((*judged.words, "--update-baselines"))
    (record_all,) = [each for block in blocks for each in block.commands if each.arguments == RECORD_ALL]
    made = [
        called_in(folder, record, FIRST),
        *(called_in(folder, judged, name) for name in LATER),
        called_in(folder, record_all, "20261122-020000-2b3c"),
        called_in(folder, night, "20261123-020000-3c4d"),
    ]
    first, second, *_, third, fourth = played(folder, made)
    sessions = {record: first, judged: second, record_all: third, night: fourth}
    return Story(folder, {command.words: ended for command, ended in sessions.items()})


def change(config: Path, sections: str) -> None:
    """Put sections into a perf.yaml, in the place of its own."""
    config.write_text(
        yaml.safe_dump({**yaml.safe_load(config.read_text(encoding="utf-8")), **yaml.safe_load(sections)})
    )


def called_in(folder: Path, command: Command, session: str) -> list[str]:
    """pytest's arguments of a command that is called in ``folder``."""
    places = [f"--runs-dir={folder / 'runs'}", f"--session={session}"]
    if command.program == "pytest":
        return [*command.arguments, *places]
    gate, *options = command.arguments
    own = [f"--config={folder / 'perf.yaml'}", f"--baselines={folder / 'baselines'}", *places]
    builds = [str(folder / word) if (folder / word).exists() else word for word in options]
    # The gate's words begin with "-m pytest".
    return words(parsed([gate, *own, *builds]), folder / "gate")[2:]
