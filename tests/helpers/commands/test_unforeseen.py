"""An error that nobody foresaw, in every command: exit 3, one sentence, the traceback in a private file, no secret."""

from __future__ import annotations

import argparse
import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import helpers.commands.main
from helpers.commands.main import EXIT_NO_READER, EXIT_USAGE, Command, commands, main
from helpers.report.unforeseen import EXIT_UNFORESEEN, SAFE, unforeseen
from helpers.trainers.contract import ROOT

SECRET = "pa55w0rd"


def endless(depth: int = 0) -> int:
    return endless(depth + 1)


def without_memory() -> bytearray:
    return bytearray(1 << 62)


def of_many_digits() -> object:
    return json.loads("9" * 5000)


def without_words() -> None:
    class Wordless(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no words")

    raise Wordless


def of_another_pipe() -> None:
    read, write = os.pipe()
    os.close(read)
    try:
        os.write(write, b"x")
    finally:
        os.close(write)


def with_a_secret() -> None:
    try:
        raise ConnectionError(f"could not connect to postgresql://user:{SECRET}@host/db")
    except ConnectionError as error:
        raise RuntimeError(f"password={SECRET} was refused") from error


FAULTS: dict[str, Callable[[], object]] = {
    "MemoryError": without_memory,
    "RecursionError": endless,
    "ValueError": of_many_digits,
    "Wordless": without_words,
    "RuntimeError": with_a_secret,
    "ZeroDivisionError": lambda: 1 // 0,
    "SyntaxError": lambda: compile("(", "x\x1b[31m", "exec"),
}

# The least of arguments with which each command comes to its work.
ARGUMENTS = {
    "show": ["paddle-vgg16-fp32-bs1-1x1-dali-dynamic"],
    "compare": ["monday", "tuesday"],
    "compare-frameworks": [],
    "history": ["paddle-vgg16-fp32-bs1-1x1-dali-dynamic"],
    "acknowledge": ["x", "--at", "2026-01-01", "--commit", "abcd", "--reason", "y"],
    "verify-published": ["index.json"],
    "exclude": ["abcdef", "--reason", "y"],
    "import-log": ["x.log"],
    "group-report": ["folder"],
    "completion": ["bash"],
    "explain": ["paddle-vgg16-fp32-bs1-1x1-dali-dynamic"],
    "fleet": ["--report"],
    "publish": ["site"],
}


def parsed(command: Command) -> list[str]:
    """A command line that the command's parser takes."""
    return [command.NAME, *ARGUMENTS.get(command.NAME, [])]


# Every command with one fault, and one command with every fault.
@pytest.mark.parametrize(
    ("command", "fault"),
    [
        *(pytest.param(each, "RuntimeError", id=each.NAME) for each in commands()),
        *(pytest.param(commands()[0], each, id=each) for each in FAULTS if each != "RuntimeError"),
    ],
)
def test_any_command_ends_with_a_code_of_its_own_and_one_sentence(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    accidents: Path,
    command: Command,
    fault: str,
) -> None:
    def broken(arguments: argparse.Namespace, out: object) -> int:
        FAULTS[fault]()
        return 0

    monkeypatch.setattr(command, "run", broken)
    monkeypatch.setattr(helpers.commands.main, "asked_commands", lambda argv: (command,))
    assert main(parsed(command)) == EXIT_UNFORESEEN
    told = capsys.readouterr().err
    (kept,) = accidents.glob("perfgate-error-*")
    assert told.startswith(f"perfgate {command.NAME}: unforeseen error: {fault}")
    assert told.count("\n") == 1
    assert told.rstrip("\n").isprintable()
    assert str(kept) in told
    assert SAFE in told
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    traceback = kept.read_text(encoding="utf-8")
    assert "Traceback (most recent call last)" in traceback
    assert f"command: perfgate {command.NAME}" in traceback
    assert SECRET not in told + traceback


def test_a_fault_before_the_command_is_known_is_no_regression_either(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], accidents: Path
) -> None:
    monkeypatch.setattr(helpers.commands.main, "asked_commands", lambda argv: endless())
    assert main(["cases"]) == EXIT_UNFORESEEN
    assert capsys.readouterr().err.startswith("perfgate: unforeseen error: RecursionError")


@pytest.mark.slow
def test_a_pipe_that_is_not_the_answer_s_is_told(accidents: Path) -> None:
    asked = "import sys\nfrom helpers.commands import cases, main\n"
    asked += "from tests.helpers.commands.test_unforeseen import of_another_pipe\n"
    asked += "cases.run = lambda arguments, out: of_another_pipe()\n"
    asked += "sys.exit(main.main(['cases']))"
    done = subprocess.run([sys.executable, "-c", asked], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (EXIT_USAGE, "perfgate cases: error: [Errno 32] Broken pipe\n")


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["RecursionError", "MemoryError"])
def test_the_process_itself_ends_so_and_prints_no_traceback(accidents: Path, fault: str) -> None:
    asked = "import sys\nfrom helpers.commands import cases, main\n"
    asked += "from tests.helpers.commands.test_unforeseen import FAULTS\n"
    asked += f"cases.run = lambda arguments, out: FAULTS[{fault!r}]()\nsys.exit(main.main(['cases']))"
    done = subprocess.run([sys.executable, "-c", asked], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (EXIT_UNFORESEEN, "", 1)


@pytest.mark.slow
@pytest.mark.parametrize("argv", [["cases"], ["--help"], ["show", "--help"]])
def test_without_a_reader_an_answer_ends_quietly_and_is_no_success(argv: list[str]) -> None:
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-m", "helpers.commands", *argv], cwd=ROOT, stdout=write, stderr=subprocess.PIPE, check=False
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (EXIT_NO_READER, b"")


def test_a_closed_standard_output_is_told() -> None:
    command = f"exec {sys.executable} -m helpers.commands cases >&-"
    done = subprocess.run(["/bin/sh", "-c", command], cwd=ROOT, stderr=subprocess.PIPE, check=False)
    assert done.returncode == EXIT_USAGE
    assert b"standard output is closed" in done.stderr


def test_where_no_file_can_be_written_that_is_said(accidents: Path) -> None:
    accidents.rmdir()
    told = unforeseen(ValueError("x"), ["perfgate"])
    assert "its traceback could not be written (FileNotFoundError)" in told
    assert SAFE in told


def test_a_long_message_fills_neither_terminal_nor_disk(accidents: Path) -> None:
    told = unforeseen(ValueError("x" * 10_000_000), ["perfgate"])
    (kept,) = accidents.iterdir()
    assert len(told) < 1000
    assert kept.stat().st_size < 1 << 20


def test_passwords_of_the_command_line_and_of_variables_are_in_no_traceback(accidents: Path) -> None:
    words = ["perfgate", "history", "--history", "postgresql://user:s3cr%40t@host/db"]
    told = unforeseen(ValueError("s3cr@t or s3cr%40t or fromvariable"), words, {"PGPASSWORD": "fromvariable"})
    (kept,) = accidents.iterdir()
    text = told + kept.read_text(encoding="utf-8")
    assert "*** or *** or ***" in text
    assert not any(each in text for each in ("s3cr", "fromvariable"))
