"""The hour in which a case was recorded: whether the machine ran then as it does now.

If it was slow in that hour, a build that is as much slower looks as fast as what is recorded. The good build's own
figure is known from the recording, so one run of it shows this on the first night that has it at hand.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from helpers.judging.case.evalue import Direction, evalue
from helpers.judging.case.evidence import Build, Evidence, Stage
from helpers.judging.case.level import Level
from helpers.judging.case.screen import Screening
from helpers.judging.case.verdict import NeedRuns
from helpers.judging.finding import Code, Finding, found

# If a change explains the good build's run better than no change does, in either direction, pairs decide. On a case so
# noisy that one run says little, this is so more often.
_DOUBTED = 1.0


def doubt_about_hour(screening: Screening, level: Level, good: Sequence[float]) -> NeedRuns | Finding | None:
    """Why tonight must not be compared with what is recorded alone; None if nothing speaks against it.

    That is only doubted while the good build's own figures are known from the recording alone, and too few nights are
    known to outweigh what was recorded. ``good`` are the log rates of the good build's runs of tonight; without one,
    the answer is a request for it.
    """
    case, noise = screening.case, screening.noise
    outweighed = screening.mature or case.past.gained
    if case.reference_build is None or not case.entry.comparable or not level.known or outweighed:
        return None
    if level.good is None or not level.good_once:
        return None
    if not good:
        return NeedRuns((Build.REFERENCE,), found(Code.HOUR_UNKNOWN, build=case.reference_build), Stage.CONFIRM)
    if max(evalue([good[0] - level.good], noise.sigma, noise.tau, direction) for direction in Direction) < _DOUBTED:
        return None
    return found(Code.HOUR_DOUBTED, shift_of_hour(case, level, good))


def shift_of_hour(evidence: Evidence, level: Level, good: Sequence[float]) -> Finding | None:
    """How the good build's first run of tonight lies to its figure of the recording; None if either is not known."""
    if level.good is None or not good:
        return None
    return found(Code.HOUR_SHIFT, build=evidence.reference_build, change=math.expm1(good[0] - level.good))
