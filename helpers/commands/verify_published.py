"""``perfgate verify-published DIR``: checks whether the logs of published figures give these figures."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from helpers.commands.loading import JSON, TEXT, Formats, add_printed_formats, json_text, print_answer
from helpers.report.table import Align, Column, Table
from helpers.report.text import hanging
from helpers.session.gate import EXIT_OK
from helpers.trainers.contract.errors import printable

if TYPE_CHECKING:
    # Not imported at run time: it would import numpy, even for commands that read no log.
    from helpers.logs.published import Verified

NAME = "verify-published"
HELP = "Recompute published figures from their logs; fail where one differs by more than its last printed digit"
EXITS = {
    0: "every figure agrees",
    1: "a figure does not agree",
}

# 1: first format.
VERIFY_SCHEMA_VERSION = 1

EXIT_DIFFERS = 1

_INDENT = "  "
_AGREES, _DIFFERS, _MISSING = "agrees", "DIFFERS", "NO FIGURE"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "folder", metavar="DIR", type=Path, help="Folder of the logs; the index names each by its path in DIR"
    )
    parser.add_argument("--index", type=Path, metavar="FILE", help="Read this index. Default: DIR/INDEX.csv")
    add_printed_formats(parser, FORMATS)


def run(arguments: argparse.Namespace, out: TextIO) -> int:
    """Print the published figure, the computed figure, their difference and the rule of each row. Exit status 1 if a
    row does not agree.

    Raises LogError on an index that cannot be read.
    """
    from helpers.logs.published import INDEX, read_index, verify

    folder = arguments.folder.expanduser()
    found = verify(folder, read_index(arguments.index or folder / INDEX))
    print_answer(arguments, FORMATS, found, out)
    return EXIT_DIFFERS if any(each.problem for each in found) else EXIT_OK


def render_verified(found: Sequence[Verified], width: int) -> str:
    """For each row: its file and configuration on one line, then its figures, then its problem."""
    grid = Table.of(_COLUMNS, found).grid(_INDENT)
    lines = [grid.heading, "-" * width]
    for each, line in zip(found, grid.lines, strict=True):
        lines += hanging(f"{_short(each.entry.file, width // 2)}: {_configuration(each)}", width, "", _INDENT)
        lines.append(line)
        for text in each.lines or filter(None, (each.problem,)):
            lines += hanging(text, width, _INDENT * 2, _INDENT * 3)
    agreeing = sum(not each.problem for each in found)
    return "\n".join([*lines, "", f"{agreeing} of {len(found)} agree with the published figure"])


def verified_record(each: Verified) -> dict[str, Any]:
    """One row as plain values; the figures of the index as they are printed there."""
    entry = each.entry
    return {
        "line": entry.line,
        "file": entry.file,
        "settings": {setting.value: stated.value for setting, stated in entry.settings.items()},
        "rule": each.rule,
        "published_images_per_s": str(entry.published),
        "index_images_per_s": None if entry.computed is None else str(entry.computed),
        "computed_images_per_s": each.samples_per_s,
        "difference_images_per_s": None if each.difference is None else float(each.difference),
        "agrees": not each.problem,
        "problem": each.problem,
    }


def render_json(found: Sequence[Verified], _width: int) -> str:
    return json_text({"schema_version": VERIFY_SCHEMA_VERSION, "rows": [verified_record(each) for each in found]})


FORMATS: Formats[Sequence[Verified]] = {TEXT: render_verified, JSON: render_json}


def _configuration(each: Verified) -> str:
    from helpers.logs.settings import LogSetting

    stated = {setting: value.value for setting, value in each.entry.settings.items()}
    cards = stated[LogSetting.CARDS]
    return (
        f"{stated[LogSetting.FRAMEWORK]} {stated[LogSetting.MODEL]} {stated[LogSetting.PRECISION]} "
        f"bs{stated[LogSetting.BATCH_SIZE_PER_CARD]}, {cards} {stated[LogSetting.GPU]}"
    )


def _short(file: str, width: int) -> str:
    """The end of a path, which says more than its beginning."""
    return file if len(file) <= width else "…" + file[-(width - 1) :]


def _computed(each: Verified) -> str:
    return "-" if each.samples_per_s is None else f"{each.samples_per_s:.3f}"


def _difference(each: Verified) -> str:
    return "-" if each.difference is None else f"{each.difference:+.3f}"


def _answer(each: Verified) -> str:
    if each.samples_per_s is None:
        return _MISSING
    return _DIFFERS if each.problem else _AGREES


_COLUMNS: tuple[Column[Verified], ...] = (
    Column("published", lambda each: str(each.entry.published), Align.RIGHT),
    Column("computed", _computed, Align.RIGHT),
    Column("difference", _difference, Align.RIGHT),
    Column("", _answer, Align.RIGHT),
    Column("rule", lambda each: printable(each.rule)),
)
