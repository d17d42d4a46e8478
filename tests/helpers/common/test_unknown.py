from pathlib import Path

import pytest

from helpers.common.unknown import Unknown, ask
from helpers.trainers.contract.errors import DeviceError


def test_an_answer_is_passed_on() -> None:
    assert ask(lambda: 3) == 3


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    found = ask((tmp_path / "governor").read_text)
    assert str(found) == f"unknown: no {tmp_path / 'governor'}"


@pytest.mark.parametrize(
    "error", [PermissionError(13, "Permission denied"), ValueError("no number"), DeviceError("NVML")]
)
def test_what_the_machine_refuses_is_unknown_with_its_words(error: Exception) -> None:
    def probe() -> int:
        raise error

    assert ask(probe) == Unknown(str(error))


@pytest.mark.parametrize("error", [IndexError("list index out of range"), KeyError("x"), ZeroDivisionError("by zero")])
def test_text_that_does_not_read_as_it_should_is_unknown(error: Exception) -> None:
    def probe() -> int:
        raise error

    assert ask(probe) == Unknown(f"unexpected text ({type(error).__name__}: {error})")


def test_an_error_of_the_code_itself_is_not_hidden() -> None:
    def probe() -> int:
        raise AttributeError("no such thing")

    with pytest.raises(AttributeError):
        ask(probe)
