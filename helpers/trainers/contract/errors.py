"""The suite's errors. Each names the object, the field, the value that was got, what was expected, and the remedy."""

from __future__ import annotations

import re
from typing import Mapping, TypeVar

_Key = TypeVar("_Key")
_Entry = TypeVar("_Entry")

# The most characters of a message. A longer one contains a whole file, and nobody would read it.
_LONGEST = 8000
# Commands of CI systems. A C++ name (std::bad_alloc) or a test's id (file.py::test) does not match.
_COMMAND_OF_CI = re.compile(r"(?<![\w>:]):(?=:[A-Za-z])|#(?=#(?:vso)?\[)")


class SuiteError(Exception):
    """An error that the suite reports to its user, who should be able to act on it.

    ``about`` is the object (a file, a case, an option) and ``remedy`` the next thing to do.
    """

    def __init__(
        self,
        about: str,
        *,
        field: str | None = None,
        got: object | None = None,
        expected: str | None = None,
        remedy: str | None = None,
    ) -> None:
        self.about = about
        self.field = field
        self.got = got
        self.expected = expected
        self.remedy = remedy
        super().__init__(self._text())

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
    """A baseline file is damaged, is from a newer version, or holds a value that cannot be measured."""


class LaunchError(SuiteError):
    """A job could not be started."""


class StepLogError(SuiteError):
    """A step log is damaged or inconsistent; ``about`` is ``file:line``."""


class DeviceError(SuiteError):
    """The machine lacks a device that the case needs, or another process holds it."""


class ConfigError(SuiteError):
    """perf.yaml, a case id, a job file or an option has an unknown name or a wrong value."""


class DatasetError(SuiteError):
    """The data folder does not have the ImageNet layout that the trainers read, or an image cannot be read."""


class LogError(SuiteError):
    """A training log of another program cannot be read: its format is unknown or ambiguous, it is incomplete, or it
    does not state what is needed."""


def entry_of(registry: Mapping[_Key, _Entry], key: _Key, about: str, table: str, holds: str = "") -> _Entry:
    """The entry of ``key``. If there is none, raises ConfigError with ``about``, the ``table`` and what an entry
    ``holds``."""
    if key not in registry:
        raise ConfigError(
            about,
            got="no entry",
            expected=f"an entry in {table}",
            remedy=f"Add it{f': {holds}' if holds else ''} (docs/extending.md)",
        )
    return registry[key]


class ResultError(SuiteError):
    """A stored result cannot be read or written."""


def _quoted(value: object) -> str:
    """A value as text on one line without control characters, so that no input can forge terminal output."""
    try:
        text = repr(value)
    except (RecursionError, ValueError):
        # The value is nested too deeply, or is an int with more digits than Python prints.
        text = f"an unprintable {type(value).__name__}"
    return text if len(text) <= 200 else text[:197] + "..."


class HistoryError(SuiteError):
    """The history database cannot be reached, read or written."""


class NoHistory(HistoryError):
    """Nothing was kept yet at the history's address."""


class HistoryUnreachable(HistoryError):
    """The history's database does not answer now (down, unreachable, locked, disk full); it may answer later."""


def printable(text: str) -> str:
    """Text from outside the suite, on one line: characters that are not printable (newlines, ESC, bidirectional
    controls) are replaced by escapes.

    So no file name, log line or process name can forge output in a terminal or a report. The first character of a CI
    system's command (``::error``, ``##[error]``) is escaped too, so that the CI system does not obey it.
    """
    if not text.isprintable():
        text = "".join(
            character if character.isprintable() else character.encode("unicode_escape").decode() for character in text
        )
    if "::" in text or "##" in text:
        text = _COMMAND_OF_CI.sub(lambda found: f"\\x{ord(found[0]):x}", text)
    return text
