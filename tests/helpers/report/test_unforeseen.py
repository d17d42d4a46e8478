"""The programs beside the commands: an error that nobody foresaw is their 3, too."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.report.unforeseen import ended
from helpers.trainers.contract.errors import ConfigError


@pytest.mark.parametrize(
    ("error", "status"),
    [(ConfigError("x"), 4), (OSError("x"), 4), (MemoryError(), 3), (RecursionError(), 3), (TypeError("x"), 3)],
)
def test_a_program_s_error_is_one_line_and_no_1(
    error: Exception, status: int, capsys: pytest.CaptureFixture[str], accidents: Path
) -> None:
    def program() -> int:
        raise error

    assert ended(program, "program") == status
    told = capsys.readouterr().err
    assert told.startswith("program: ")
    assert told.count("\n") == 1
    assert len(list(accidents.iterdir())) == (status == 3)


def test_a_program_s_own_status_is_its_exit_status() -> None:
    assert (ended(lambda: 1, "program"), ended(lambda: None, "program")) == (1, 0)
