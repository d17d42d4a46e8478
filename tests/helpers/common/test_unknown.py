from pathlib import Path

import pytest

from helpers.common.unknown import Unknown, ask
from helpers.trainers.contract.errors import DeviceError


def test_an_answer_is_passed_on_and_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    assert ask(lambda: 3) == 3
    found = ask((tmp_path / "governor").read_text)
    assert str(found) == f"unknown: no {tmp_path / 'governor'}"


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (PermissionError(13, "Permission denied"), "[Errno 13] Permission denied"),
        (ValueError("no number"), "no number"),
        (DeviceError("NVML"), "NVML"),
        (IndexError("list index out of range"), "unexpected text (IndexError: list index out of range)"),
        (KeyError("x"), "unexpected text (KeyError: 'x')"),
        (ZeroDivisionError("by zero"), "unexpected text (ZeroDivisionError: by zero)"),
    ],
)
def test_what_the_machine_refuses_and_text_that_does_not_read_is_unknown(error: Exception, told: str) -> None:
    def probe() -> int:
        raise error

    assert ask(probe) == Unknown(told)


def test_an_error_of_the_code_itself_is_not_hidden() -> None:
    def probe() -> int:
        raise AttributeError("no such thing")

    with pytest.raises(AttributeError):
        ask(probe)
