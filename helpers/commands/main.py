"""``perfgate COMMAND``: the commands for everything besides pytest. Each command is a module of this folder."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import os
import pkgutil
import select
import shutil
import sys
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn, Protocol, TextIO, cast

import helpers.commands
from helpers.common.masking import passwords_in, without_secrets
from helpers.common.own_folder import own_folder
from helpers.machine.address_space import short_address_space
from helpers.report.unforeseen import EXIT_UNFORESEEN, unforeseen
from helpers.trainers.contract.errors import SuiteError, printable

# A wrong command line or an unreadable file: there is no answer. It is pytest's number for a usage error.
EXIT_USAGE = 4
# A shell gives this status to a command that Ctrl-C ended.
EXIT_INTERRUPTED = 130
# A shell gives this status to a command that SIGPIPE ended: its reader (head, less) has stopped reading. It cannot be
# 0, which means that the whole answer was written and was good.
EXIT_NO_READER = 141
# The exit statuses that every command may have; EXITS of a command has its own.
EXITS_OF_ANY = {
    EXIT_UNFORESEEN: "an unforeseen error: one sentence says where its traceback is",
    EXIT_USAGE: "a wrong command line, or a file that cannot be read: there is no answer",
    EXIT_INTERRUPTED: "interrupted",
    EXIT_NO_READER: "the program that reads the output is gone",
}
_VERSION = "--version"


class Command(Protocol):
    """One subcommand; ``run`` writes its answer to ``out`` and returns the exit status."""

    NAME: str
    HELP: str
    # Exit status -> when it is returned; those of EXITS_OF_ANY are not repeated.
    EXITS: Mapping[int, str]

    def add_arguments(self, parser: argparse.ArgumentParser) -> None: ...

    def run(self, arguments: argparse.Namespace, out: TextIO) -> int: ...


class _ShowVersion(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        # Not imported at the top: it would load the code that examines the machine.
        from helpers.machine.facts import suite_version

        print(f"perfgate {suite_version()}")
        parser.exit()


class _Parser(argparse.ArgumentParser):
    """A parser whose help ends with ``exits`` and whose mistakes have the status EXIT_USAGE."""

    exits: Mapping[int, str] = {}

    def __init__(self, **given: Any) -> None:
        # An option that is added later must not change what an old command line means.
        super().__init__(**{**given, "allow_abbrev": False})

    def format_help(self) -> str:
        width = shutil.get_terminal_size().columns - 2
        lines = [
            textwrap.fill(f"{status:3}  {when}", width, initial_indent="  ", subsequent_indent=" " * 7)
            for status, when in sorted(self.exits.items())
        ]
        return super().format_help() + ("\nexit codes:\n" + "\n".join(lines) + "\n" if lines else "")

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(EXIT_USAGE, f"{self.prog}: error: {printable(without_secrets(message))}\n")


def commands() -> tuple[Command, ...]:
    """Every module of this folder that has a NAME, in the order of their names."""
    found = map(_command_in, _modules())
    return tuple(sorted(filter(None, found), key=lambda command: command.NAME))


def asked_commands(argv: Sequence[str]) -> tuple[Command, ...]:
    """The command that ``argv`` names, if a module has its name; none for the version; all commands for help or a wrong
    name.

    Importing all commands takes longer than many answers.
    """
    asked = argv[0] if argv else ""
    if asked == _VERSION:
        return ()
    for module in _modules():
        if module.replace("_", "-") == asked and (command := _command_in(module)) is not None:
            return (command,)
    return commands()


def _modules() -> list[str]:
    return [found.name for found in pkgutil.iter_modules(helpers.commands.__path__) if not found.ispkg]


def _command_in(module: str) -> Command | None:
    """The command of a module; None for a module that is not a command."""
    found = importlib.import_module(f"helpers.commands.{module}")
    return cast(Command, found) if hasattr(found, "NAME") else None


def parser_of(known: Sequence[Command]) -> argparse.ArgumentParser:
    """The command line of ``known``; every command takes ``--config`` and ``--baselines``."""
    parser = _Parser(
        prog="perfgate",
        description="Does this machine still train as fast as it should?",
        epilog="perfgate help COMMAND says more about a command.",
    )
    parser.exits = EXITS_OF_ANY
    parser.add_argument(_VERSION, action=_ShowVersion, nargs=0, help="Print the suite's version and commit")
    parsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for command in known:
        sub = parsers.add_parser(command.NAME, help=command.HELP, description=command.HELP)
        sub.exits = {**EXITS_OF_ANY, **command.EXITS}
        add_configuration(sub, own_folder() / "perf.yaml", own_folder() / "baselines")
        command.add_arguments(sub)
        sub.set_defaults(run=command.run)
    return parser


def add_configuration(parser: argparse.ArgumentParser, config: object, baselines: object) -> None:
    """The options of every command, with their defaults."""
    parser.add_argument(
        "--config",
        type=Path,
        default=config,
        metavar="FILE",
        help="Read FILE instead of perf.yaml",
    )
    parser.add_argument(
        "--baselines",
        type=Path,
        default=baselines,
        metavar="FOLDER",
        help="Read baselines in FOLDER. Default: baselines",
    )


def parsed(argv: Sequence[str]) -> argparse.Namespace:
    """The arguments of ``argv``; ``help COMMAND`` is ``COMMAND --help``. Raises SystemExit, as argparse does."""
    if argv[:1] == ["help"]:
        argv = [*argv[1:], "--help"]
    known = asked_commands(argv)
    return parser_of(known).parse_args(argv)


def main(argv: Sequence[str], out: TextIO | None = None) -> int:
    """Run one command. An error is one line on standard error and exit status 4; an unforeseen error has status 3."""
    stream = sys.stdout if out is None else out
    name = "perfgate"
    try:
        if stream is None:
            return _ended(name, "error: standard output is closed: there is nowhere to write the answer to", EXIT_USAGE)
        arguments = parsed(list(argv))
        name = f"perfgate {arguments.command}"
        # Only where no file is named the defaults hold.
        named: Path = arguments.config
        if named != own_folder() / "perf.yaml" and arguments.command != "init" and not named.expanduser().exists():
            return _ended(name, f"error: --config {named}: no such file", EXIT_USAGE)
        if isinstance(stream, io.TextIOWrapper):
            # Characters that the terminal lacks (arrow, plus-minus sign) are escaped.
            stream.reconfigure(errors="backslashreplace")
        # A gate becomes a session of pytest, which looks itself.
        if arguments.command != "gate" and (short := short_address_space("helpers.session.suite")):
            return _ended(name, f"error: {short}", EXIT_USAGE)
        status: int = arguments.run(arguments, stream)
        stream.flush()
    except SystemExit as end:
        if not end.code and _has_no_reader(stream):
            # argparse ignores errors when it prints its help.
            _silence(stream)
            return EXIT_NO_READER
        raise
    except (SuiteError, OSError) as error:
        if isinstance(error, BrokenPipeError) and _has_no_reader(stream):
            _silence(stream)
            return EXIT_NO_READER
        _flush(stream)
        # An error about the command itself, or about one of its actions, names it.
        about, _, text = str(error).partition(": ")
        if text and about.startswith(name):
            name = about
        else:
            text = str(error)
        return _ended(name, f"error: {without_secrets(text, passwords_in(argv))}", EXIT_USAGE)
    except KeyboardInterrupt:
        return _ended(name, "interrupted", EXIT_INTERRUPTED)
    except Exception as error:  # noqa: BLE001 - Python's own end would be a regression's code
        _flush(stream)
        return _ended(name, unforeseen(error, ["perfgate", *argv]), EXIT_UNFORESEEN)
    return status


def _ended(name: str, words: str, status: int) -> int:
    # If standard error has no reader either, only the exit status is left.
    with contextlib.suppress(OSError):
        print(f"{name}: {printable(words)}", file=sys.stderr, flush=True)
    return status


def _has_no_reader(stream: TextIO) -> bool:
    """Whether the pipe of the answer broke, not one to a process that the command started."""
    look = select.poll()
    try:
        look.register(stream.fileno(), select.POLLOUT)
    except (OSError, ValueError):
        return False
    return any(state & (select.POLLERR | select.POLLHUP) for _, state in look.poll(0))


def _flush(stream: TextIO) -> None:
    """Write the part of the answer that there is."""
    try:
        stream.flush()
    except (OSError, ValueError):
        _silence(stream)


def _silence(stream: TextIO) -> None:
    """Prevent the interpreter's error at exit about output that it cannot flush."""
    if stream is sys.stdout:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
