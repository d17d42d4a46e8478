from __future__ import annotations

from types import SimpleNamespace

import pytest

from tests import conftest
from tests.helpers.launch import test_slurm_nodes
from tests.waiting_first import waiting_first


def parts(ordered: list[str], workers: int) -> list[str]:
    """What each worker begins with, as xdist divides a list (WorkStealingScheduling.check_schedule)."""
    found = []
    for left in range(workers, 0, -1):
        length = len(ordered) // left
        found.append("".join(ordered[:length]))
        ordered = ordered[length:]
    return found


@pytest.mark.parametrize(
    ("tests", "workers", "expected"),
    [
        ("abcdefWXYVgh", 4, ["WYa", "XVb", "cde", "fgh"]),
        ("abWcdXefWghW", 4, ["WWW", "Xab", "cde", "fgh"]),
        ("abcdefgWXYV", 2, ["WXYVa", "bcdefg"]),
        ("aWb", 1, ["Wab"]),
        # More wait than a part has room for.
        ("WXYVa", 4, ["W", "Y", "X", "Va"]),
        ("", 3, ["", "", ""]),
    ],
)
def test_half_of_the_workers_begin_with_what_waits(tests: str, workers: int, expected: list[str]) -> None:
    def waits(test: str) -> str | None:
        return test if test.isupper() else None

    assert parts(waiting_first(tests, waits, workers), workers) == expected


@pytest.mark.parametrize(
    ("fixtures", "expected"),
    [
        (["slurm", "running_slurm"], "a test"),
        (["accounted_slurm", "running_accounted_slurm"], "control groups"),
        (["slurm_with_groups", "running_slurm"], "control groups"),
        (["tmp_path"], None),
    ],
)
def test_a_test_that_has_a_slurm_waits(fixtures: list[str], expected: str | None) -> None:
    item = SimpleNamespace(nodeid="a test", fixturenames=fixtures)
    assert conftest._waits_for_slurm(item) == expected  # type: ignore[arg-type]


@pytest.mark.parametrize("fixture", ["running_slurm", "running_accounted_slurm", "slurm_with_groups"])
def test_what_a_slurm_s_fixture_is_called(fixture: str) -> None:
    assert any(hasattr(module, fixture) for module in (conftest, test_slurm_nodes))
