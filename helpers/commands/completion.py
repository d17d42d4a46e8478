"""``perfgate completion SHELL``: prints a script with which a shell completes commands, options, cases and sessions."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TextIO

from helpers.commands.loading import load_suite
from helpers.history.run_folders import NO_SESSIONS
from helpers.session.gate import EXIT_OK
from helpers.trainers.contract import ROOT
from helpers.trainers.contract.errors import ConfigError

NAME = "completion"
HELP = "Print a script with which bash, zsh or fish completes commands, options, cases and sessions"
EXITS = {
    0: "the script is printed",
}

SHELLS = ("bash", "zsh", "fish")
# Metavars of arguments that the shell itself completes as files.
_FILES = ("FILE", "FILE|FOLDER", "FILE.svg", "PATH", "PYTHON")
_FOLDERS = ("FOLDER", "DIR", "RUNS")
_CASES = ("CASE",)
_SESSIONS = ("SESSION", "DATE|SESSION|COMMIT", "A", "B")
# Not by compgen -W, which would run a command that a folder's name holds.
_BASH_SESSIONS = """\
_perfgate_sessions() {
  local each
  for each in FOLDER/*/; do
    each=${each%/} each=${each##*/}
    [[ $each != @(OTHERS) && $each == "$1"* && $each != *[!A-Za-z0-9._-]* ]] && printf '%s\\n' "$each"
  done
}
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "shell",
        metavar="SHELL",
        choices=SHELLS,
        help=f"Print the script for this shell: {', '.join(SHELLS)}. For bash: source <(perfgate completion bash)",
    )


def run(arguments: argparse.Namespace, out: TextIO) -> int:
    """Print the script. The cases are those of perf.yaml now; sessions are looked up when they are completed."""
    # Not imported at the top: the first import finds this module, and only this command needs the second.
    from helpers.commands.main import commands, parser_of

    try:
        import shtab
    except ImportError as error:
        raise ConfigError("perfgate completion", got="no shtab", expected="it installed", remedy="make env") from error
    parser = parser_of(commands())
    case_ids = sorted({each.case.id for each in load_suite(arguments).cases})
    _add_help(parser)
    for action in _actions(parser):
        metavar = str(action.metavar)
        if metavar in _CASES:
            action.choices = case_ids
        elif metavar in _SESSIONS:
            _complete(action, _sessions(ROOT / "runs"))
        elif metavar in _FILES or metavar in _FOLDERS:
            _complete(action, shtab.FILE if metavar in _FILES else shtab.DIRECTORY)
    print(shtab.complete(parser, arguments.shell), file=out)
    return EXIT_OK


def _complete(action: argparse.Action, how: Mapping[str, object]) -> None:
    # shtab looks for this attribute, which argparse does not know.
    setattr(action, "complete", how)  # noqa: B010


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for each in action.choices.values():
                yield from _actions(each)
        else:
            yield action


def _add_help(parser: argparse.ArgumentParser) -> None:
    """Add ``help COMMAND``, which is not a command (helpers.commands.main.parsed handles it)."""
    (found,) = (each for each in parser._actions if isinstance(each, argparse._SubParsersAction))
    names: Sequence[str] = tuple(found.choices)
    help_parser = found.add_parser("help", help="Say more about a command")
    help_parser.add_argument("about", metavar="COMMAND", nargs="?", choices=names)


def _sessions(runs_folder: Path) -> dict[str, object]:
    """The names of the folders in ``runs_folder`` that are sessions, in the words of each shell."""
    folder, others = shlex.quote(str(runs_folder)), "|".join(NO_SESSIONS)
    return {
        "bash": "_perfgate_sessions",
        "zsh": "_perfgate_sessions",
        "fish": f"(command ls {folder} 2>/dev/null | string match -rv '^({others})$')",
        "preamble": {
            "bash": _BASH_SESSIONS.replace("OTHERS", others).replace("FOLDER", folder),
            "zsh": f"_perfgate_sessions() {{ compadd -F '({' '.join(NO_SESSIONS)})' -- {folder}/*(/N:t) }}\n",
        },
    }
