"""The code blocks of the pages: which commands stand in them, how a test tries them, and what they should print.

The words behind a block's opening fence say it: a language, and for commands a mode.

- ``sh run``, ``console run``: each command runs on made nights, or from the checkout if it is a module of
  ``benchmarks`` (test_blocks.py); of ``console`` the output is compared.
- ``console stand-in``: as a session of pytest in which a stand-in trains (test_sessions.py).
- ``console training``: the same with real training.
- ``sh parsed``: the command's own parser reads the line, make says what it would do, and pytest selects cases. To run
  it would take minutes of training or of downloads.
- ``sh cron``: lines of a crontab, which sh runs as cron does, with a double of ``perfgate``.
- ``sh not-run REASON``: as parsed, for REASON.
- ``yaml perf.yaml``: a part of perf.yaml, which is read. With ``another-machine`` behind it, it is of that of another
  machine, which the rest of the part of the page is about.
- ``text``: no command.
"""

from __future__ import annotations

import enum
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import takewhile
from pathlib import Path

ROOT = Path(__file__).parents[2]

CHINESE = "zh-CN"
COMMANDS, TRANSCRIPT, CONFIG, TEXT = "sh", "console", "yaml", "text"


class Mode(enum.Enum):
    RUN = "run"
    STAND_IN = "stand-in"
    TRAINING = "training"
    PARSED = "parsed"
    CRON = "cron"
    NOT_RUN = "not-run"
    CONFIG = "perf.yaml"
    NONE = ""


MODES = {
    COMMANDS: (Mode.RUN, Mode.PARSED, Mode.CRON, Mode.NOT_RUN),
    TRANSCRIPT: (Mode.RUN, Mode.STAND_IN, Mode.TRAINING, Mode.NOT_RUN),
    CONFIG: (Mode.CONFIG,),
    TEXT: (Mode.NONE,),
}
# Why no test runs a block, and nothing else.
REASONS = (
    "needs-gpu",
    "needs-root",
    "needs-avx512",
    "downloads",
    "takes-minutes",
    "takes-hours",
    "disturbed-on-purpose",
)

ANOTHER_MACHINE = "another-machine"
# Programs of the shell that blocks may use beside the suite's.
SHELL = ("ls", "printf")

_FENCE = re.compile(r"^( *)```([^\n]*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
_PROMPT = "$ "
# What ends a command of a line.
_BETWEEN = {";", "&", "&&", "|", "||"}
_OURS = re.compile(r"(.*/bin/)?(perfgate|pytest|make)")
_VARIABLE = re.compile(r"[A-Z_]+=.*")
_PYTHON = re.compile(r"(.*/)?python[0-9.]*|PYTHON")


@dataclass(frozen=True)
class Command:
    """One command of a block, from the program's name on, and what the page shows of its output."""

    words: tuple[str, ...]
    output: str = ""
    # What the line sets in front of the command.
    variables: tuple[tuple[str, str], ...] = ()

    @property
    def program(self) -> str:
        """``perfgate``, ``pytest``, ``make``, a module as ``benchmarks.verdicts``, or empty for any other program."""
        if self._is_module:
            return self.words[2]
        return found[2] if (found := _OURS.fullmatch(self.words[0])) else ""

    @property
    def arguments(self) -> list[str]:
        return list(self.words[3 if self._is_module else 1 :])

    @property
    def _is_module(self) -> bool:
        return len(self.words) > 2 and self.words[1] == "-m" and bool(_PYTHON.fullmatch(self.words[0]))


@dataclass(frozen=True)
class Block:
    """``place`` is ``page:line``."""

    place: str
    language: str
    mode: Mode | None
    reason: str
    text: str

    @property
    def commands(self) -> list[Command]:
        if self.language == COMMANDS:
            return [Command(tuple(words)) for line in _joined(self.text) for words in commands_of(line)]
        return list(_transcript(self.text)) if self.language == TRANSCRIPT else []


def pages() -> list[Path]:
    """All but the changelog, which tells of what is gone, too."""
    return [path for path in sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]) if path.stem != "CHANGELOG"]


@cache
def all_blocks() -> tuple[Block, ...]:
    """Those of the English pages, which the Chinese ones repeat to the letter (test_chinese_pages.py)."""
    english = [page for page in pages() if CHINESE not in str(page)]
    return tuple(block for page in english for block in blocks(str(page.relative_to(ROOT)), page.read_text("utf-8")))


def blocks(page: str, text: str) -> Iterator[Block]:
    for found in _FENCE.finditer(text):
        language, _, rest = found[2].partition(" ")
        mode, _, reason = rest.partition(" ")
        known = next((each for each in MODES.get(language, ()) if each.value == mode), None)
        indent = len(found[1])
        lines = "".join(line[indent:] if line.strip() else line for line in found[3].splitlines(keepends=True))
        yield Block(f"{page}:{text[: found.start()].count(chr(10)) + 1}", language, known, reason, lines)


def commands_of(line: str) -> Iterator[list[str]]:
    """The words of each command of a shell's line; of ours without what stands in front (``taskset``, a variable)."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=";&|")
    lexer.whitespace_split = True
    words: list[str] = []
    for word in [*lexer, ";"]:
        if word not in _BETWEEN:
            words.append(word)
        elif words:
            yield _from_program(words)
            if words[-2:-1] == ["-c"]:
                yield from commands_of(words[-1])
            words = []


def _from_program(words: list[str]) -> list[str]:
    for at in range(len(words)):
        if Command(tuple(words[at:])).program:
            return words[at:]
    return words


def _joined(text: str) -> list[str]:
    return text.replace("\\\n", " ").splitlines()


def _transcript(text: str) -> Iterator[Command]:
    parts = re.split(rf"^{re.escape(_PROMPT)}", text, flags=re.MULTILINE)
    for part in parts[1:]:
        line, _, output = part.replace("\\\n", " ").partition("\n")
        found = list(commands_of(line))
        set_in_front = takewhile(lambda word: _VARIABLE.fullmatch(word), shlex.split(line, comments=True))
        variables = [word.partition("=") for word in set_in_front]
        yield Command(tuple(found[0]), output, tuple((name, value) for name, _, value in variables))
