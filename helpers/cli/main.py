"""``perfgate COMMAND``: everything that is asked outside a pytest run. A command is a module of this folder."""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn, Protocol, TextIO

from helpers.errors import SuiteError
from helpers.launch.launcher import ROOT
from helpers.report.text import printable

EXIT_OK = 0
# A wrong command line, a file that cannot be read: nothing was answered. pytest's own number for a usage error.
EXIT_USAGE = 4
# As a shell has it for a command that Ctrl-C ended.
EXIT_INTERRUPTED = 130


class Command(Protocol):
    """One subcommand; ``run`` writes its answer to ``out`` and returns the exit status."""

    NAME: str
    HELP: str

    def add_arguments(self, parser: argparse.ArgumentParser) -> None: ...

    def run(self, arguments: argparse.Namespace, out: TextIO) -> int: ...


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(EXIT_USAGE, f"{self.prog}: error: {printable(message)}\n")


def commands() -> tuple[Command, ...]:
    from helpers.cli import (
        acknowledge,
        calibrate,
        cases,
        compare,
        compare_frameworks,
        doctor,
        exclude,
        group_report,
        history,
        import_log,
        reindex,
        show,
        trend,
        verify_published,
    )

    return (
        show,
        cases,
        doctor,
        calibrate,
        compare,
        compare_frameworks,
        history,
        trend,
        acknowledge,
        exclude,
        reindex,
        import_log,
        verify_published,
        group_report,
    )


def parser_of(known: Sequence[Command]) -> argparse.ArgumentParser:
    """The command line of ``known``; every command takes ``--config`` and ``--baselines``."""
    parser = _Parser(prog="perfgate", description="Does this machine still train as fast as it should?")
    parsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for command in known:
        sub = parsers.add_parser(command.NAME, help=command.HELP, description=command.HELP)
        sub.add_argument(
            "--config", type=Path, default=ROOT / "perf.yaml", metavar="FILE", help="Read FILE instead of perf.yaml"
        )
        sub.add_argument(
            "--baselines",
            type=Path,
            default=ROOT / "baselines",
            metavar="FOLDER",
            help="Read baselines in FOLDER. Default: baselines",
        )
        command.add_arguments(sub)
        sub.set_defaults(run=command.run)
    return parser


def main(argv: Sequence[str], out: TextIO | None = None) -> int:
    """Run one command; an error is one line on standard error and status 4."""
    arguments = parser_of(commands()).parse_args(argv)
    stream = sys.stdout if out is None else out
    if isinstance(stream, io.TextIOWrapper):
        # A terminal without the arrow and the plus-minus sign still gets its answer.
        stream.reconfigure(errors="backslashreplace")
    try:
        status: int = arguments.run(arguments, stream)
        stream.flush()
    except SuiteError as error:
        return _ended(arguments.command, f"error: {error}", EXIT_USAGE)
    except BrokenPipeError:
        # The reader (head, less) has seen enough.
        _silence(stream)
        return EXIT_OK
    except OSError as error:
        _silence(stream)
        return _ended(arguments.command, f"error: {error}", EXIT_USAGE)
    except KeyboardInterrupt:
        return _ended(arguments.command, "interrupted", EXIT_INTERRUPTED)
    return status


def _ended(command: str, words: str, status: int) -> int:
    print(f"perfgate {command}: {printable(words)}", file=sys.stderr)
    return status


def _silence(stream: TextIO) -> None:
    """The interpreter's own flush of what could not be written must not complain at exit."""
    if stream is sys.stdout:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
