from __future__ import annotations

import pytest

from tests.waiting_first import waiting_first


@pytest.mark.parametrize(
    ("tests", "workers", "expected"),
    [
        ("abcdefWXYVgh", 4, ["WYa", "XVb", "cde", "fgh"]),
        ("abWcdXefWghW", 4, ["WWW", "Xab", "cde", "fgh"]),
        ("abcdefgWXYV", 2, ["WXYVa", "bcdefg"]),
        ("aWb", 1, ["Wab"]),
        ("WXYVa", 4, ["WY", "XV", "", "a"]),
        ("", 3, ["", "", ""]),
    ],
)
def test_half_of_the_workers_begin_with_what_waits(tests: str, workers: int, expected: list[str]) -> None:
    def waits(test: str) -> str | None:
        return test if test.isupper() else None

    assert "".join(waiting_first(tests, waits, workers)) == "".join(expected)
