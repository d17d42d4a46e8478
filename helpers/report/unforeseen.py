"""Handles unforeseen errors: prints one sentence, keeps the traceback in a file that only the user can read, and ends
with an exit code of its own."""

from __future__ import annotations

import contextlib
import datetime
import os
import platform
import sys
import tempfile
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from helpers.common.masking import passwords_in, remembered, without_secrets
from helpers.trainers.contract.errors import SuiteError, printable

# pytest's exit code for an internal error: the session has no result.
EXIT_UNFORESEEN = 3
# pytest's exit code for a usage error: a wrong command line, a file that cannot be read.
EXIT_REFUSED = 4
SAFE = "what was finished is whole on disk, since runs, baselines and history entries are written at once or not at all"
# The beginning of every such sentence.
BEGINNING = "unforeseen error: "
_PREFIX = "perfgate-error-"
# A message may contain a whole file, so only its beginning and end are kept.
_MOST_CHARACTERS = 1 << 18
_MOST_OF_MESSAGE = 300


def unforeseen(error: BaseException, command: Sequence[str], variables: Mapping[str, str] | None = None) -> str:
    """Write the traceback to a file, and return one printable sentence about the error, without passwords. Never raises
    an Exception.

    ``command`` is the command line in which the error happened; ``variables`` are those of the process.
    """
    of_process = (os.environ if variables is None else variables).items()
    secrets = (*passwords_in([*command, *of_process]), *remembered())
    kind = type(error).__name__
    text = _shown(_message(error), secrets, _MOST_OF_MESSAGE)
    what = f"{kind}: {text}" if text else kind
    try:
        # If memory was short, it is held by the frames.
        traceback.clear_frames(error.__traceback__)
        where = f"its traceback is in {_written(_report(error, command, secrets))}"
    except Exception as failure:  # noqa: BLE001 - a second mistake must not hide the first
        where = f"its traceback could not be written ({type(failure).__name__})"
    return printable(f"{BEGINNING}{what}; {where}; {SAFE}")


def ended(program: Callable[[], int | None], name: str) -> int:
    """Run a program of the suite and return its exit status: its own, 4 for a SuiteError, or 3 for an unforeseen
    error."""
    try:
        return program() or 0
    except (SuiteError, OSError) as error:
        text, status = f"error: {error}", EXIT_REFUSED
    except Exception as error:  # noqa: BLE001 - Python's own end is 1, which answers a question elsewhere
        text, status = unforeseen(error, [name, *sys.argv[1:]]), EXIT_UNFORESEEN
    with contextlib.suppress(OSError):
        print(f"{name}: {printable(text)}", file=sys.stderr, flush=True)
    return status


def _report(error: BaseException, command: Sequence[str], secrets: Sequence[str]) -> str:
    now = datetime.datetime.now(datetime.UTC)
    lines = [
        f"when: {now:%Y-%m-%d %H:%M:%S} UTC",
        f"command: {' '.join(command)}",
        f"python: {platform.python_version()} {sys.executable}",
        "",
        *traceback.format_exception(type(error), error, error.__traceback__),
    ]
    return _shown("\n".join(line.rstrip("\n") for line in lines), secrets, _MOST_CHARACTERS)


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - an error whose own words fail
        return "it cannot be printed"


def _shown(text: str, secrets: Sequence[str], most: int) -> str:
    """Beginning and end of a text, without secrets. The end begins with a whole word, since a secret in half a URL
    would not be found."""
    for each in secrets:
        text = text.replace(each, "***")
    if len(text) > most:
        end = text[-most // 2 :].split(maxsplit=1)
        text = " ".join([text[: most // 2], "...", *end[1:]])
    return without_secrets(text)


def _written(text: str) -> Path:
    """Write the text to a new file of the user, with a name that nobody can guess; returns its path."""
    descriptor, name = tempfile.mkstemp(prefix=_PREFIX, suffix=".txt")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write("\n".join(map(printable, text.split("\n"))) + "\n")
    except BaseException:
        with contextlib.suppress(OSError):
            Path(name).unlink()
        raise
    return Path(name)
