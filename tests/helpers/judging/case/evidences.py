"""Evidence by hand: runs, nights and verdicts in a line each, and the rates at which an e-value has a given size."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from helpers.judging.case.evalue import Direction, evalue
from helpers.judging.case.evidence import Build, Evidence, Night, Past, RecordedReference, RunEvidence, Stage
from helpers.judging.case.judge import judge
from helpers.judging.case.noise import Noise, learn
from helpers.judging.case.verdict import NeedRuns, Standing, Verdict
from helpers.judging.finding import Code, found
from helpers.judging.rules.own import MEDIAN_STEP

CENTRE = math.log(100.0)
# Twenty quiet nights about 100 images/s, 0.2% apart.
SCATTER = (0.3, -1.1, 0.7, 1.4, -0.4, -0.9, 0.1, 1.0, -1.5, 0.6, -0.2, 0.9, -0.7, 1.2, -1.0, 0.0, 0.5, -0.6, 0.8, -0.3)
GOOD = "good 1.2 (abc)"
# Why the night asks for pairs of a case.
GROUP = found(Code.GROUP_FELL, group="amp", shift=-0.02, cases=4, evidence=3e7, needed=150.0)


def run(log_rate: float = CENTRE, **values: Any) -> RunEvidence:
    rate = math.exp(log_rate)
    given = {"log_rate": log_rate, "stall_share": 0.01, "loss": 6.9}
    return RunEvidence({"wall-clock": rate, MEDIAN_STEP: rate}, **{**given, **values})


def new(log_rate: float = CENTRE, **values: Any) -> RunEvidence:
    return run(log_rate, stage=Stage.CONFIRM, **values)


def good(log_rate: float = CENTRE, **values: Any) -> RunEvidence:
    return run(log_rate, stage=Stage.CONFIRM, build=Build.REFERENCE, **values)


def pairs(*differences: float, at: float = CENTRE, **values: Any) -> tuple[RunEvidence, ...]:
    """Confirmation runs whose k-th pair differs by the k-th of ``differences``, the reference build's log rate ``at``;
    ``values`` are the new build's."""
    return tuple(each for gap in differences for each in (good(at), new(at + gap, **values)))


def nights(count: int = 20, scale: float = 0.002, **values: Any) -> tuple[Night, ...]:
    return tuple(
        Night(
            (CENTRE + scale * SCATTER[at % len(SCATTER)],),
            **{"stall_share": 0.01, "date": f"2024-05-{at % 28 + 1:02d}", **values},
        )
        for at in range(count)
    )


def recorded(**values: Any) -> RecordedReference:
    given = {"rule": MEDIAN_STEP, "label": "recorded 2024-05-01, abc", "tolerance": 0.005, "replicates": (100.0, 100.1)}
    given["build"] = GOOD
    return RecordedReference(100.0, **{**given, **values})


def evidence(*runs: RunEvidence, past: Sequence[Night] = nights(), **values: Any) -> Evidence:
    given = {"planned_runs": 1, "recorded": recorded(), "past": Past(tuple(past)), "cases_tonight": 60}
    given["reference_id"] = GOOD
    return Evidence("a-case", "wall-clock", **{**given, "runs": runs, **values})


def verdict(*runs: RunEvidence, **values: Any) -> Verdict:
    answer = judge(evidence(*runs, **values))
    assert isinstance(answer, Verdict), answer
    return answer


def standing(answer: Verdict) -> Standing:
    assert answer.standing is not None
    return answer.standing


def asked(*runs: RunEvidence, **values: Any) -> NeedRuns:
    answer = judge(evidence(*runs, **values))
    assert isinstance(answer, NeedRuns), answer
    return answer


def noise(past: Sequence[Night] = nights()) -> Noise:
    return learn([night.log_rates for night in past if night.accepted])


def rate_of(e_value: float, past: Sequence[Night] = nights(), direction: Direction = Direction.DROP) -> float:
    """The log rate of a single run whose e-value against ``past`` is ``e_value``."""
    known = noise(past)
    gap = solve(lambda gap: evalue([direction.value * gap], known.sigma, known.tau, direction), e_value)
    return known.centre + direction.value * gap


def gap_of(
    e_value: float, count: int, past: Sequence[Night] = nights(), direction: Direction = Direction.DROP
) -> float:
    """The difference of ``count`` equal pairs at which their e-value is ``e_value``."""
    sigma = math.sqrt(2) * noise(past).sigma
    gap = solve(lambda gap: evalue([direction.value * gap] * count, sigma, 3e-4, direction), e_value)
    return direction.value * gap


def solve(e_value_at: Callable[[float], float], e_value: float) -> float:
    low, high = -0.1, 0.19
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if e_value_at(middle) >= e_value else (middle, high)
    return high


def codes(answer: Verdict | NeedRuns | Any) -> set[Code]:
    """Of everything that was found."""
    findings = [answer.why] if isinstance(answer, NeedRuns) else list(answer.reason.findings)
    for each in findings:
        findings += each.details
    return {each.code for each in findings}
