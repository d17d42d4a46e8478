"""Every quick fault of the table, made for real: `python -m tests.faults` has the others too."""

import pytest

from tests.faults.__main__ import line, meet
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


def test_a_fault_that_is_not_handled_is_told() -> None:
    fault = Fault(1, "name", "what", lambda shop: Seen("PASS", 0, ""))
    seen = Seen("PASS", 0, "", MOST_SECONDS + 1, 2, 3, ("status PASS",))
    assert seen.problems == ("status PASS", "2 processes left", "3 results lost", "ended only after 11.0 s")
    assert line(fault, seen, 1.0).count("WRONG") == 4
