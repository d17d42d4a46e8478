"""Both kinds of baseline files: their folders, a strict JSON reader, a crash-safe writer.

Whatever a reader or writer refuses raises BaselineError with the file, the field and the remedy.
"""

from __future__ import annotations

import enum
import errno
import functools
import glob
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar

from msgspec import Meta

from helpers.common.files import read_text_limited, sync_folder, write_whole
from helpers.common.records import WrongRecord, parse, read_as
from helpers.trainers.contract import ROOT
from helpers.trainers.contract.errors import BaselineError

UNIT = "images/s"
BASELINES = ROOT / "baselines"
PUBLISHED = BASELINES / "published"
RECORDED = BASELINES / "recorded"

# An entry has a kilobyte; a machine that has all cases of a large matrix has thousands.
_MOST_BYTES = 16 * 2**20
_Document = TypeVar("_Document")


class FigureStatus(enum.Enum):
    """GATE figures can fail a case; REFERENCE and DISPUTED figures are shown and never set a status."""

    GATE = "gate"
    REFERENCE = "reference"
    DISPUTED = "disputed"


SamplesPerS = Annotated[float, Meta(gt=0, le=1e9)]
Named = Annotated[str, Meta(min_length=1)]


def read_document(path: Path, kind: type[_Document], *, version: int, remedy: str) -> _Document | None:
    """The JSON document in ``path`` as the dataclass ``kind``; None if there is no such file.

    ``version`` is its ``schema_version``. ``remedy`` says what a person can do about a damaged file. Raises
    BaselineError for a link (the file or its folder), a merge conflict, anything that is not strict JSON, another
    version, and the first value that is not of its type.
    """
    text = _read_text(path, remedy)
    if text is None:
        return None
    data = _parse(path, text, remedy)
    _check_version(path, data, version)
    return _read_as(path, data, kind, remedy)


def refuse_link(path: Path) -> None:
    """Raises BaselineError if ``path`` is a symbolic link, dangling or not."""
    if path.is_symlink():
        raise BaselineError(
            str(path),
            field="file",
            got="a symbolic link",
            expected="a file or folder of its own",
            remedy="Replace the link by what it points to: a baseline is never read or written through a link",
        )


def write_document(path: Path, data: Mapping[str, Any], kind: type[Any]) -> None:
    """Replaces ``path`` by ``data`` as sorted JSON, one line an entry; the caller holds the lock of ``path``.

    At every moment the old or the new file is whole: temporary file in the same folder, fsync,
    rename, fsync of the folder. Raises BaselineError on data that ``read_document`` would refuse
    and when the disk refuses; the old file is then as it was and the temporary file is gone.
    """
    _read_as(path, data, kind, "Nothing was written; measure again")
    try:
        text = _document_text(data)
        text.encode("utf-8")
        content = _escaped(text).encode("utf-8")
    except ValueError as error:
        raise BaselineError(
            str(path),
            field="content",
            got=str(error),
            expected="finite numbers and UTF-8 text",
            remedy="Nothing was written; measure again",
        ) from error
    try:
        # The lock is held, so a temporary file here was left by a process that died while writing.
        for left_over in path.parent.glob(f".{glob.escape(path.name)}.*.tmp"):
            left_over.unlink(missing_ok=True)
        write_whole(path, content)
        sync_folder(path.parent)
    except OSError as error:
        raise cannot_write(path, error) from error


def _document_text(data: Mapping[str, Any]) -> str:
    dumps = functools.partial(json.dumps, ensure_ascii=False, allow_nan=False)
    parts = []
    for key in sorted(data):
        value = data[key]
        if key == "entries" and isinstance(value, Mapping):
            rows = ",\n".join(f"    {dumps(name)}: {dumps(value[name])}" for name in sorted(value))
            text = f"{{\n{rows}\n  }}"
        else:
            text = dumps(value, indent=2, sort_keys=True).replace("\n", "\n  ")
        parts.append(f"  {dumps(key)}: {text}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _escaped(text: str) -> str:
    """JSON with escapes, such as ``\\u202e``, for characters that would turn or hide text in a review of the file."""
    return "".join(each if each.isprintable() or each == "\n" else json.dumps(each)[1:-1] for each in text)


def cannot_write(path: Path, error: OSError) -> BaselineError:
    """The error for a disk that refused. It says whether space or permission is missing."""
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    return BaselineError(
        str(path),
        field="file",
        got=str(error),
        expected="a folder that can be written to",
        remedy=("Free some disk space" if full else "Check the folder's permissions")
        + " and run --update-baselines again; an older file, if any, is unchanged",
    )


def _read_text(path: Path, remedy: str) -> str | None:
    refuse_link(path.parent)
    refuse_link(path)
    try:
        return read_text_limited(path, _MOST_BYTES, within=path.parent)
    except FileNotFoundError:
        return None
    except UnicodeDecodeError as error:
        raise BaselineError(str(path), field="file", got=str(error), expected="UTF-8 text", remedy=remedy) from error
    except OSError as error:
        raise BaselineError(
            str(path), field="file", got=_words(error), expected="a file that can be read", remedy=remedy
        ) from error


def _words(error: OSError) -> str:
    return error.strerror or str(error)


def _parse(path: Path, text: str, remedy: str) -> dict[str, Any]:
    for number, line in enumerate(text.split("\n"), 1):
        if line.startswith(("<<<<<<<", ">>>>>>>")):
            raise BaselineError(
                str(path),
                field=f"line {number}",
                got=line.rstrip()[:60],
                expected="no merge conflict",
                remedy="Resolve the conflict, keeping for each case the entry of one side whole",
            )
    try:
        data = parse(text)
        if "\\u" in text:
            # Half a surrogate pair is valid JSON, but it could not be written again.
            json.dumps(data, ensure_ascii=False).encode("utf-8")
    except WrongRecord as wrong:
        raise BaselineError(
            str(path), field=wrong.field, got=wrong.got, expected=wrong.expected, remedy=remedy
        ) from wrong
    except (ValueError, RecursionError) as error:
        got = str(error) if text.strip() else "an empty file"
        raise BaselineError(str(path), field="file", got=got, expected="JSON, whole", remedy=remedy) from error
    if not isinstance(data, dict):
        raise BaselineError(
            str(path), field="file", got=type(data).__name__, expected="a JSON object at the top", remedy=remedy
        )
    return data


def _check_version(path: Path, data: Mapping[str, Any], version: int) -> None:
    got = data.get("schema_version", "nothing")
    if type(got) is int and got == version:
        return
    raise BaselineError(
        str(path),
        field="schema_version",
        got=got,
        expected=f"{version}, the version this suite reads",
        remedy="Restore the file from version control, or update the suite",
    )


def _read_as(path: Path, data: Mapping[str, Any], kind: type[_Document], remedy: str) -> _Document:
    try:
        return read_as(data, kind)
    except WrongRecord as wrong:
        raise BaselineError(
            str(path), field=wrong.field, got=wrong.got, expected=wrong.expected, remedy=remedy
        ) from wrong
