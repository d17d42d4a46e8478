"""The command line as a whole: commands, exit statuses, and where an answer cannot be written."""

from __future__ import annotations

import argparse
import io
import os
import re
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
    EXIT_NO_READER,
    EXIT_USAGE,
    EXITS_OF_ANY,
    asked_commands,
    commands,
    main,
    parser_of,
)
from helpers.session.gate import EXIT_OK
from helpers.trainers.contract import ROOT
from helpers.trainers.contract.errors import ConfigError
from tests.for_each import for_each


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
        "acknowledge bisect builds calibrate cases compare compare-frameworks completion doctor exclude "
        "explain fleet gate group-report history import-log pin plan prove-gpu publish reindex show submit "
        "trend verify-published"
    )
    found = [command.NAME for command in commands()]
    assert found == sorted(found)
    assert set(names.split()) <= set(found), "a command is gone; a new one needs no entry here"
    assert all(command.HELP for command in commands())


def test_knowing_the_commands_imports_no_database_and_no_numpy() -> None:
    heavy = {"numpy", "sqlalchemy", "alembic", "jinja2", "svg"}
    asked = "import sys; from helpers.commands.main import commands; commands(); print(*sys.modules)"
    told = subprocess.run([sys.executable, "-c", asked], cwd=ROOT, capture_output=True, text=True, check=True)
    assert heavy & set(told.stdout.split()) == set()


@for_each("name", [command.NAME for command in commands()])
def test_the_command_that_is_asked_for_is_found_alone(name: str) -> None:
    assert [command.NAME for command in asked_commands([name, "--help"])] == [name]


@pytest.mark.parametrize("argv", [[], ["--help"], ["no-such"], ["loading"], ["main"], ["import_log"], ["../main"]])
def test_for_a_help_or_a_wrong_name_all_are_known(argv: list[str]) -> None:
    assert asked_commands(argv) == commands()


def test_asking_one_command_imports_no_other() -> None:
    asked = (
        "import sys; from helpers.commands.main import asked_commands; asked_commands(['cases']); print(*sys.modules)"
    )
    told = subprocess.run([sys.executable, "-c", asked], cwd=ROOT, capture_output=True, text=True, check=True)
    assert {"helpers.commands.compare", "helpers.commands.doctor"} & set(told.stdout.split()) == set()


def test_every_exit_code_is_in_the_reference_as_in_the_helps() -> None:
    text = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")
    section = re.search(r"^## Exit codes\n(.*?)^## ", text, re.MULTILINE | re.DOTALL)
    assert section is not None
    _, of_any = section[1].split("| code | of any command |")
    assert dict(re.findall(r"^\| (\d+) \| (.+) \|$", of_any, re.MULTILINE)) == {
        str(status): when for status, when in EXITS_OF_ANY.items()
    }
    assert re.findall(r"^\| `(.+)` \| (\d+) \| (.+) \|$", of_any, re.MULTILINE) == [
        (command.NAME, str(status), when) for command in commands() for status, when in command.EXITS.items()
    ]


@pytest.mark.parametrize("argv", [["help", "bisect"], ["bisect", "--help"], ["bisect", "-h"]])
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


def test_help_alone_lists_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["help"])
    assert ended.value.code == EXIT_OK
    told = capsys.readouterr().out
    assert all(f"    {command.NAME}" in told for command in commands())


def test_the_version_is_pyprojects_with_the_commit(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("helpers.machine.facts.suite_commit", lambda checkout: "e94319a0c2d1")
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == EXIT_OK
    told = capsys.readouterr().out
    assert re.fullmatch(r"perfgate \d+\.\d+\.\d+ \(e94319a0c2d1\)\n", told)
    assert f'version = "{told.split()[1]}"' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        (["hstory"], "no command 'hstory': did you mean history?"),
        (["import_log"], "did you mean import-log?"),
        (["help", "comparee"], "did you mean compare"),
        (["xyzzy"], "perfgate help lists the commands"),
    ],
)
def test_a_wrong_command_gets_the_nearest(argv: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(argv)
    assert ended.value.code == EXIT_USAGE
    assert told in capsys.readouterr().err


def test_an_answer_goes_out_with_status_0(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run_with(monkeypatch, "an answer\n") == (EXIT_OK, "an answer\n")


@pytest.mark.parametrize(
    ("behaviour", "status", "told"),
    [
        (ConfigError("perf.yaml", got="x", expected="y"), EXIT_USAGE, "perfgate ask: error: perf.yaml: got 'x'"),
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
        [], ["no-such-command"], ["show"], ["cases", "--format", "pdf"], ["cases", "--no"],
        ["show", "--json", "paddle-vgg16-fp32-bs8-1x2-dali-static"], ["cases", "--json", "paddle-*"],
        ["doctor", "--json", str(ROOT / "perf.yaml")],
        ["cases", "--json", "--format", "markdown"], ["doctor", "--json", "--format", "markdown"],
        *(["cases", "--build", "--build-seconds", seconds] for seconds in ("nan", "inf", "0", "-1", "soon")),
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
    assert found.pop("--nodes").keys() == {"N", "PATTERN"}
    assert {option: each for option, each in found.items() if len(each) > 1} == {}
    alike = ("--config", "--perf-config", "--baselines", "--baselines-dir", "--json", "--markdown", "--log-format")
    assert {option: words[option] for option in alike if len(words[option]) > 1} == {}
    assert None not in found["--json"]


@pytest.mark.parametrize("option", ["--config", "--perf-config"])
@pytest.mark.parametrize("command", ["show", "cases"])
def test_a_configuration_that_is_not_there_is_named(
    command: str, option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = [command, *(["paddle-x"] if command == "show" else []), option, str(tmp_path / "none.yaml")]
    assert main(argv) == EXIT_USAGE
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


def test_a_reader_that_has_seen_enough_is_no_error_and_no_whole_answer() -> None:
    process = started("show", "paddle-vgg16-fp32-bs1-1x1-dali-dynamic", PYTHONUNBUFFERED="1")
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    told = process.stderr.read()
    process.stderr.close()
    assert (process.wait(), told) == (EXIT_NO_READER, "")


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
    out, errors = started("show", case, "--set", "momentum=0.8", PYTHONIOENCODING="ascii").communicate()
    assert r"momentum: 0.9 \u2192 0.8" in out
    assert errors == ""
