"""The formats of a command's answer. A format is one entry in the command's registry; its options follow from that.

A registry maps the name that a user gives to a function of the answer and of the width of a line in columns.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TextIO, TypeVar

from helpers.commands.loading import check_place, width_of, write_answer

Answer = TypeVar("Answer")
Formats = Mapping[str, Callable[[Answer, int], str]]

TEXT, MARKDOWN, JSON = "text", "markdown", "json"
_TITLES = {TEXT: "text", MARKDOWN: "Markdown", JSON: "JSON"}


def json_text(record: Any, *, sort_keys: bool = True) -> str:
    """The record as JSON. Raises ValueError on a number that is not finite."""
    return json.dumps(record, indent=1, sort_keys=sort_keys, allow_nan=False, default=dict)


def add_printed_formats(parser: argparse.ArgumentParser, formats: Formats[Any]) -> None:
    """``--json``, and ``--format`` where there is more than text and JSON; both at once are refused."""
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--json", action="store_true", help="Print JSON")
    others = [name for name in formats if name != JSON]
    if len(others) > 1:
        titles = [f"{_title(name)}{' (default)' if name == TEXT else ''}" for name in others]
        group.add_argument("--format", choices=others, default=TEXT, help=f"Print {' or '.join(titles)}")


def print_answer(arguments: argparse.Namespace, formats: Formats[Answer], answer: Answer, out: TextIO) -> None:
    """Print the answer in the format that the options of ``add_printed_formats`` name."""
    name = JSON if arguments.json else getattr(arguments, "format", TEXT)
    print(formats[name](answer, width_of(out)), file=out)


def add_file_formats(parser: argparse.ArgumentParser, formats: Formats[Any]) -> None:
    """An option ``--NAME FILE`` for each format."""
    for name in formats:
        parser.add_argument(
            f"--{name}", type=Path, metavar="FILE", help=f"Write the answer to FILE as {_title(name)}, too"
        )


def check_files(arguments: argparse.Namespace, formats: Formats[Any]) -> None:
    """Refuse, before hours of measuring, a file that could not be written. Raises ConfigError."""
    for name in formats:
        check_place(f"--{name}", getattr(arguments, name))


def write_files(arguments: argparse.Namespace, formats: Formats[Answer], answer: Answer, out: TextIO) -> None:
    """Write the files that the options of ``add_file_formats`` name. Raises ConfigError where one cannot be written."""
    for name, render in formats.items():
        if (path := getattr(arguments, name)) is not None:
            write_answer(f"--{name}", path, render(answer, width_of(out)).rstrip("\n") + "\n")


def _title(name: str) -> str:
    return _TITLES.get(name, name)
