"""The suite's errors: each names the object, the field, what was got, what was expected and the remedy."""

from __future__ import annotations

import re
from typing import Mapping, TypeVar

Key = TypeVar("Key")
Entry = TypeVar("Entry")

# The most characters of a message: a longer one holds somebody's file, and nobody reads it.
_LONGEST = 8000
# A name of C++ (std::bad_alloc) and a test's (file.py::test) are no commands.
_COMMAND_OF_CI = re.compile(r"(?<![\w>:]):(?=:[A-Za-z])|#(?=#(?:vso)?\[)")


class SuiteError(Exception):
    """Anything the suite refuses, in words its reader can act on.

    ``about`` is the object (a file, a case, an option), ``remedy`` what to do next. ``lines`` tell it to people where
    one line would be too long: what is wrong, then line by line why.
    """

    def __init__(
        self,
        about: str,
        *,
        field: str | None = None,
        got: object | None = None,
        expected: str | None = None,
        remedy: str | None = None,
        lines: tuple[str, ...] = (),
    ) -> None:
        self.about = about
        self.field = field
        self.got = got
        self.expected = expected
        self.remedy = remedy
        super().__init__(self._text())
        self.lines = tuple(printable(each) for each in lines) or (str(self),)

    def _text(self) -> str:
        text = self.about
        if self.field is not None:
            text += f": field {_quoted(self.field)}"
        if self.got is not None:
            text += f": got {_quoted(self.got)}"
        if self.expected is not None:
            text += f", expected {self.expected}" if self.got is not None else f": expected {self.expected}"
        if self.remedy is not None:
            text += f". {self.remedy}"
        if len(text) > _LONGEST:
            text = f"{text[: _LONGEST // 2]} ... {text[-_LONGEST // 2 :]}"
        return printable(text)


class BaselineError(SuiteError):
    """A baseline file is damaged, from a future version, or holds what no measurement can give."""


class LaunchError(SuiteError):
    """A job could not be started."""


class StepLogError(SuiteError):
    """A step log cannot be trusted: ``about`` is ``file:line``."""


class DeviceError(SuiteError):
    """The machine lacks what the case needs, or it is held by someone else."""


class ConfigError(SuiteError):
    """perf.yaml, a case id, a job file or an option holds what the suite does not know."""


class DatasetError(SuiteError):
    """The data folder is not the ImageNet layout the trainers read."""


class LogError(SuiteError):
    """A training log of another program that cannot be read: unknown, ambiguous, cut, or silent on what is needed."""


def entry_of(registry: Mapping[Key, Entry], key: Key, about: str, table: str, holds: str = "") -> Entry:
    """The entry of ``key``; where there is none, ConfigError names ``about``, the ``table`` and what an entry holds."""
    if key not in registry:
        raise ConfigError(
            about,
            got="no entry",
            expected=f"an entry in {table}",
            remedy=f"Add it{f': {holds}' if holds else ''} (docs/extending.md)",
        )
    return registry[key]


def lines_of(error: Exception) -> tuple[str, ...]:
    """An error as people read it: one line, of some more."""
    return error.lines if isinstance(error, SuiteError) else (str(error),)


class ResultError(SuiteError):
    """A stored result cannot be read or written."""


def _quoted(value: object) -> str:
    """A value on one printable line, so that no input can forge terminal output."""
    try:
        text = repr(value)
    except (RecursionError, ValueError):
        # A value nested too deeply, or an int of more digits than Python prints.
        text = f"an unprintable {type(value).__name__}"
    return text if len(text) <= 200 else text[:197] + "..."


class HistoryError(SuiteError):
    """The history database cannot be reached, read or written."""


class HistoryUnreachable(HistoryError):
    """The history's database is away for now: down, cut off, locked, its disk full. Later it may answer."""


def printable(text: str) -> str:
    """Text of foreign origin on one line: what is not printable (newlines, ESC, bidirectional controls) as an escape.

    So no file name, log line or process name can forge output, in a terminal or in a report; nor does a CI that reads
    the output take a word of it for one of its commands (``::error``, ``##[error]``), whose first character is escaped.
    """
    if not text.isprintable():
        text = "".join(
            character if character.isprintable() else character.encode("unicode_escape").decode() for character in text
        )
    if "::" in text or "##" in text:
        text = _COMMAND_OF_CI.sub(lambda found: f"\\x{ord(found[0]):x}", text)
    return text
