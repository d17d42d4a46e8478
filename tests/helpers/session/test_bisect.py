"""What ends the pairs of one build within a search."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

from helpers.judging.case.evidence import Build, Evidence, RunEvidence, Stage
from helpers.judging.case.verdict import NeedRuns, Verdict
from helpers.judging.finding import Code
from helpers.session.bisect import beside_good


def evidence(rates: Sequence[tuple[Build, float]]) -> Evidence:
    runs = tuple(RunEvidence(build=build, stage=Stage.CONFIRM, log_rate=math.log(rate)) for build, rate in rates)
    return Evidence("paddle-resnet50v1.5-fp32-bs4-1x1-synthetic-dynamic", "median-step", 1, runs)


PAIR = [(Build.REFERENCE, 5.0), (Build.CANDIDATE, 4.0)]


def test_that_pairs_end_once_they_are_enough() -> None:
    asked: list[list[tuple[float, float]]] = []

    def enough(pairs: Sequence[tuple[float, float]]) -> bool:
        asked.append([*pairs])
        return len(pairs) == 2

    judge = beside_good(8, enough)
    assert isinstance(judge(evidence(PAIR)), NeedRuns)
    answer = judge(evidence([*PAIR, *reversed(PAIR)]))
    assert isinstance(answer, Verdict) and answer.reason.code == Code.BISECTED
    both = pytest.approx((math.log(5.0), math.log(4.0)))
    assert asked == [[both], [both, both]]


def test_that_nobody_asks_within_a_pair() -> None:
    def enough(pairs: Sequence[tuple[float, float]]) -> bool:
        raise AssertionError(f"asked in the middle of a pair, after {len(pairs)}")

    assert isinstance(beside_good(8, enough)(evidence([*PAIR, PAIR[0]])), NeedRuns)
