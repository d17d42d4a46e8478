"""What the text of a search says of its probabilities."""

from __future__ import annotations

import pytest

from helpers.judging.bisect.search import BisectAnswer, BisectEnd, BuildFinding
from helpers.judging.statistics import EffectSize
from helpers.report.bisect import headline, render_search
from helpers.session.bisect import CaseSearch

LEVEL = EffectSize(-0.05, -0.06, -0.04)


CASE = "paddle-resnet50v1.5-fp32-bs4-1x1-synthetic-dynamic"


def search(of_answer: float, of_column: float) -> CaseSearch:
    builds = (
        BuildFinding("good", 0.0, 2, EffectSize(0.0, -0.01, 0.01), ""),
        BuildFinding("bad", of_column, 4, LEVEL, ""),
    )
    answer = BisectAnswer(BisectEnd.FOUND, "bad is the first bad build", 1, 1, of_answer, LEVEL, LEVEL, None, 0.0, 12)
    return CaseSearch(CASE, "cpu", builds, 0.0, answer, 12)


@pytest.mark.parametrize(("of_column", "explained"), [(0.986, True), (0.991, False)])
def test_that_two_probabilities_of_one_build_are_explained(of_column: float, explained: bool) -> None:
    text = render_search(search(0.991, of_column))
    first = "FIRST BAD: bad (99.1%), -5.0% (95% -6.0% to -4.0%), 12 runs of 2 builds; the next likeliest: "
    assert text.startswith(first)
    line = "with 98.6% it holds the largest change (the last column), with 99.1% the largest or one of two"
    assert (line in text) is explained


def finding(name: str, probability: float, untestable: str = "") -> BuildFinding:
    return BuildFinding(name, probability, 0 if untestable else 2, None if untestable else LEVEL, untestable)


@pytest.mark.parametrize(
    ("shares", "likeliest"),
    [
        # The gap's probability is divided among its builds, so a build that cannot be tested may have the most.
        ((0.0, 0.3, 0.25, 0.1, 0.35), "one of 3, b1 … b3 (65.0%; 2 of them cannot be tested)"),
        ((0.0, 0.1, 0.1, 0.1, 0.7), "b4 (70.0%)"),
    ],
)
def test_no_build_that_cannot_be_tested_is_called_likeliest(shares: tuple[float, ...], likeliest: str) -> None:
    builds = tuple(
        finding(f"b{place}", share, "no such wheel" if place in (1, 2) else "") for place, share in enumerate(shares)
    )
    text = headline(CaseSearch(CASE, "cpu", builds, 0.0, None, 12))
    assert text == f"STILL OPEN: 12 runs of 5 builds so far; likeliest: {likeliest}"
