"""The command line as a whole: commands, exit statuses, and where an answer cannot be written."""

from __future__ import annotations

import argparse
import io
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import TextIO

import pytest

import helpers.commands.main
from helpers.commands.main import (
    EXIT_INTERRUPTED,
    EXIT_USAGE,
    commands,
    main,
    parser_of,
)
from helpers.session.gate import EXIT_OK
from helpers.trainers.contract import ROOT
from helpers.trainers.contract.errors import ConfigError


def run_with(monkeypatch: pytest.MonkeyPatch, behaviour: BaseException | str) -> tuple[int, str]:
    """Status and output of a command that raises ``behaviour`` or prints it."""

    def run(arguments: argparse.Namespace, out: TextIO) -> int:
        if isinstance(behaviour, BaseException):
            raise behaviour
        out.write(behaviour)
        return EXIT_OK

    command = SimpleNamespace(NAME="ask", HELP="Ask", EXITS={0: "asked"}, add_arguments=lambda parser: None, run=run)
    monkeypatch.setattr(helpers.commands.main, "asked_commands", lambda argv: (command,))
    out = io.StringIO()
    return main(["ask"], out), out.getvalue()


def test_every_command_has_a_name_and_says_what_it_does() -> None:
    names = (
        "bisect builds calibrate cases compare doctor "
        "explain fleet gate history import-log init mark prove-gpu publish reindex submit"
    )
    found = [command.NAME for command in commands()]
    assert found == sorted(found)
    assert set(names.split()) <= set(found), "a command is gone; a new one needs no entry here"
    assert all(command.HELP for command in commands())


@pytest.mark.slow
def test_knowing_the_commands_imports_no_database_and_no_numpy() -> None:
    heavy = {"numpy", "sqlalchemy", "jinja2", "svg"}
    asked = "import sys; from helpers.commands.main import commands; commands(); print(*sys.modules)"
    told = subprocess.run([sys.executable, "-c", asked], cwd=ROOT, capture_output=True, text=True, check=True)
    assert heavy & set(told.stdout.split()) == set()


@pytest.mark.parametrize("argv", [["help", "bisect"], ["bisect", "--help"]])
def test_the_help_of_a_command_ends_with_its_exit_codes(
    argv: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    with pytest.raises(SystemExit) as ended:
        main(argv)
    assert ended.value.code == EXIT_OK
    before, exits = capsys.readouterr().out.split("\nexit codes:\n")
    assert before.startswith("usage: perfgate bisect")
    assert [line.split()[0] for line in exits.splitlines()] == ["0", "3", "4", "6", "7", "8", "130", "141"]
    assert "  8  a case is not slower with the bad build" in exits


@pytest.mark.parametrize(
    ("behaviour", "status", "told"),
    [
        (ConfigError("perf.yaml", got="x", expected="y"), EXIT_USAGE, "perfgate ask: error: perf.yaml: got 'x'"),
        # The name of the command, or of its action, is there once.
        (ConfigError("perfgate ask", got="x"), EXIT_USAGE, "perfgate ask: error: got 'x'"),
        (ConfigError("perfgate ask me", got="x: y"), EXIT_USAGE, "perfgate ask me: error: got 'x: y'"),
        (ConfigError("a\x1b[31mred"), EXIT_USAGE, r"a\x1b[31mred"),
        (OSError(28, "No space left on device"), EXIT_USAGE, "No space left on device"),
        (KeyboardInterrupt(), EXIT_INTERRUPTED, "interrupted"),
    ],
)
def test_an_error_is_one_printable_line_and_a_status(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    behaviour: BaseException,
    status: int,
    told: str,
) -> None:
    assert run_with(monkeypatch, behaviour) == (status, "")
    error = capsys.readouterr().err
    assert told in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    "argv",
    [
        [], ["no-such-command"], ["explain"], ["cases", "--no"],
        # An abbreviation, of an option of any command, of a command and of an action.
        ["cases", "--conf", "perf.yaml"], ["cases", "--mark"], ["builds", "list", "--js"],
        ["cases", "--json", "--markdown"],
    ],
)  # fmt: skip
def test_a_wrong_command_line_is_status_4_with_the_usage(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(argv)
    assert ended.value.code == EXIT_USAGE
    assert "usage: perfgate" in capsys.readouterr().err


def options_of(name: str, parser: argparse.ArgumentParser) -> Iterator[tuple[str, str, argparse.Action]]:
    """Every option of a command and of its actions, with the command."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for each, below in action.choices.items():
                yield from options_of(f"{name} {each}".strip(), below)
        for option in action.option_strings:
            yield option, name, action


def test_an_option_means_the_same_in_every_command() -> None:
    found: dict[str, dict[object, list[str]]] = {}
    words: dict[str, set[object]] = {}
    for option, command, action in options_of("", parser_of(commands())):
        takes = None if action.nargs == 0 else action.metavar or tuple(action.choices or ())
        found.setdefault(option, {}).setdefault(takes, []).append(command)
        words.setdefault(option, set()).add((action.help, action.type, action.nargs))
    # The nodes of a fleet have names; those of a log are counted.
    assert found.pop("--nodes").keys() == {"N", "NODES"}
    assert {option: each for option, each in found.items() if len(each) > 1} == {}
    alike = ("--config", "--baselines", "--json", "--log-format")
    assert {option: words[option] for option in alike if len(words[option]) > 1} == {}


def test_a_configuration_that_is_not_there_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cases", "--config", str(tmp_path / "none.yaml")]) == EXIT_USAGE
    assert "none.yaml" in capsys.readouterr().err


def started(*argv: str, **more: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "helpers.commands", *argv],
        cwd=ROOT,
        env={**os.environ, **more},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.slow
@pytest.mark.parametrize(("columns", "widest"), [("80", range(70, 81)), ("200", range(90, 101)), ("20", range(50, 61))])
def test_the_answer_fits_the_terminal_between_60_and_100_columns(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, columns: str, widest: range
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    assert main(["cases", "--target", "cpu"]) == 0
    told = capsys.readouterr()
    assert max(map(len, told.out.splitlines())) in widest
    assert told.err == ""


@pytest.mark.slow
def test_a_terminal_of_few_letters_still_gets_its_answer() -> None:
    case = "paddle-vgg16-fp32-bs1-1x1-dali-dynamic"
    out, errors = started("cases", case, PYTHONIOENCODING="ascii").communicate()
    assert r"\xb1" in out
    assert errors == ""
