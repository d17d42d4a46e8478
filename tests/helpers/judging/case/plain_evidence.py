"""Evidence for both questions, by hand: runs, references and verdicts in a line each."""

from __future__ import annotations

import math
from typing import Any

from helpers.judging.case.evidence import (
    Budget,
    Build,
    Evidence,
    Night,
    Past,
    PublishedReference,
    RecordedReference,
    RunEvidence,
    Stage,
)
from helpers.judging.case.judge import judge
from helpers.judging.case.verdict import Verdict
from helpers.judging.rules.own import MEDIAN_STEP

RULE, OTHER_RULE = "wall-clock", "paddleclas-trimmed"
KNOWN = tuple(Night((math.log(100.0 + 0.2 * (at % 3 - 1)),)) for at in range(20))


def run(samples_per_s: Any = 100.0, **values: Any) -> RunEvidence:
    rate = math.log(samples_per_s) if isinstance(samples_per_s, float) and 0 < samples_per_s < math.inf else None
    figures = {RULE: samples_per_s, OTHER_RULE: samples_per_s, MEDIAN_STEP: samples_per_s}
    return RunEvidence(figures, **{"log_rate": rate, **values})


def published(samples_per_s: float = 100.0, **values: Any) -> PublishedReference:
    given = {"rule": OTHER_RULE, "label": "table 1, V100", "gates": True, "tolerance": 0.05}
    return PublishedReference(samples_per_s, **{**given, **values})


def recorded(samples_per_s: float = 100.0, **values: Any) -> RecordedReference:
    return RecordedReference(
        samples_per_s, **{"rule": MEDIAN_STEP, "label": "abc, May", "tolerance": 0.005, "build": "g", **values}
    )


def evidence(*runs: RunEvidence, **values: Any) -> Evidence:
    usable = [run for run in runs if run.build is Build.CANDIDATE and run.stage is Stage.SCREEN]
    given = {"planned_runs": len(usable), "runs": runs, "recorded": recorded(), "past": Past(KNOWN)}
    given["reference_id"] = "g"
    return Evidence("a-case", RULE, **{"budget": Budget(repeats=0, screen_runs=1), **given, **values})


def verdict(*runs: RunEvidence, **values: Any) -> Verdict:
    answer = judge(evidence(*runs, **values))
    assert isinstance(answer, Verdict), answer
    return answer


def pairs(candidate: float, count: int = 3, **values: Any) -> tuple[RunEvidence, ...]:
    both = (run(build=Build.REFERENCE, stage=Stage.CONFIRM), run(candidate, stage=Stage.CONFIRM, **values))
    return both * count
