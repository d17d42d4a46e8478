"""The verdict on a night in lines for the terminal."""

from __future__ import annotations

import pytest

from helpers.judging.night import NightVerdict
from helpers.judging.verdict import Reason, Status
from helpers.report.text import night_lines


@pytest.mark.parametrize("width", [60, 80])
def test_the_night_is_a_line_and_its_reason_below_it(width: int) -> None:
    reason = "all amp cases fell together; " * 4 + "give --reference-env PATH \x1b[31m"
    night = NightVerdict(Status.INCONCLUSIVE, Reason("c", reason), cases=12, suspect="machine")
    first, *rest = night_lines(night, width)
    assert first == "the night: INCONCLUSIVE, suspect: the machine (12 cases)"
    assert all(line.startswith("    ") and len(line) <= width and line.isprintable() for line in rest)
    assert " ".join(" ".join(rest).split()) == reason.replace("\x1b", "\\x1b")


def test_no_suspect_is_named_where_there_is_none() -> None:
    night = NightVerdict(Status.PASS, Reason("quiet", "nothing fell"), cases=3)
    assert night_lines(night, 80) == ["the night: PASS (3 cases)", "    nothing fell"]
