"""The time of a night that is laid out: what each case may take of it, and what happens when it is over."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from helpers.history.results import RunResult
from helpers.judging.evidence import Build
from helpers.judging.night_plan import NightPlan, margin_minutes
from helpers.judging.verdict import Reason, Status, Verdict
from helpers.plan.case_plan import CasePlan
from helpers.session.measure import CaseResult
from helpers.session.outcome import OUT_OF_TIME
from helpers.trainers.contract.errors import SuiteError

# A confirmation that has begun gets as many pairs even if the time is over: fewer settle nothing.
LEAST_PAIRS = 3

Key = tuple[str, str]


@dataclass(frozen=True)
class CaseTime:
    """What the plan gives a case."""

    # The fewest runs, and whether it is compared with the good build in pairs.
    runs: int
    in_pairs: bool
    run_seconds: float
    # What is kept for its confirmation, and its part of what is kept for any.
    kept_seconds: float = 0.0

    @property
    def least_seconds(self) -> float:
        return self.runs * self.run_seconds


@dataclass(frozen=True)
class NightTime:
    """What measuring has to know of a night's plan, in every process of the session."""

    # The end of the night (UTC), and how much before it is kept for bisect and explain.
    ends: datetime.datetime
    search_seconds: float
    minutes: float
    # How many cases the night's correction counts.
    counted: int
    # In the order of measuring.
    cases: Mapping[Key, CaseTime]

    @staticmethod
    def of(plan: NightPlan, begins: datetime.datetime, used_seconds: float = 0.0) -> NightTime:
        """The time of a plan with a limit that begins now. ``used_seconds`` were used before, by a session that is
        resumed."""
        minutes = plan.limits.minutes
        if minutes is None:
            raise SuiteError("night plan", got="no limit", expected="budgets.night_minutes")
        # What is kept for any case belongs to each in equal parts, and what is kept for drops by what they take there.
        margin = margin_minutes(plan.choices) / max(len(plan.choices), 1)
        all_drops = sum(each.drop_minutes for each in plan.choices)
        of_drops = plan.drops_minutes / all_drops if all_drops else 0.0
        cases = {
            each.key: CaseTime(
                each.choice.runs,
                each.choice.in_pairs,
                each.need.run_seconds,
                60 * (each.choice.kept_minutes + margin + of_drops * each.choice.drop_minutes) if each.tonight else 0.0,
            )
            for each in (*plan.tonight, *plan.no_time)
            if each.choice is not None
        }
        ends = begins + datetime.timedelta(seconds=60 * minutes - used_seconds)
        return NightTime(ends, 60 * plan.limits.search_minutes, minutes, plan.counted, cases)

    def seconds_left(self, now: datetime.datetime, *, searching: bool = False) -> float:
        """The seconds for cases, or with ``searching`` for bisect and explain too; negative when they are over."""
        return (self.ends - now).total_seconds() - (0.0 if searching else self.search_seconds)

    def why_not(self, key: Key, now: datetime.datetime, made: int = 0) -> str:
        """Why the case cannot be measured any more; empty if it can. ``made`` of its runs were made before, by a
        session that is resumed: with all of them it needs no time for its verdict."""
        mine, left = self.cases.get(key), self.seconds_left(now)
        if mine is None or made >= mine.runs:
            return ""
        needed = (mine.runs - made) * mine.run_seconds
        if needed <= left:
            return ""
        return (
            f"not reached: the night's {self.minutes:g} min (budgets.night_minutes) have {max(left, 0) / 60:.1f} min "
            f"left for cases, and it takes {needed / 60:.1f} min"
        )

    def within(self, plan: CasePlan, now: datetime.datetime, made: Sequence[RunResult] = ()) -> CasePlan:
        """The case as the night has planned it, with as many pairs as there is time for. ``made`` are its runs so far,
        which take no more time: what they show counts, however little time is left.

        What looks slow is settled before further cases are measured: it is far more likely to be slower than a case of
        which nothing is known, and with fewer pairs the drops that the plan names would not be found.
        """
        mine = self.cases.get(plan.suite_case.key)
        if mine is None:
            return plan
        begun = _pairs_begun(made)
        to_make = max(0, mine.runs - screening_runs(made))
        free = self.seconds_left(now) - to_make * mine.run_seconds
        # Pairs that nothing asks for leave all later cases the time of their fewest runs and of their confirmations.
        unasked = free - self._seconds_after(plan.suite_case.key)
        in_pairs = mine.in_pairs and (begun > 0 or _pairs_in(unasked, mine) >= LEAST_PAIRS)
        pairs = max(LEAST_PAIRS, begun + _pairs_in(free, mine))
        budget = replace(plan.budget, pairs=max(begun, min(plan.budget.pairs, pairs)))
        unasked_pairs = max(LEAST_PAIRS, begun + _pairs_in(unasked, mine)) if in_pairs else None
        return replace(plan, budget=budget, least_runs=mine.runs, in_pairs=in_pairs, unasked_pairs=unasked_pairs)

    def _seconds_after(self, key: Key) -> float:
        keys = list(self.cases)
        later = [self.cases[each] for each in keys[keys.index(key) + 1 :]]
        return sum(each.least_seconds + each.kept_seconds for each in later)

    def to_record(self) -> dict[str, Any]:
        """Plain values, which are sent to the workers of xdist."""
        return {
            "ends": self.ends.isoformat(),
            "search_seconds": self.search_seconds,
            "minutes": self.minutes,
            "counted": self.counted,
            "cases": [[*key, *dataclasses.astuple(each)] for key, each in self.cases.items()],
        }

    @staticmethod
    def from_record(record: Mapping[str, Any]) -> NightTime:
        """What ``to_record`` made in another process of this session."""
        return NightTime(
            datetime.datetime.fromisoformat(record["ends"]),
            record["search_seconds"],
            record["minutes"],
            record["counted"],
            {(target, case_id): CaseTime(*rest) for target, case_id, *rest in record["cases"]},
        )


def screening_runs(made: Sequence[RunResult]) -> int:
    """How many of the runs are usable ones of the build under test alone."""
    return sum(run.measured and run.is_screening for run in made)


def _pairs_begun(made: Sequence[RunResult]) -> int:
    roles = [run.role for run in made if run.measured and run.is_confirming]
    return max(roles.count(build.value) for build in Build)


def _pairs_in(seconds: float, mine: CaseTime) -> int:
    return max(0, int(seconds / (2 * mine.run_seconds)))


def out_of_time(plan: CasePlan, why: str) -> CaseResult:
    """The result of a case that was planned tonight and not reached."""
    return CaseResult(plan, Verdict(Status.NOT_RUN, Reason(OUT_OF_TIME, why)))
