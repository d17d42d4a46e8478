"""The programs beside the commands: an error that nobody foresaw is their 3, too."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.report.unforeseen import ended
from helpers.trainers.contract import ROOT
from helpers.trainers.contract.errors import ConfigError

# They run in a framework's own interpreter or below another program, which reads what they print.
WORKERS = {
    "benchmarks/bare_loop",
    "benchmarks/explain_worker",
    "tests/faults/stand_in_trainer",
    "tests/fuzz/atheris_engine",
}


@pytest.mark.parametrize(
    ("error", "status"),
    [(ConfigError("x"), 4), (OSError("x"), 4), (MemoryError(), 3), (RecursionError(), 3), (TypeError("x"), 3)],
)
def test_a_program_s_error_is_one_line_and_no_1(
    error: Exception, status: int, capsys: pytest.CaptureFixture[str], accidents: Path
) -> None:
    def program() -> int:
        raise error

    assert ended(program, "program", []) == status
    told = capsys.readouterr().err
    assert told.startswith("program: ")
    assert told.count("\n") == 1
    assert len(list(accidents.iterdir())) == (status == 3)


def test_a_program_s_own_status_is_its_exit_status() -> None:
    assert (ended(lambda: 1, "program", []), ended(lambda: None, "program", [])) == (1, 0)


def test_every_program_of_the_benchmarks_ends_so() -> None:
    files = [path for folder in ("benchmarks", "tests/fuzz", "tests/faults") for path in (ROOT / folder).glob("*.py")]
    programs = {path.relative_to(ROOT).with_suffix("").as_posix(): path.read_text(encoding="utf-8") for path in files}
    ends = {name: text.partition('if __name__ == "__main__":')[2] for name, text in programs.items()}
    assert {name for name, text in ends.items() if text and "sys.exit(ended(" not in text} == WORKERS
