"""The table of proposals."""

from __future__ import annotations

from helpers.plan.proposals import (
    Accepted,
    Candidate,
    RecordedAnswer,
    how_to_accept,
)
from helpers.report.text import format_proposals
from tests.helpers.plan.recorded_entries import A, B, entry, proposed, recorded


def test_the_table_shows_old_new_change_and_reason() -> None:
    old = recorded(entry(100.0, A), entry(2.0, B), entry(7.25, "paddle-old-case"))
    faster = Candidate(entry(112.5, A), answer=RecordedAnswer.FASTER, why="+12.5% in 3 pairs")
    proposals = proposed(old, faster, Candidate(entry(1.0, B), answer=RecordedAnswer.SLOWER, why="-50.0% in 2 pairs"))

    assert format_proposals(proposals).splitlines() == [
        "case                                       old → new images/s  change %  what     reason",
        "paddle-old-case                          7.250 → -                       unused   "
        "no such case any more; delete the entry by hand if it is not coming back",
        "paddle-vgg16-fp32-bs16-1x1-dali-static   2.000 → 1.000           -50.00  refused  "
        f"confirmed slower: -50.0% in 2 pairs; {how_to_accept(B)}",
        "paddle-vgg16-fp32-bs8-1x1-dali-static   100.00 → 112.50          +12.50  updated  "
        "confirmed faster: +12.5% in 3 pairs",
        "Baselines: 1 updated, 1 refused, 1 unused",
    ]


def test_a_reason_cannot_forge_a_row_or_colour_the_terminal() -> None:
    slower = Candidate(entry(80.0), answer=RecordedAnswer.SLOWER)
    (proposal,) = proposed(recorded(entry(100.0)), slower, accepted=[Accepted(A, "a\nb\x1b[31m")])

    assert r"accepted regression: a\nb\x1b[31m" in format_proposals([proposal]).splitlines()[1]


def test_an_empty_table_says_so() -> None:
    assert "no case was measured" in format_proposals([])
