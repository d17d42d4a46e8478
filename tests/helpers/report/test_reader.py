"""The reader's share of the window: shown for every case, explained where it holds the case up."""

from __future__ import annotations

import pytest

from helpers.report.row import CaseRow, is_reader_bound, reader_note, share_cell
from helpers.report.text import render


def row(share: float | None, data: str = "dali", target: str = "cpu", loader: str = "") -> CaseRow:
    case_id = f"paddle-vgg16-fp32-bs8-1x2-{data}-static"
    return CaseRow(
        case_id, target, "PASS", "pass", "c", "fine", samples_per_s=5.0, runs=1, reader_share=share, loader=loader
    )


@pytest.mark.parametrize(
    ("share", "cell"),
    [(None, "-"), (0.0, "<1%"), (0.0049, "<1%"), (0.006, "1%"), (0.04, "4%"), (0.137, "14%"), (1.0, "100%")],
)
def test_the_share_takes_at_most_four_columns(share: float | None, cell: str) -> None:
    assert share_cell(row(share)) == cell


@pytest.mark.parametrize(("share", "bound"), [(None, False), (0.0999, False), (0.10, True), (0.9, True)])
def test_a_case_is_reader_bound_from_the_threshold_on(share: float | None, bound: bool) -> None:
    assert is_reader_bound(row(share)) is bound
    assert (reader_note(row(share)) is not None) is bound
    assert ("reader-bound" in render((row(share),), 100)) is bound
