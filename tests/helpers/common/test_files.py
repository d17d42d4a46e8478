"""What a written file may take the place of."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from helpers.common.files import check_replaceable


@pytest.mark.parametrize(
    "make",
    [
        os.mkfifo,
        Path.mkdir,
        lambda path: path.symlink_to("/dev/null"),
        lambda path: path.symlink_to("/proc/self/fd/1"),
        lambda path: path.symlink_to(path),
    ],
    ids=["a FIFO", "a folder", "a link to a device", "a link as /dev/stdout is", "a link to itself"],
)
def test_what_is_no_regular_file_is_not_replaced(tmp_path: Path, make: Callable[[Path], object]) -> None:
    make(tmp_path / "report.json")
    with pytest.raises(OSError, match=r"not a regular file|symbolic links"):
        check_replaceable(tmp_path / "report.json")


def test_a_file_a_link_to_one_and_nothing_may_be_replaced(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    check_replaceable(path)
    path.touch()
    check_replaceable(path)
    (tmp_path / "link").symlink_to(path)
    check_replaceable(tmp_path / "link")
