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
from helpers.common.records import WrongRecord, matching, parse, read_as
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
Named = Annotated[str, matching(r"\S", "a text that is not empty")]


def read_document(path: Path, kind: type[_Document], *, version: int, remedy: str) -> _Document | None:
    """The JSON document in ``path`` as the dataclass ``kind``; None if there is no such file.

    ``version`` is its ``schema_version``. ``remedy`` says what a person can do about a damaged file. Raises
    BaselineError for a link (the file or its folder), anything that is not strict JSON, another version, and the first
    value that is not of its type.
    """
    refuse_link(path.parent)
    refuse_link(path)
    try:
        data = parse(read_text_limited(path, _MOST_BYTES, within=path.parent))
        got = data.get("schema_version", "nothing") if isinstance(data, dict) else "no object"
        if type(got) is not int or got != version:
            raise WrongRecord("schema_version", got, f"{version}, the version this suite reads")
        return read_as(data, kind)
    except FileNotFoundError:
        return None
    except WrongRecord as wrong:
        raise _refused(path, wrong, remedy) from wrong
    except (OSError, ValueError, RecursionError) as error:
        raise _refused(path, WrongRecord("file", str(error), "whole JSON in UTF-8, no conflict"), remedy) from error


def _refused(path: Path, wrong: WrongRecord, remedy: str) -> BaselineError:
    return BaselineError(str(path), field=wrong.field, got=wrong.got, expected=wrong.expected, remedy=remedy)


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
    try:
        read_as(data, kind)
        content = _escaped(_document_text(data)).encode("utf-8")
    except (WrongRecord, ValueError) as error:
        wrong = error if isinstance(error, WrongRecord) else WrongRecord("content", str(error), "finite numbers, UTF-8")
        raise _refused(path, wrong, "Nothing was written; measure again") from error
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
