"""An error that nobody foresaw, in every command: exit 3, one sentence, the traceback in a private file, no secret."""

from __future__ import annotations

import argparse
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

import helpers.commands.main
from helpers.commands.main import EXIT_NO_READER, EXIT_USAGE, commands, main
from helpers.plan.perf_yaml import load_config
from helpers.report.unforeseen import EXIT_UNFORESEEN, SAFE, unforeseen
from helpers.trainers.contract import ROOT

SECRET = "pa55w0rd"


def endless(depth: int = 0) -> int:
    return endless(depth + 1)


def without_memory() -> bytearray:
    return bytearray(1 << 62)


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
    "Wordless": without_words,
    "RuntimeError": with_a_secret,
}


def test_a_password_that_perf_yaml_names_is_in_no_traceback(tmp_path: Path, accidents: Path) -> None:
    path = tmp_path / "perf.yaml"
    config = {"history": {"url": f"postgresql://user:{SECRET}@host/db"}}
    path.write_text(yaml.safe_dump(config), encoding="utf-8")
    path.chmod(0o600)
    load_config(path)
    try:
        raise RuntimeError(f"refused: {{'user': 'user', 'word': '{SECRET}'}}")
    except RuntimeError as error:
        sentence = unforeseen(error, ["perfgate", "history"], {})
    (report,) = accidents.iterdir()
    assert SECRET not in sentence + report.read_text() and "'word': '***'" in report.read_text()


@pytest.mark.parametrize("fault", FAULTS)
def test_any_command_ends_with_a_code_of_its_own_and_one_sentence(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    accidents: Path,
    fault: str,
) -> None:
    command = commands()[0]

    def broken(arguments: argparse.Namespace, out: object) -> int:
        FAULTS[fault]()
        return 0

    monkeypatch.setattr(command, "run", broken)
    monkeypatch.setattr(helpers.commands.main, "asked_commands", lambda argv: (command,))
    assert main([command.NAME]) == EXIT_UNFORESEEN
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


@pytest.mark.slow
def test_a_pipe_that_is_not_the_answer_s_is_told(accidents: Path) -> None:
    asked = "import sys\nfrom helpers.commands import cases, main\n"
    asked += "from tests.helpers.commands.test_unforeseen import of_another_pipe\n"
    asked += "cases.run = lambda arguments, out: of_another_pipe()\n"
    asked += "sys.exit(main.main(['cases']))"
    done = subprocess.run([sys.executable, "-c", asked], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (EXIT_USAGE, "perfgate cases: error: [Errno 32] Broken pipe\n")


@pytest.mark.slow
def test_the_process_itself_ends_so_and_prints_no_traceback(accidents: Path) -> None:
    asked = "import sys\nfrom helpers.commands import cases, main\n"
    asked += "from tests.helpers.commands.test_unforeseen import FAULTS\n"
    asked += "cases.run = lambda arguments, out: FAULTS['RecursionError']()\nsys.exit(main.main(['cases']))"
    done = subprocess.run([sys.executable, "-c", asked], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (EXIT_UNFORESEEN, "", 1)


@pytest.mark.slow
@pytest.mark.parametrize(("argv", "unbuffered"), [(["cases"], ""), (["cases"], "1"), (["--help"], "")])
def test_without_a_reader_an_answer_ends_quietly_and_is_no_success(argv: list[str], unbuffered: str) -> None:
    read, write = os.pipe()
    os.close(read)
    program = [sys.executable, "-m", "helpers.commands", *argv]
    variables = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    done = subprocess.run(program, cwd=ROOT, env=variables, stdout=write, stderr=subprocess.PIPE, check=False)
    os.close(write)
    assert (done.returncode, done.stderr) == (EXIT_NO_READER, b"")


@pytest.mark.slow
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


def test_passwords_of_the_command_line_and_of_variables_are_in_no_traceback(accidents: Path) -> None:
    words = ["perfgate", "history", "--history", "postgresql://user:s3cr%40t@host/db"]
    told = unforeseen(ValueError("s3cr@t or s3cr%40t or fromvariable"), words, {"PGPASSWORD": "fromvariable"})
    (kept,) = accidents.iterdir()
    text = told + kept.read_text(encoding="utf-8")
    assert "*** or *** or ***" in text
    assert not any(each in text for each in ("s3cr", "fromvariable"))
