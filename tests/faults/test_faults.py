"""Every quick fault of the table, made for real: `python -m tests.faults` has the others too."""

import pytest

from tests.faults.__main__ import document, line, meet
from tests.faults.fault import MOST_SECONDS, Fault, Seen
from tests.faults.table import QUICK, faults

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    "fault", [pytest.param(fault, id=f"{fault.row}-{fault.name}") for fault in faults() if fault.name in QUICK]
)
def test_each_quick_fault_is_handled(fault: Fault) -> None:
    seen = meet(fault)
    if isinstance(seen, str):
        pytest.skip(seen)
    assert seen.problems == ()


def test_a_fault_that_is_not_handled_is_told_and_counted() -> None:
    fault = Fault(1, "name", "what", lambda shop: Seen("PASS", 0, ""))
    seen = Seen("PASS", 0, "", MOST_SECONDS + 1, 2, 3, ("status PASS",))
    assert seen.problems == ("status PASS", "2 processes left", "3 results lost", "ended only after 11.0 s")
    assert line(fault, seen, 1.0).count("WRONG") == 4
    found = document([(fault, seen, 1.0), (fault, "no tmpfs", 0.0)])
    assert (found["made"], found["not_made"], found["not_handled"]) == (1, 1, 1)
    assert (found["processes_left"], found["results_lost"], found["slowest_end_seconds"]) == (2, 3, 11.0)
